"""Measurements as one file to hand on: a zip of JSON and Parquet; no pickles, and no token ids unless asked for."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from rbptrack.errors import BadInput, RbptrackError
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.tracking import Reader
from rbptrack.tracking.record import FILE, Record, artifacts
from rbptrack.version import __version__

_FORMAT = 1
_MANIFEST = "bundle.json"
_NAMES = re.compile(r"[0-9a-f]{64}/(record\.json|ranks\.parquet|histogram\.parquet|figures/[\w.-]+\.png)")
_PRIVATE = ("tracking.", "plugins.", "model.path", "dataset.path")  # where things lie on the exporter's machine


def export(reader: Reader, run_ids: list[str], out: Path, *, tokens: bool) -> None:
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
    record = reader.record(run_id)
    record.params = {k: v for k, v in record.params.items() if not k.startswith(_PRIVATE)}
    (folder / "figures").mkdir()
    for name in reader.artifact_names(run_id):
        if _NAMES.fullmatch(f"{'0' * 64}/{name}") and name != "ranks.parquet":
            (folder / name).write_bytes(reader.artifact(run_id, name).read_bytes())
        elif name == "ranks.parquet":
            table = reader.ranks(run_id)
            (table if tokens else _without_tokens(table)).write(folder / name)
    if not tokens:
        record.tags["rbptrack.tokens"] = "left out"
    record.write(folder)
    return record


def _without_tokens(ranks: RankTable) -> RankTable:
    place = ranks.table.schema.get_field_index("token")
    hidden = pa.array(np.full(len(ranks), -1, dtype=np.int32))
    return RankTable(ranks.table.set_column(place, ranks.table.schema.field(place), hidden), ranks.vocab_size)


@contextmanager
def opened(path: Path) -> Iterator[Iterator[tuple[Record, Path]]]:
    """A bundle's measurements, each with the folder of its artifacts; checked before they are handed out.

    Raises:
        BadInput: the file is no bundle, of a newer format, or damaged; names what is wrong.

    """
    try:
        with zipfile.ZipFile(path) as bundle, tempfile.TemporaryDirectory() as name:
            about = json.loads(bundle.read(_MANIFEST))
            if about["format"] > _FORMAT:
                raise BadInput(
                    f"{path} was written by rbptrack {about['rbptrack']}, in a newer format ({about['format']}, here "
                    f"{_FORMAT}): pip install --upgrade rbptrack"
                )
            yield _measurements(bundle, path, Path(name))
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, EOFError) as error:
        raise BadInput(f"{path} is not a bundle of rbptrack, or damaged: {error}") from error


def _measurements(bundle: zipfile.ZipFile, path: Path, folder: Path) -> Iterator[tuple[Record, Path]]:
    names = [n for n in bundle.namelist() if n != _MANIFEST]
    strange = [n for n in names if not _NAMES.fullmatch(n)]
    if strange:
        raise BadInput(f"{path} holds {strange[0]}, which no bundle does: not imported")
    for fingerprint in dict.fromkeys(n.partition("/")[0] for n in names):
        bundle.extractall(folder, [n for n in names if n.startswith(fingerprint)])
        try:
            yield _checked(folder / fingerprint, fingerprint), folder / fingerprint
        except (KeyError, TypeError, ValueError, OSError, pa.ArrowException, RbptrackError) as error:
            raise BadInput(f"{path}: measurement {fingerprint[:12]} is damaged: {error}") from error


def _checked(folder: Path, fingerprint: str) -> Record:
    record = Record.read(folder)
    if record.fingerprint != fingerprint:
        raise BadInput(f"it calls itself {record.fingerprint[:12]}")
    if (folder / "ranks.parquet").exists():
        found = RankTable.read(folder / "ranks.parquet").histogram()
        told = RankHistogram.read(folder / "histogram.parquet")
        same = np.array_equal(found.rank, told.rank) and np.array_equal(found.count, told.count)
        if not same or abs(found.ce - record.metrics["ce"]) > 1e-6:
            raise BadInput("its ranks do not give its numbers")
    return record
