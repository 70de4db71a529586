"""Measurements as one file to hand on: a zip of JSON and Parquet; no pickles, and no token ids unless asked for."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rbptrack.errors import BadInput, RbptrackError
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.tracking import Reader
from rbptrack.tracking.record import FILE, HISTOGRAM, RANKS, Record, artifacts
from rbptrack.tracking.schema import PRIVATE_PARAMS, Metric, Tag
from rbptrack.version import __version__

_FORMAT = 1
_MANIFEST = "bundle.json"
_NAMES = re.compile(r"[0-9a-f]{64}/(record\.json|ranks\.parquet|histogram\.parquet|figures/[\w.-]+\.png)")


def write(reader: Reader, run_ids: list[str], out: Path, *, tokens: bool) -> None:
    """Write measurements into a bundle, whole or not at all.

    Args:
        reader: of the store where they are.
        run_ids: which.
        out: the file.
        tokens: whether the rank tables keep the ids of the target tokens, from which the text can be read.

    """
    unfinished = out.with_name(f"{out.name}.tmp")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as bundle:  # Parquet is compressed already
            about = {"format": _FORMAT, "rbptrack": __version__, "measurements": len(run_ids), "tokens": tokens}
            bundle.writestr(_MANIFEST, json.dumps(about, indent=1))
            for run_id in run_ids:
                with tempfile.TemporaryDirectory() as name:
                    record = _collect(reader, run_id, Path(name), tokens=tokens)
                    for path in [Path(name, FILE), *artifacts(Path(name))]:
                        bundle.write(path, f"{record.fingerprint}/{path.relative_to(name).as_posix()}")
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)


def _collect(reader: Reader, run_id: str, folder: Path, *, tokens: bool) -> Record:
    """A measurement's record and artifacts, as they may leave this machine, in a folder."""
    record = reader.record(run_id)
    record.params = {k: v for k, v in record.params.items() if not k.startswith(PRIVATE_PARAMS)}
    (folder / "figures").mkdir()
    for name in reader.artifact_names(run_id):
        if name == RANKS:
            table = reader.ranks(run_id)
            (table if tokens else without_tokens(table)).write(folder / name)
        elif _NAMES.fullmatch(f"{'0' * 64}/{name}"):
            (folder / name).write_bytes(reader.artifact(run_id, name).read_bytes())
    if not tokens:
        record.tags[Tag.TOKENS] = "left out"
    record.write(folder)
    return record


def without_tokens(ranks: RankTable) -> RankTable:
    """The same ranks with -1 for the ids of the target tokens, from which the text could be read."""
    index = ranks.table.schema.get_field_index("token")
    hidden = pa.array(np.full(len(ranks), -1, dtype=np.int32))
    table = ranks.table.set_column(index, ranks.table.schema.field(index), hidden)
    return RankTable(table, ranks.vocab_size, ranks.strict)


def read(path: Path, folder: Path) -> Iterator[tuple[Record, Path]]:
    """Read a bundle's measurements one after the other, each checked before it is handed out.

    Args:
        path: the bundle.
        folder: an empty folder, in which each measurement's artifacts lie until the next one is asked for.

    Yields:
        The record, and the folder of its artifacts.

    Raises:
        BadInput: the file is no bundle, of a newer format, or damaged; names what is wrong.

    """
    try:
        bundle = zipfile.ZipFile(path)
        about = json.loads(bundle.read(_MANIFEST))
        written_by, version = about["rbptrack"], about["format"]
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, EOFError) as error:
        raise BadInput(f"{path} is not a bundle of rbptrack, or damaged: {error}") from error
    with bundle:
        if version > _FORMAT:
            raise BadInput(
                f"{path} was written by rbptrack {written_by}, in a newer format ({version}, here {_FORMAT}): "
                "pip install --upgrade rbptrack"
            )
        names = [n for n in bundle.namelist() if n != _MANIFEST]
        strange = [n for n in names if not _NAMES.fullmatch(n)]
        if strange:
            raise BadInput(f"{path} holds {strange[0]}, which no bundle does: not imported")
        for fingerprint in dict.fromkeys(n.partition("/")[0] for n in names):
            own = folder / fingerprint
            try:
                bundle.extractall(folder, [n for n in names if n.startswith(fingerprint)])
                record = _checked(own, fingerprint)
            except (
                zipfile.BadZipFile,
                EOFError,
                KeyError,
                TypeError,
                ValueError,
                OSError,
                pa.ArrowException,
                RbptrackError,
            ) as error:
                raise BadInput(f"{path}: measurement {fingerprint[:12]} is damaged: {error}") from error
            record.tags[Tag.IMPORTED] = f"bundle: {path.name}"
            yield record, own
            shutil.rmtree(own)


def _checked(folder: Path, fingerprint: str) -> Record:
    """The record of an unpacked measurement; an error unless it is the one it claims to be."""
    record = Record.read(folder)
    if record.fingerprint != fingerprint:
        raise BadInput(f"it calls itself {record.fingerprint[:12]}")
    if (folder / RANKS).exists():
        found = RankTable.read(folder / RANKS).histogram()
        told = RankHistogram.read(folder / HISTOGRAM)
        same = np.array_equal(found.rank, told.rank) and np.array_equal(found.count, told.count)
        if not same or abs(found.ce - record.metrics[Metric.CE]) > 1e-6:
            raise BadInput("its ranks do not give its numbers")
    return record
