"""`measure`, `plan` and `demo`: words of Hydra become cells, measured by the sweep or by Hydra's own means."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from rbptrack.base.errors import MeasurementError
from rbptrack.base.words import compact, compact_bytes, counted, duration
from rbptrack.config.compose import checked_config, compose, readable_errors, words_for_hydra
from rbptrack.config.paths import conf_folder
from rbptrack.config.registration import register
from rbptrack.config.words import read_words
from rbptrack.console.output import say
from rbptrack.console.tables import print_table

register()  # processes of Hydra's launchers import this module, and compose there


def measure(words: Sequence[str]) -> int:
    """Measure every cell that the words ask for and return the exit code."""
    if read_words(words).is_hydras_own:
        return _through_hydra(words)
    configs = compose(words)
    from rbptrack import sweep

    code: int = sweep.run(configs, words)
    return code


def demo(words: Sequence[str]) -> int:
    """Measure the family that ships with rbptrack on the first 256 tokens of each document of its two datasets.

    The documents are cut because a few long documents of pydocs would otherwise decide its exponents: if whole
    documents were measured, the exponent of CE would depend on effectively 2.3 of 135 documents.

    Args:
        words: further words of Hydra. If they choose a model or a dataset, that one is measured.

    """
    chosen = []
    if not any(word.startswith("model=") for word in words):
        chosen.append("model=nano/*")
    if not any(word.startswith("dataset=") for word in words):
        chosen += ["dataset=pydocs,stdlib", "dataset.sequence=truncate"]
    return measure([*chosen, *words])


def plan(words: Sequence[str]) -> int:
    """Print the estimated cost of each cell. Returns 1 if some cells cannot be looked up, 2 if none can."""
    configs = compose(words)
    from rbptrack import sweep

    table = sweep.plan(configs)
    unknown = table["S"].isna()
    to_measure = table[~unknown & (table["status"] != "measured")]
    shown = table.assign(status=[status if len(status) <= 30 else f"{status[:29]}…" for status in table["status"]])
    forms: dict[str, Callable[[float], str]] = dict.fromkeys(("S", "parameters", "tokens"), compact)
    forms |= {"FLOPs": "{:.1e}".format}
    forms |= {"memory": compact_bytes, "download": compact_bytes, "seconds": duration}
    for column, form in forms.items():
        shown[column] = [form(value) if pd.notna(value) else "" for value in table[column]]
    print_table(shown.rename(columns={"seconds": "time"}), last_to_go=["dataset", "status", "S", "tokens", "time"])
    if not unknown.all():
        seconds, flops = (to_measure[column].sum(skipna=False) for column in ("seconds", "FLOPs"))
        weights = to_measure.drop_duplicates("model")["download"].sum(skipna=False)
        say(
            f"{counted(len(to_measure), 'cell')} to measure: "
            f"{duration(seconds) if pd.notna(seconds) else 'an unknown time'} on this device, "
            f"{f'{flops:.1e}' if pd.notna(flops) else 'unknown'} FLOPs, "
            f"{compact_bytes(weights) if pd.notna(weights) else 'unknown bytes'} to download"
        )
    if not unknown.any():
        return 0
    first = table[unknown].iloc[0]
    say(f"{unknown.sum()} of {counted(len(table), 'cell')} could not be looked up. {first['model']}: {first['status']}")
    return 2 if unknown.all() else 1


def _through_hydra(words: Sequence[str]) -> int:
    """Hand the words to Hydra itself, its flags, launchers and sweepers included."""
    import hydra

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors are raised here, where Hydra would print them
    sys.argv[1:] = words_for_hydra(words)
    with readable_errors():
        hydra.main(config_path=str(conf_folder()), config_name="config", version_base="1.3")(_measure_cell)()
    return 0


def _measure_cell(config: Any) -> float:
    """Measure the one cell that Hydra composed and return its CE, which Optuna and other sweepers minimise."""
    from rbptrack import sweep
    from rbptrack.tracking import Store

    cell_config = checked_config(config)
    store = Store(cell_config.tracking.uri, cell_config.tracking.experiment)
    outcome = sweep.measure_cell(sweep.resolve(cell_config), store)
    if isinstance(outcome, sweep.Failed):
        raise MeasurementError(f"{outcome.title}: {outcome.message}")
    if isinstance(outcome, sweep.Found):
        return float(store.runs(run_ids=[outcome.run_id])["ce"].iat[0])
    return outcome.numbers["ce"]
