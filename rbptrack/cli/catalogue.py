"""The commands `models` and `datasets`, which list the configs of models and datasets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer

from rbptrack.base.formatting import compact

Patterns = Annotated[
    list[str] | None, typer.Argument(metavar="[PATTERN]...", help="names or patterns, such as 'pythia*/*' or wiki")
]


def models(patterns: Patterns = None) -> int:
    """List the models that have a name, such as pythia/70m. Other models are measured by repository or folder.

    Example: rbptrack models 'pythia/*'

    S is known if rbptrack has counted the parameters on this machine.
    """
    from rbptrack.config.compose import compose
    from rbptrack.sources import cache, hub
    from rbptrack.sources.pin import pin_model
    from rbptrack.sweep.lookups import parameter_counts_key

    names = _select("model", patterns or ["*/*"])
    rows = []
    for name, config in zip(names, compose([f"model={','.join(names)}", "dataset=pydocs"]), strict=True):
        model = config.model
        folder = hub.find_snapshot("model", model.repo, model.revision) if model.repo else None
        has_weights = folder is not None and any(folder.glob(model.gguf or "*.safetensors"))
        size_known = ""
        if folder or model.path:
            identity = f"{model.repo}@{folder.name}" if folder else pin_model(model).identity
            line = cache.find_line(parameter_counts_key(identity))
            size_known = compact(json.loads(line)["non_embedding"]) if line else ""
        cached = "built-in" if model.path else "yes" if has_weights else "no"
        about = _comment("model", name)
        rows.append([name, model.size, size_known, model.repo, cached, about])
    _print(rows, ["name", "size", "S", "repository", "cached", "about"])
    return 0


def datasets(patterns: Patterns = None) -> int:
    """List the datasets that have a name, such as wiki. Other datasets are measured by repository, folder or file.

    Example: rbptrack datasets
    """
    from rbptrack.config.compose import compose
    from rbptrack.sources import hub

    names = _select("dataset", patterns or ["*"])
    rows = []
    for name, config in zip(names, compose(["model=nano/6k", f"dataset={','.join(names)}"]), strict=True):
        dataset = config.dataset
        cached = "built-in"
        if dataset.repo:
            cached = "yes" if hub.find_snapshot("dataset", dataset.repo, dataset.revision) else "no"
        documents = str(dataset.documents or dataset.head or "all")
        rows.append([name, documents, str(dataset.seq_len), dataset.repo, cached, _comment("dataset", name)])
    _print(rows, ["name", "documents", "seq_len", "repository", "cached", "about"])
    return 0


def _select(group: str, patterns: Sequence[str]) -> list[str]:
    from rbptrack.config.choices import config_names
    from rbptrack.config.patterns import select_names

    return select_names(group, patterns, config_names(group))


def _comment(group: str, name: str) -> str:
    """Return the first sentence of the comment at the beginning of a config, which may name its licence."""
    from rbptrack.config.paths import config_folders

    for folder in config_folders():
        file = folder / group / f"{name}.yaml"
        if file.is_file():
            lines = takewhile(lambda line: line.startswith("#"), file.read_text("utf-8").splitlines())
            return " ".join(line.lstrip("# ") for line in lines).partition(". ")[0].rstrip(".")
    return ""


def _print(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    import pandas as pd

    from rbptrack.console.tables import print_table

    print_table(pd.DataFrame(rows, columns=list(columns)), by_importance=columns[:5])
