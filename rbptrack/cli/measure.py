"""The commands `measure`, `demo` and `job`, which measure cells."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rbptrack.cli.options import NO_VALUES, Words


def measure(words: Words = NO_VALUES) -> int:
    """Measure models on datasets, then analyse them.

    Example: rbptrack 'model=pythia/*' dataset=wiki,humaneval measures each model on each dataset.

    The word measure may be left out. Cells that were measured before are skipped. Put patterns in quotes.

    model= and dataset= also take files, folders and names on the Hub, such as model=./folder dataset=./news.jsonl.
    Without them, rbptrack measures nano/115k on pydocs.
    """
    from rbptrack.config.compose import compose_cells, read_words

    command = read_words(words)
    if command.for_hydra:
        from rbptrack.sweep.hydra import run_by_hydra

        run_by_hydra(command)
        return 0
    configs = compose_cells(command)
    from rbptrack import sweep  # imports torch and MLflow, so wrong words are refused first

    return sweep.run(configs, words)


def demo(words: Words = NO_VALUES) -> int:
    """Measure seven built-in models on two built-in datasets and fit their laws. Needs no network."""
    keys_set = {word.lstrip("+").partition("=")[0] for word in words}
    defaults = []
    if "model" not in keys_set:
        defaults.append("model=nano/*")
    if "dataset" not in keys_set:
        defaults.append("dataset=pydocs,stdlib")
        if "dataset.sequence" not in keys_set:
            # With whole documents, a few long documents of pydocs would dominate its exponents. The effective
            # number of documents for the exponent of CE would be 2.3, although there are 135.
            defaults.append("dataset.sequence=truncate")
    return measure([*defaults, *words])


def job(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> int:
    """Measure the cells of a job file of `launch=gpus` or `launch=slurm`, and leave the results on disk."""
    from rbptrack.sweep import run_job

    return run_job(file)
