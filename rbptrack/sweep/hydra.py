"""Sweeps by Hydra's own means: its flags such as `--cfg`, its launchers and its sweepers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import hydra

from rbptrack.base.errors import MeasurementError
from rbptrack.config.compose import checked_config, readable_errors, words_for_hydra
from rbptrack.config.paths import conf_folder
from rbptrack.config.registration import register
from rbptrack.sweep.cells import resolve
from rbptrack.sweep.measuring import Failed, Found, measure_cell
from rbptrack.tracking import Store

register()  # processes of Hydra's launchers import this module, and compose there


def run_by_hydra(words: Sequence[str]) -> int:
    """Hand the words to Hydra itself and return the exit code."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors are raised here, where Hydra would print them
    sys.argv[1:] = words_for_hydra(words)
    with readable_errors():
        hydra.main(config_path=str(conf_folder()), config_name="config", version_base="1.3")(_measure)()
    return 0


def _measure(config: Any) -> float:
    """Measure the one cell that Hydra composed and return its CE, which Optuna and other sweepers minimise."""
    cell_config = checked_config(config)
    store = Store(cell_config.tracking.uri, cell_config.tracking.experiment)
    outcome = measure_cell(resolve(cell_config), store)
    if isinstance(outcome, Failed):
        raise MeasurementError(f"{outcome.title}: {outcome.message}")
    if isinstance(outcome, Found):
        return float(store.runs(run_ids=[outcome.run_id])["ce"].iat[0])
    return outcome.numbers["ce"]
