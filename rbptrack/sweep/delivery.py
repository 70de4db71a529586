"""Where a cell's measurement goes, and under which name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

from rbptrack.config.paths import partial
from rbptrack.config.schema import Again, Config, flat
from rbptrack.console.progress import CellState
from rbptrack.console.sentences import say
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.resolve import Resolved
from rbptrack.tracking.schema import MeasurementTags
from rbptrack.tracking.store import Store


@dataclass(frozen=True)
class Delivery:
    """What of a cell's config is not about its numbers: the store, and what is kept there beside the measurement.

    Attributes:
        store: to the tracking store.
        about: what identifies the measurement there.
        params: the whole config, flat; it holds no password.
        yaml: the same, as the artifact config.yaml.
        force: measure again what was measured before.
        again: likewise, where a condition holds.
        every: seconds between two reports while the cell is measured.
        progress_label: `[3/14]`, or nothing for a single cell.
        shards: how many jobs measure the cell together.
        tell: told how far the measurement is, for others.

    """

    store: Store
    about: MeasurementTags
    params: Mapping[str, str]
    yaml: str
    force: bool
    again: Again
    every: float
    progress_label: str
    shards: int
    tell: Callable[[CellState], None] | None

    @property
    def folder(self) -> Path:
        """Where the unfinished measurement is kept; what the shards of a forced one share is their sweep's own."""
        forced = f"-{self.about.sweep or 'forced'}" if self.force and self.shards > 1 else ""
        return partial() / f"{self.about.fingerprint}{forced}"

    def waits(self) -> None:
        """Say that another process in this folder is at work on the cell."""
        title = self.about.title
        self.say_waiting(f"{title}: another process in this folder is at work on it; waiting until it has ended")

    def say_waiting(self, why: str) -> None:
        """Say why the cell is not measured now, and show in the sweep's table that it waits."""
        say(why)
        if self.tell:
            self.tell(CellState(self.about.title, socket.gethostname(), 0, 0, 0.0, time.time(), waits=True))

    def outcome(
        self, status: str, run_id: str = "", *, numbers: Mapping[str, float], notes: Sequence[str] = ()
    ) -> Outcome:
        """How the cell ended."""
        about = self.about
        return Outcome(
            about.title,
            about.model,
            about.dataset,
            status,
            run_id,
            fingerprint=about.fingerprint,
            numbers=dict(numbers),
            notes=list(notes),
        )

    @classmethod
    def of(
        cls,
        config: Config,
        cell: Resolved,
        *,
        progress_label: str = "",
        tell: Callable[[CellState], None] | None = None,
    ) -> Delivery:
        """The delivery that a cell's config asks for."""
        store = Store(config.tracking)
        shown = replace(config, tracking=replace(config.tracking, uri=store.shown))
        about = MeasurementTags(
            fingerprint=cell.fingerprint,
            family=config.model.family,
            size=config.model.size,
            model=config.model.name,
            dataset=config.dataset.name,
            sweep=config.sweep,
        )
        yaml = OmegaConf.to_yaml(OmegaConf.structured(shown))
        every, shards = config.tracking.every, int(config.shards)
        again = (config.force, config.again)
        return cls(store, about, flat(shown), yaml, *again, every, progress_label, shards, tell)
