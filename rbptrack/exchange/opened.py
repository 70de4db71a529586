"""Bundles read in place: their measurements beside those of a store, without importing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rbptrack.analysis.runs import Runs
from rbptrack.analysis.source import Source
from rbptrack.base.errors import MissingArtifact
from rbptrack.exchange.archive import Bundle
from rbptrack.exchange.imported import AnyImportedRow
from rbptrack.ranks import VERSION, RankHistogram, RankTable
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import HISTOGRAM, RANKS
from rbptrack.tracking.runs_table import LoggedRun, row


def unpacked(path: Path, folder: Path) -> pd.DataFrame:
    """Check a bundle and unpack it; returns its measurements as rows of `Runs.frame`, whose run IDs are fingerprints.

    Args:
        path: the bundle.
        folder: where to; a folder per measurement.

    Raises:
        BadInput: it is no bundle, or damaged.

    """
    rows: list[Mapping[str, Any]] = []
    with Bundle(path) as bundle:
        bundle.check(folder, AnyImportedRow)
        for fingerprint in bundle.fingerprints:
            with bundle.unpacked(fingerprint, folder) as own:
                record = bundle.record(own)
                own.rename(own.with_name(f"kept-{fingerprint}"))
            run = LoggedRun(fingerprint, record.name, int(record.started * 1000), record.params, record.metrics)
            run.tags = record.tags
            rows.append(row(run))
    return pd.DataFrame(rows)


def beside(frame: pd.DataFrame, folders: Mapping[str, Path], reader: Reader | None) -> Runs:
    """Return measurements of bundles and of a store as one table.

    Args:
        frame: rows of both.
        folders: run ID -> the folder into which its bundle was unpacked.
        reader: of the store; None where every measurement is of a bundle.

    """
    return Runs(frame, _Opened(folders, reader))


@dataclass(frozen=True)
class _Opened(Source):
    """Bundles that were unpacked, by run ID, and a store for all other runs."""

    folders: Mapping[str, Path]
    store: Source | None

    def ranks(self, run_id: str) -> RankTable:
        stored = self._stored(run_id)
        return stored.ranks(run_id) if stored else RankTable.read(self._file(run_id, RANKS))

    def rank_pieces(self, run_id: str, *, version: int = VERSION) -> Iterable[RankTable]:
        if stored := self._stored(run_id):
            return stored.rank_pieces(run_id, version=version)
        return RankTable.read_pieces(self._file(run_id, RANKS), version=version)

    def histogram(self, run_id: str) -> RankHistogram:
        stored = self._stored(run_id)
        return stored.histogram(run_id) if stored else RankHistogram.read(self._file(run_id, HISTOGRAM))

    def groups(self, run_id: str) -> Sequence[str]:
        stored = self._stored(run_id)
        return stored.groups(run_id) if stored else super().groups(run_id)

    def _stored(self, run_id: str) -> Source | None:
        return None if run_id in self.folders else self.store

    def _file(self, run_id: str, name: str) -> Path:
        file = self.folders[run_id] / f"kept-{run_id}" / name
        if not file.exists():
            raise MissingArtifact(f"the bundle holds no {name} of {run_id[:12]}")
        return file
