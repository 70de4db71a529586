"""The cells of a sweep in this process, one after the other, with the configs that were composed when it began."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from rbptrack.config.compose import Request
from rbptrack.config.schema import Config
from rbptrack.garbage import leave_out_what_is_loaded
from rbptrack.sweep.work import measure_shards

_PLAIN = {
    "launcher": "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "sweeper": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
}


def possible(request: Request) -> bool:
    """Whether Hydra has nothing to do for each job: nobody has chosen a launcher, a sweeper or callbacks of it."""
    if any(word.lstrip("+~").startswith(("hydra/", "hydra.")) for word in request.overrides):
        return False
    hydra = request.composer.hydra_settings(request.jobs()[0])
    theirs = [each for each in hydra.callbacks.values() if not each["_target_"].startswith("rbptrack.")]
    return not theirs and all(hydra[name]["_target_"] == target for name, target in _PLAIN.items())


def job(cells: Sequence[Config], overrides: Sequence[Sequence[str]], folder: Path) -> Callable[[DictConfig], None]:
    """The one job that Hydra runs for all cells: it sets up the log and composes nothing more.

    Args:
        cells: of the sweep.
        overrides: the words that made each.
        folder: of the sweep.

    """

    def run(_: DictConfig) -> None:
        leave_out_what_is_loaded()  # what libraries leave behind is found soon: memory stays flat
        for number, (cell, words) in enumerate(zip(cells, overrides, strict=True)):
            mine = folder / str(number)
            (mine / ".hydra").mkdir(parents=True, exist_ok=True)  # named as Hydra names them
            OmegaConf.save(OmegaConf.structured(cell), mine / ".hydra/config.yaml")
            OmegaConf.save(list(words), mine / ".hydra/overrides.yaml")
            label = f"[{number + 1}/{len(cells)}]" if len(cells) > 1 else ""
            measure_shards(cell, mine, label)

    return run
