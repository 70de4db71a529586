"""Writes and reads bundles. A bundle is a zip file with the records and tables of measurements, without code."""

from __future__ import annotations

import errno
import json
import re
import shutil
import stat
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rbptrack.analysis.input_files import parse_json
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, FileAccessError, RbptrackError, file_access_error, first_line
from rbptrack.base.files import check_regular_file, replacing, sha256
from rbptrack.base.formatting import counted
from rbptrack.base.parquet import read_table
from rbptrack.exchange.intake import imported_line
from rbptrack.measurement.build import compute_histogram, faults_of_ranks
from rbptrack.measurement.columns import labels_of
from rbptrack.measurement.files import (
    CONFIG_FILE,
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    MEASUREMENT_FILES,
    RANKS_FILE,
    RECORD_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
)
from rbptrack.measurement.record import MeasurementRecord, parse_measurement, read_measurement
from rbptrack.ranks.prompt_logprobs import TOKEN_ID
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.names import READING_FILE

MAX_UNPACKED_BYTES = 64 * 2**30
"""The largest unpacked size of a bundle, in bytes."""

_MANIFEST = "bundle.json"
_BUNDLED_FILES = {RECORD_FILE, *MEASUREMENT_FILES} - {HISTOGRAM_FILE, CONFIG_FILE}
_ENTRY_NAME = re.compile(rf"[0-9a-f]{{64}}/({'|'.join(map(re.escape, _BUNDLED_FILES))})")
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
_MAX_RATIO = 200  # largest ratio of unpacked to packed size of an entry; tables are already compressed
_MAX_CLOCK_DIFFERENCE = 86_400  # seconds between the clocks of two machines
_MAX_ROWS_OF_SMALL_FILES = 2**16  # a table with more rows must take at least one byte per row
_MAX_ENTRY_BYTES = {RECORD_FILE: 2**24, TOKENS_FILE: 2**30, _MANIFEST: 2**16}
"""The largest unpacked sizes, in bytes, of the entries that are read into memory as a whole."""


def export_bundle(runs: Runs, path: Path, *, reading: str = "") -> int:
    """Write measurements to one bundle, completely or not at all, and return their number.

    A bundle contains the ids and texts of all tokens, so whoever gets it can read the documents. It does not contain
    files that an import can compute, or config.yaml, which holds paths of this machine.

    Args:
        runs: the measurements. They must come from a store.
        path: the bundle.
        reading: the reading page (HTML) to put into the bundle, or empty. An import ignores it.

    Raises:
        BadInput: the path is a link or a folder, or the runs do not come from a store.
        MissingArtifact: a file of a measurement is missing, or was changed after the measurement.

    """
    store = runs.store
    if not isinstance(store, Store):
        raise BadInput("only measurements of a store can be exported as a bundle")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as bundle:
        for run_id, labels in zip(runs["run_id"], labels_of(runs.frame), strict=True):
            with tempfile.TemporaryDirectory() as folder:
                record = _copy_measurement(store, run_id, labels, Path(folder))
                for file in (RECORD_FILE, *sorted(record.files)):
                    bundle.write(Path(folder, file), f"{record.fingerprint}/{file}")
        if reading:
            bundle.writestr(READING_FILE, reading)
        bundle.writestr(_MANIFEST, json.dumps({"format": "rbptrack bundle", "measurements": len(runs)}))
    return len(runs)


def is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle. Raises OSError if the operating system cannot read the file."""
    if not path.is_file():
        return False
    try:
        with _open_bundle(path) as bundle:
            return _MANIFEST in bundle.namelist()
    except BadInput:
        return False


def import_bundle(path: Path, store: Store) -> list[str]:
    """Check all measurements of a bundle, and add those that the store does not have yet: all of them or none.

    The numbers of a measurement are compared with those that its ranks give, and its fingerprint with the hash of its
    identity.

    Returns:
        Lines about the import for the user.

    Raises:
        BadInput: the file is not a bundle, or a measurement in it has a fault. Nothing is imported.
        StoreAway: the store does not answer. If measurements wait in mlruns/cells, the message says how many.

    """
    check_regular_file(path, "import")
    with _open_bundle(path) as bundle:
        fingerprints = _check_entries(bundle, path)
        _check_measurements(bundle, fingerprints, path)
    num_new = 0
    with Outbox(store).delivering_together() as folder_of_import, zipfile.ZipFile(path) as bundle:
        for fingerprint in fingerprints:
            if store.find_equivalent(parse_measurement(bundle.read(f"{fingerprint}/{RECORD_FILE}"))):
                continue
            folder = folder_of_import / fingerprint
            folder.mkdir()
            _unpack(bundle, fingerprint, folder)
            _complete_measurement(folder, path)
            num_new += 1
    return [imported_line(num_new, len(fingerprints))]


@contextmanager
def _open_bundle(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a bundle for a block. Raises BadInput if it is not a zip file, or is damaged."""
    try:
        with zipfile.ZipFile(path) as bundle:
            yield bundle
    except _DAMAGE_ERRORS as error:
        raise BadInput(f"{path} is not a bundle of rbptrack, or is damaged: export it again") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # if the file's beginning is cut off, zipfile seeks to a negative position
            raise
        raise BadInput(f"{path} is damaged because its beginning is missing: export it again") from error


