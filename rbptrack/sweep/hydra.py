"""Run Hydra itself, for command lines with its own flags (such as `--cfg`), its launchers or its sweepers."""

from __future__ import annotations

import os
import sys
from traceback import format_exception
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from rbptrack.base.errors import MeasurementError, RbptrackError, first_line
from rbptrack.config.command_line import CommandLine
from rbptrack.config.compose import checked_config
from rbptrack.config.composition_errors import readable_errors
from rbptrack.config.paths import conf_folder
from rbptrack.config.registration import register
from rbptrack.console.output import print_text
from rbptrack.sweep.measuring import measure_cell
from rbptrack.sweep.outcomes import Failed, Found
from rbptrack.sweep.resolver import resolve
from rbptrack.sweep.sweep import relabel_found
from rbptrack.tracking import Store

register()  # the processes that Hydra's launchers start import this module and compose configurations


def run_by_hydra(command: CommandLine) -> None:
    """Run `hydra.main` for a command line.

    Raises:
        BadInput: Hydra cannot compose a config from the words, or a value is not allowed.
        MeasurementError: a cell failed, or the launcher or sweeper did, for example because a process was killed.

    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra then raises errors instead of printing them
    sys.argv[1:] = command.words_for_hydra()
    try:
        with readable_errors():
            hydra.main(config_path=str(conf_folder()), config_name="config", version_base="1.3")(_measure)()
    except RbptrackError:
        raise
    except Exception as error:
        failure = MeasurementError(
            f"Hydra could not run all cells ({first_line(error)}). Measurements that are finished are kept: run the "
            "command again to measure the others"
        )
        failure.trace = "".join(format_exception(error))
        raise failure from error


def _measure(config: Any) -> float:
    """Measure the cell that Hydra composed. Returns its CE, which Optuna and other sweepers minimise."""
    cell_config = checked_config(config)
    store = Store(cell_config.tracking.uri, cell_config.tracking.experiment)
    cell = resolve(cell_config)
    outcome = measure_cell(cell, store)
    if isinstance(outcome, Failed):
        raise MeasurementError(f"{outcome.title}: {outcome.message}")
    relabel_found({0: cell}, {0: outcome}, store, HydraConfig.get().overrides.task)
    job = HydraConfig.get().job
    label = "" if OmegaConf.is_missing(job, "num") else f"[{job.num + 1}] "  # Hydra numbers only the jobs of a sweep
    print_text(f"{label}{outcome.line()}")
    if isinstance(outcome, Found):
        return float(store.runs(run_ids=[outcome.run_id])["ce"].iat[0])
    return outcome.measurement.metrics()["ce"]
