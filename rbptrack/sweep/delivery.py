"""Where a cell's measurement goes, and under which name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

from rbptrack.config.keys import flat
from rbptrack.config.paths import partial
from rbptrack.config.schema import Config
from rbptrack.console.output import say
from rbptrack.console.progress import CellState
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.resolved import Resolved
from rbptrack.tracking.params import compared
from rbptrack.tracking.schema import MeasurementTags
from rbptrack.tracking.store import Store


@dataclass(frozen=True)
class Delivery:
    """The part of a cell's config that does not change its numbers: the store, and further artifacts."""

    store: Store
    config: Config
    fingerprint: str
    progress_label: str  # `[3/14]`, or nothing for a single cell
    tell: Callable[[CellState], None] | None  # told how far the measurement is, for others
    force: bool  # measure again, though a measurement exists

    @property
    def about(self) -> MeasurementTags:
        """What identifies the measurement in the store."""
        model = self.config.model
        return MeasurementTags(
            fingerprint=self.fingerprint,
            family=model.family,
            size=model.size,
            model=model.name,
            dataset=self.config.dataset.name,
            sweep=self.config.sweep,
            swept=self.config.swept,
        )

    def params(self) -> dict[str, str]:
        """Return the params by which runs are compared, flat."""
        return compared(flat(self._shown))

    def yaml(self) -> str:
        """Return the whole config, as the artifact config.yaml; it holds no password."""
        return OmegaConf.to_yaml(OmegaConf.structured(self._shown))

    @property
    def _shown(self) -> Config:
        return replace(self.config, tracking=replace(self.config.tracking, uri=self.store.shown))

    @property
    def folder(self) -> Path:
        """Where the unfinished measurement is kept; what the shards of a forced one share is their sweep's own."""
        forced = f"-{self.config.sweep or 'forced'}" if self.force and self.config.shards != 1 else ""
        return partial() / f"{self.fingerprint}{forced}"

    def waits(self) -> None:
        """Say that another process in this folder is at work on the cell."""
        title = self.about.title
        self.say_waiting(f"{title}: another process in this folderis measuring it; waiting")

    def say_waiting(self, why: str) -> None:
        """Say why the cell is not measured now, and show in the sweep's table that it waits."""
        say(why)
        if self.tell:
            self.tell(CellState(self.about.title, socket.gethostname(), 0, 0, 0.0, time.time(), waits=True))

    def outcome(
        self, status: str, run_id: str = "", *, numbers: Mapping[str, float], notes: Sequence[str] = ()
    ) -> Outcome:
        """Return how the cell ended."""
        made = Outcome.of(self.config, status)
        return replace(made, run_id=run_id, fingerprint=self.fingerprint, numbers=dict(numbers), notes=list(notes))

    @classmethod
    def of(
        cls,
        config: Config,
        cell: Resolved,
        store: Store | None = None,
        *,
        progress_label: str = "",
        tell: Callable[[CellState], None] | None = None,
    ) -> Delivery:
        """Return the delivery that a cell's config asks for."""
        opened = store or Store(config.tracking)
        config = replace(config, dataset=cell.dataset)  # with its split, where the config names none
        return cls(opened, config, cell.fingerprint, progress_label, tell, config.force)