def _copy_measurement(store: Store, run_id: str, labels: Mapping[str, object], folder: Path) -> MeasurementRecord:
    """Copy a measurement's record, and those of its files that a bundle may contain, to a folder. Return the record.

    The record gets the present labels of the run. It does not say in which folder the model is, on this machine or on
    that of its server.
    """
    sealed = store.sealed_measurement(run_id)
    for name in sealed.files:
        path = store.recorded_file(run_id, name, sealed)
        if name in _BUNDLED_FILES:
            shutil.copyfile(path, folder / name)
    measurement = sealed.measurement.updated({**labels, "folder": "", "server": ""})
    record = MeasurementRecord(measurement=measurement, began=sealed.began, ended=sealed.ended)
    record.write(folder)
    return record


def _check_measurements(bundle: zipfile.ZipFile, fingerprints: Sequence[str], path: Path) -> None:
    """Raise BadInput if measurements of a bundle have faults. The message lists at most ten faults."""
    faults = []
    for fingerprint in fingerprints:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            _unpack(bundle, fingerprint, folder)
            for fault in _faults_of_measurement(folder, fingerprint):
                faults.append(f"measurement {fingerprint[:12]}: {fault}")
    if faults:
        raise BadInput("\n  ".join([f"{path} is not imported:", *faults[:10]]))


def _complete_measurement(folder: Path, bundle: Path) -> None:
    """Add the histogram and the name of the bundle to a checked measurement in a folder."""
    record = read_measurement(folder)
    values = {"imported": record.measurement.imported or "bundle", "imported_from": bundle.name, "forced": False}
    if RANKS_FILE in record.files:
        compute_histogram(folder / RANKS_FILE).write(folder / HISTOGRAM_FILE)
    measurement = record.measurement.updated(values)
    MeasurementRecord(measurement=measurement, began=record.began, ended=record.ended).write(folder)


def _faults_of_measurement(folder: Path, fingerprint: str) -> Iterator[str]:
    """Yield a sentence for each fault of an unpacked measurement.

    Raises OSError or FileAccessError if the operating system cannot read a file of the folder.

    Args:
        folder: the folder with the measurement's record and files.
        fingerprint: the fingerprint in the name of the bundle's folder.

    """
    try:
        record = read_measurement(folder)
    except FileNotFoundError:
        yield f"{RECORD_FILE} is missing"
        return
    except RbptrackError as error:
        yield first_line(error)
        return
    measurement = record.measurement
    if record.fingerprint != fingerprint:
        yield "its fingerprint is not the hash of what its record says"
    if not 0 < record.began <= record.ended < time.time() + _MAX_CLOCK_DIFFERENCE:
        yield "it must begin before it ends, and must not end in the future"
    present = {path.name for path in folder.iterdir()} - {RECORD_FILE}
    for name in sorted(set(record.files) ^ present):
        yield f"{name[:60]} is missing, or the record does not list it"
    for name in sorted(set(record.files) & present):
        if sha256(folder / name) != record.files[name]:
            yield f"{name} is damaged"
    if (RANKS_FILE in present) == measurement.without_ranks:
        yield f"{RANKS_FILE} is missing, or is present although the measurement has no ranks"
        return
    try:
        for name in sorted(present & {RANKS_FILE, DOCUMENTS_FILE, UNSCORED_FILE}):
            _check_size(folder / name)
        if UNSCORED_FILE in present:
            _check_unscored(read_table(folder / UNSCORED_FILE))
        if TOKENS_FILE in present:
            _check_tokens(parse_json((folder / TOKENS_FILE).read_bytes(), TOKENS_FILE))
        if RANKS_FILE in present:
            yield from faults_of_ranks(measurement, folder)
    except FileAccessError:
        raise
    except (RbptrackError, ValueError, RecursionError) as error:
        yield first_line(error).replace(f"{folder}/", "")


