"""Run Hydra itself, for command lines with its own flags (such as `--cfg`), its launchers or its sweepers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import OmegaConf

from rbptrack.base.errors import MeasurementError
from rbptrack.config.compose import checked_config, readable_errors, words_for_hydra
from rbptrack.config.paths import conf_folder
from rbptrack.config.registration import register
from rbptrack.console.output import print_text
from rbptrack.sweep.cells import resolve
from rbptrack.sweep.measuring import Failed, Found, measure_cell
from rbptrack.tracking import Store

register()  # the processes that Hydra's launchers start import this module and compose configurations


def run_by_hydra(words: Sequence[str]) -> None:
    """Run `hydra.main` for the words of a command line.

    Raises:
        BadInput: Hydra cannot compose a config from the words, or a value is not allowed.
        MeasurementError: a cell failed.

    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra then raises errors instead of printing them
    sys.argv[1:] = words_for_hydra(words)
    with readable_errors():
        hydra.main(config_path=str(conf_folder()), config_name="config", version_base="1.3")(_measure)()


def _measure(config: Any) -> float:
    """Measure the cell that Hydra composed. Returns its CE, which Optuna and other sweepers minimise."""
    cell_config = checked_config(config)
    store = Store(cell_config.tracking.uri, cell_config.tracking.experiment)
    outcome = measure_cell(resolve(cell_config), store)
    if isinstance(outcome, Failed):
        raise MeasurementError(f"{outcome.title}: {outcome.message}")
    job = HydraConfig.get().job
    label = "" if OmegaConf.is_missing(job, "num") else f"[{job.num + 1}] "  # Hydra numbers only the jobs of a sweep
    print_text(f"{label}{outcome.line()}")
    if isinstance(outcome, Found):
        return float(store.runs(run_ids=[outcome.run_id])["ce"].iat[0])
    return outcome.metrics["ce"]


class PrintBest(Callback):
    """Prints the lowest CE that a search found, and the options that gave it.

    `conf/config.yaml` registers this callback. It prints something only after a search by a sweeper such as Optuna's.
    """

    def on_multirun_end(self, config: Any, **_: Any) -> None:
        """Print the best value from the file that the sweeper wrote. Does nothing if there is no such file."""
        file = Path(config.hydra.sweep.dir, "optimization_results.yaml")
        if not file.is_file():
            return
        results = yaml.safe_load(file.read_text())
        if "best_value" in results:
            words = " ".join(f"{name}={value}" for name, value in results["best_params"].items())
            print_text(f"best     CE {results['best_value']:.3f} with {words}")
