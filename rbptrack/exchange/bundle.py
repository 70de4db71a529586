"""Measurements as one file to share: a zip of JSON and Parquet; no pickles, and no token ids unless asked for."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rbptrack.base import __version__, limits
from rbptrack.base.errors import DISK_FULL, BadInput, MissingArtifact, RbptrackError
from rbptrack.base.files import unfinished
from rbptrack.console.output import complain
from rbptrack.exchange.archive import FORMAT, MANIFEST, NAMES
from rbptrack.exchange.contents import check
from rbptrack.exchange.faults import Faults
from rbptrack.exchange.imported import AnyImportedRow
from rbptrack.ranks import IDS, RankTable
from rbptrack.tracking.params import PRIVATE_PARAMS
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import FILE, RANKS, TOKENS, Record, artifacts
from rbptrack.tracking.schema import WITHOUT, Tag

_FEWER = "export fewer at a time, with family=..."
_AT_ONCE = 200  # measurements whose records are read together


def write(reader: Reader, run_ids: Sequence[str], out: Path, *, tokens: bool) -> int:
    """Write measurements into a bundle, whole or not at all; returns how many it holds.

    A measurement that cannot be read is named on standard error and left out.

    Args:
        reader: of the store where they are.
        run_ids: which.
        out: the file.
        tokens: whether the rank tables keep the ids of the target tokens, and measurements the texts of tokens, which
            the analyzers `compare` (across tokenizers) and `tokens` need: the documents can be read from them.

    Raises:
        BadInput: they are more than a bundle may hold.
        RbptrackError: none can be read.

    """
    full = f"a bundle holds at most {limits.ENTRIES:,} files"
    if len(run_ids) >= limits.ENTRIES:
        raise BadInput(f"{full}, and each of these {len(run_ids):,} measurements needs one at least: {_FEWER}")
    written = 0
    stored = zipfile.ZIP_STORED  # Parquet is compressed already
    with unfinished(out, durable=True) as place, zipfile.ZipFile(place, "w", stored) as bundle:
        for run_id, record in _records(reader, run_ids):
            with tempfile.TemporaryDirectory() as name:
                try:
                    record = _collect(reader, run_id, record, Path(name), tokens=tokens)
                except (RbptrackError, OSError) as error:
                    if getattr(error, "errno", None) in DISK_FULL:
                        raise
                    complain(f"run {run_id} is left out: {str(error).replace(f'{name}/', '')}")
                    continue
                files = [Path(name, FILE), *artifacts(Path(name))]
                if len(bundle.filelist) + len(files) >= limits.ENTRIES:
                    raise BadInput(f"{full}, which {written:,} of these {len(run_ids):,} measurements fill: {_FEWER}")
                for path in files:
                    bundle.write(path, f"{record.fingerprint}/{path.relative_to(name).as_posix()}")
                written += 1
        if not written:
            raise RbptrackError("none of these measurements can be read: no bundle was written")
        about = {
            "format": FORMAT if tokens else 1,
            "rbptrack": __version__,
            "measurements": written,
            "tokens": tokens,
        }
        bundle.writestr(MANIFEST, json.dumps(about, indent=1))
    return written


def _records(reader: Reader, run_ids: Sequence[str]) -> Iterator[tuple[str, Record | None]]:
    """Yield the run ids with their records, as far as the store gives many at once."""
    for at in range(0, len(run_ids), _AT_ONCE):
        some = run_ids[at : at + _AT_ONCE]
        records = reader.records(some)
        yield from ((run_id, records.get(run_id)) for run_id in some)


def _collect(reader: Reader, run_id: str, record: Record | None, folder: Path, *, tokens: bool) -> Record:
    """Return a measurement's record and artifacts, as they may leave this machine, in a folder."""
    record = record or reader.record(run_id)
    record.params = {k: v for k, v in record.params.items() if not k.startswith(PRIVATE_PARAMS)}
    (folder / "figures").mkdir()
    names = reader.artifact_names(run_id)
    if RANKS not in names:
        if not reader.came_without_ranks(run_id):
            raise MissingArtifact("its rank table is missing")
        record.tags[Tag.RANKS] = WITHOUT
    for name in names:
        if name == RANKS:
            table = reader.ranks(run_id)
            (table if tokens else without_tokens(table)).write(folder / name)
        elif NAMES.fullmatch(f"{'0' * 64}/{name}") and (tokens or name != TOKENS):
            (folder / name).write_bytes(reader.artifact(run_id, name).read_bytes())
    if not tokens:
        record.tags[Tag.TOKENS] = "left out"
    record.write(folder)
    faults = Faults(folder)
    check(folder, record.fingerprint, AnyImportedRow, faults)  # else a bundle that no import takes
    if len(faults):
        raise RbptrackError(faults.first)
    return record


def without_tokens(ranks: RankTable) -> RankTable:
    """Return the same ranks with -1 for the ids of target tokens and of those ranked first: they tell the text."""
    table = ranks.table
    hidden = pa.array(np.full(len(ranks), -1, dtype=np.int32))
    for index, column in enumerate(table.schema):
        if column.name in IDS:
            table = table.set_column(index, column, hidden)
    return replace(ranks, table=table)