def _check_size(path: Path) -> None:
    """Raise RbptrackError if a file is not a table, or has more rows than bytes.

    Parquet stores billions of equal values in a few bytes. If such a table were read, it would fill the memory.
    """
    try:
        rows = pq.read_metadata(path).num_rows
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        raise file_access_error(error, path) or RbptrackError(f"{path.name} is not a Parquet file") from error
    size = path.stat().st_size
    if rows > max(size, _MAX_ROWS_OF_SMALL_FILES):
        raise RbptrackError(f"{path.name} holds {rows:,} rows in {size:,} bytes, which is not plausible")


def _check_unscored(table: pa.Table) -> None:
    """Raise RbptrackError if the table of tokens that were not scored lacks a column or has a wrong value."""
    for name in ("document", "position", "token"):
        if name not in table.column_names or not pa.types.is_integer(table.schema.field(name).type):
            raise RbptrackError(f"{UNSCORED_FILE} lacks the column {name}, or it does not hold whole numbers")
        if table.column(name).null_count or (len(table) and pc.min(table.column(name)).as_py() < 0):
            raise RbptrackError(f"{UNSCORED_FILE}: the column {name} must hold numbers from 0, and no empty cells")


def _check_tokens(texts: Any) -> None:
    """Raise RbptrackError if the texts of tokens are not a mapping of token ids to texts."""
    if not isinstance(texts, dict) or not all(
        TOKEN_ID.fullmatch(token_id) and isinstance(text, str) for token_id, text in texts.items()
    ):
        raise RbptrackError(f"{TOKENS_FILE} must be a JSON object with a text for each token id")
    try:
        # A token may hold only a part of a character. Each byte of the part is a lone surrogate.
        "".join(texts.values()).encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise RbptrackError(f"{TOKENS_FILE}: a text has a character that cannot be encoded as UTF-8") from error


def _check_entries(bundle: zipfile.ZipFile, path: Path) -> list[str]:
    """Check the entries of a bundle, and return the fingerprints of its measurements.

    Raises BadInput if an entry is not allowed or unpacks to too many bytes, or if measurements are missing.
    """
    entries = bundle.infolist()
    names = [entry.filename for entry in entries]
    if _MANIFEST not in names:
        raise BadInput(f"{path} is not a bundle of rbptrack: it has no {_MANIFEST}")
    for entry in entries:
        _check_entry(entry, path)
        if names.count(entry.filename) > 1:
            raise BadInput(f"{path} has the entry {entry.filename[:100]!r} twice: nothing is imported")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_UNPACKED_BYTES:
        raise BadInput(f"{path} would unpack to {total:,} bytes; at most {MAX_UNPACKED_BYTES:,} are allowed")
    fingerprints = list(dict.fromkeys(name.partition("/")[0] for name in names if "/" in name))
    if not fingerprints:
        raise BadInput(f"{path} has no measurements")
    manifest = parse_json(bundle.read(_MANIFEST), f"{path}, {_MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("measurements") != len(fingerprints):
        raise BadInput(
            f"{path} is damaged: it has {counted(len(fingerprints), 'measurement')}, but {_MANIFEST} says another "
            "number. Export it again"
        )
    return fingerprints


def _check_entry(entry: zipfile.ZipInfo, path: Path) -> None:
    """Raise BadInput if a bundle must not have an entry: if it is unknown, a link, encrypted or too large."""
    is_known = entry.filename in (_MANIFEST, READING_FILE) or _ENTRY_NAME.fullmatch(entry.filename)
    is_link = stat.S_ISLNK(entry.external_attr >> 16)  # the upper 16 bits hold the Unix mode
    is_encrypted = entry.flag_bits & 1
    if not is_known or is_link or is_encrypted or entry.compress_type not in _COMPRESSIONS:
        raise BadInput(f"{path} has the entry {entry.filename[:100]!r}, which is not allowed: nothing is imported")
    max_bytes = min(
        _MAX_ENTRY_BYTES.get(entry.filename.rpartition("/")[2], MAX_UNPACKED_BYTES),
        _MAX_RATIO * max(entry.compress_size, 2**16),
    )
    if entry.file_size > max_bytes:
        raise BadInput(
            f"{path}: {entry.filename[:80]} would unpack to {entry.file_size:,} bytes; {max_bytes:,} are allowed"
        )


def _unpack(bundle: zipfile.ZipFile, fingerprint: str, folder: Path) -> None:
    """Unpack a measurement of a bundle to a folder."""
    for entry in bundle.infolist():
        folder_in_bundle, _, file = entry.filename.partition("/")
        if folder_in_bundle == fingerprint:
            with bundle.open(entry) as source, (folder / file).open("wb") as target:
                shutil.copyfileobj(source, target)  # zipfile reads at most the size that was checked
