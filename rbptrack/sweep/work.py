"""What a process does of a sweep, wherever it runs: cells, each of which leaves its outcome in a folder."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from rbptrack import interrupts
from rbptrack.config.check import typed
from rbptrack.config.schema import Config, Where
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.measurement import Shard
from rbptrack.sweep import cell, jobs
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import OUTCOME, CellFailed, Outcome, announce, shard_folder
from rbptrack.sweep.resolve import process_resolver

CELLS = "RBPTRACK_CELLS"
"""The environment variable that tells processes of other launchers how many cells the sweep has."""


def job(composed: DictConfig) -> None:
    """Hydra's job under a launcher of its own: one cell."""
    runtime = HydraConfig.get()
    total = int(os.environ.get(CELLS, "1"))
    label = f"[{runtime.job.num + 1}/{total}]" if total > 1 else ""
    config: Config = typed(composed)
    folder = Path(runtime.runtime.output_dir)
    measure_shards(config, folder, label)


def launched_job(composed: DictConfig) -> None:
    """Hydra's job under a preset's launcher, on whatever machine: the cells that its file names."""
    jobs.run(composed, measure)


def measure_shards(config: Config, folder: Path, progress_label: str) -> None:
    """Measure one cell shard by shard, until it has an outcome in a folder."""
    for shard in jobs.shards(config):
        if not (folder / OUTCOME).exists():
            measure(config, folder, progress_label, shard)


def measure(config: Config, folder: Path, progress_label: str, shard: Shard) -> None:
    """Measure one cell, or one shard of it, and leave its outcome in a folder; its failure never stops the sweep."""
    title = config.title if shard.count == 1 else f"{config.title}, {shard}"
    outcome = Outcome(title, config.model.name, config.dataset.name, "failed")
    mine = shard_folder(folder, shard)
    try:
        resolved = process_resolver().resolve(config)
        watched = mine if config.launch.where is not Where.local else None
        delivery = Delivery.of(config, resolved, progress_label=progress_label, progress_folder=watched)
        if ended := cell.run(resolved, delivery, shard):
            outcome, mine = ended, folder
        else:
            outcome.status = "measured"  # this shard; the cell is delivered with its last one
    except RbptrackError as error:
        interrupts.again()
        outcome.message, outcome.bad_input = str(error), isinstance(error, BadInput)
    except CellFailed as failure:
        outcome.run_id, outcome.message = failure.run_id, _in_a_line(failure.cause)
    except Exception as error:
        interrupts.again()
        outcome.message = _in_a_line(error)
    if outcome.status == "skipped" and (mine / OUTCOME).exists():
        return  # another shard has measured the cell, and says so
    mine.mkdir(exist_ok=True)
    outcome.write(mine)
    announce(outcome, progress_label)


def _in_a_line(error: Exception) -> str:
    """An error for people; a bug's with its type, and where to see the traceback."""
    if os.environ.get("HYDRA_FULL_ERROR"):
        traceback.print_exception(error)
    if isinstance(error, RbptrackError):
        return str(error)
    return f"{type(error).__name__}: {error} (HYDRA_FULL_ERROR=1 shows where)"
