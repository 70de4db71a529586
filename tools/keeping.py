"""What it costs to keep a measurement: how often the disk is waited for, and how long, until its run is FINISHED.

python -m tools.keeping [FOLDER]      # on the disk of that folder; the working folder's by default
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from rbptrack.config.schema import TrackingConfig
from rbptrack.ranks import RankTable
from rbptrack.tracking import outbox
from rbptrack.tracking.record import RANKS, Record, add_artifacts
from rbptrack.tracking.schema import MeasurementTags
from rbptrack.tracking.store import Store

TOKENS = 500_000
_VOCABULARY = 50_304
_ROUNDS = 5


@dataclass
class Waits:
    """When the disk was waited for, as (begin, end) of each sync."""

    each: list[tuple[float, float]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long one was waited for or more; those side by side count once."""
        total, until = 0.0, 0.0
        for begin, end in sorted(self.each):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total


@dataclass(frozen=True)
class Keeping:
    """The cost of keeping one measurement of `TOKENS` tokens in a local store: medians over rounds.

    Attributes:
        syncs: files and folders that were synced, parts of the unfinished measurement included.
        seconds: that the disk was waited for.
        whole: seconds of all that is done, MLflow's work included.

    """

    syncs: int
    seconds: float
    whole: float


def keeping(folder: Path) -> Keeping:
    """Keep some made-up measurements in a new store on the disk of a folder, which is removed afterwards."""
    rounds = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="rbptrack-bench-") as name, chdir(name):
        store = Store(TrackingConfig())
        store.open()
        for number in range(_ROUNDS):
            with _waits() as waits:
                began = time.perf_counter()
                _keep(store, number)
                rounds.append((len(waits.each), waits.seconds, time.perf_counter() - began))
    return Keeping(*(median(column) for column in zip(*rounds, strict=True)))


def _keep(store: Store, number: int) -> None:
    """Do with a measurement what a sweep does: a part, the record, the outbox, the run."""
    draw, unfinished = np.random.default_rng(number), Path("mlruns/partial", str(number))
    made = unfinished / "record"
    made.mkdir(parents=True)
    ranks = np.minimum(draw.geometric(0.01, TOKENS), _VOCABULARY)
    rows = np.arange(TOKENS)
    table = RankTable.from_arrays(
        vocab_size=_VOCABULARY, document=rows // 1000, position=rows % 1000, field=np.zeros(TOKENS),
        token=ranks - 1, greater=ranks - 1, ties=np.zeros(TOKENS), logprob=-np.log1p(ranks),
    )  # fmt: skip
    table.write(unfinished / RANKS, durable=True)
    about = MeasurementTags(f"{number:064x}", "bench", str(number), f"bench-{number}", "bench", "")
    record = Record(about.title, about.tags(), {})
    add_artifacts(made, ranks=unfinished / RANKS, histogram=table.histogram(), title=record.name)
    outbox.send(store, record, made, "", made_from=unfinished, tell=lambda line: None)


@contextmanager
def _waits() -> Iterator[Waits]:
    """Note each sync of this process."""
    waits, fsync = Waits(), os.fsync

    def noted(opened: int) -> None:
        begin = time.perf_counter()
        fsync(opened)
        waits.each.append((begin, time.perf_counter()))

    os.fsync = noted  # type: ignore[assignment]
    try:
        yield waits
    finally:
        os.fsync = fsync


if __name__ == "__main__":
    kept = keeping(Path(*sys.argv[1:2]))
    print(
        f"{TOKENS:,} tokens: {kept.syncs:g} files and folders synced in {1000 * kept.seconds:.0f} ms, of "
        f"{1000 * kept.whole:,.0f} ms with MLflow's work"
    )
