"""Bundles read in place: their measurements beside those of a store, without importing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import MissingArtifact
from rbptrack.exchange.archive import Bundle
from rbptrack.exchange.imported import AnyImportedRow
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import HISTOGRAM, RANKS
from rbptrack.tracking.runs_table import LoggedRun, row

T = TypeVar("T")


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

    def either(name: str, load: Callable[[Path], T], stored: Callable[[str], T] | None) -> Callable[[str], T]:
        def read(run_id: str) -> T:
            if run_id not in folders and stored is not None:
                return stored(run_id)
            file = folders[run_id] / f"kept-{run_id}" / name
            if not file.exists():
                raise MissingArtifact(f"the bundle holds no {name} of {run_id[:12]}")
            return load(file)

        return read

    return Runs(
        frame,
        histogram=either(HISTOGRAM, RankHistogram.read, reader.histogram if reader else None),
        ranks=either(RANKS, RankTable.read, reader.ranks if reader else None),
        pieces=either(RANKS, RankTable.read_pieces, reader.rank_pieces if reader else None),
        groups=reader.groups if reader else None,
    )
