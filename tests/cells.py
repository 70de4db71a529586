"""One small cell, measured in the test's own process."""

from __future__ import annotations

from rbptrack.config.request import measuring, sweep_of
from rbptrack.ranks.measurement import Shard
from rbptrack.sweep import cell
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.resolve import Resolver


def run(*overrides: str) -> Outcome:
    """Measure nano-6k on four documents of pydocs, or what the overrides ask for; see `cell.run`."""
    _, (config,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs", "dataset.documents=4", *overrides]))
    resolved = Resolver().resolve(config)
    ended = cell.run(resolved, Delivery.of(config, resolved), Shard())
    assert ended
    return ended
