"""Writes and reads bundles. A bundle is a zip file with the records and tables of measurements, without code."""

from __future__ import annotations

import errno
import json
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rbptrack.analysis.input_files import parse_json
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput
from rbptrack.base.files import check_regular_file, replacing
from rbptrack.base.formatting import counted
from rbptrack.exchange.contents import faults_of_measurement
from rbptrack.exchange.intake import imported_line
from rbptrack.tracking import Outbox, Record, Store
from rbptrack.tracking.names import (
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    RANKS_FILE,
    READING_FILE,
    RECORD_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
    Metric,
    Tag,
)
from rbptrack.tracking.record import compute_histogram, rbp_curve

MAX_UNPACKED_BYTES = 64 * 2**30
"""The largest unpacked size of a bundle, in bytes."""

_MANIFEST = "bundle.json"
_BUNDLED_FILES = (RECORD_FILE, RANKS_FILE, DOCUMENTS_FILE, UNSCORED_FILE, TOKENS_FILE)
_ENTRY_NAME = re.compile(rf"[0-9a-f]{{64}}/({'|'.join(map(re.escape, _BUNDLED_FILES))})")
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
_MAX_RATIO = 200  # largest ratio of unpacked to packed size of an entry; tables are already compressed
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
        for run_id in runs["run_id"]:
            with tempfile.TemporaryDirectory() as folder:
                record = _copy_measurement(store, run_id, Path(folder))
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
    """Check all measurements of a bundle, and add those that the store does not have yet.

    The numbers of a measurement are compared with those that its ranks give, and its fingerprint with the hash of its
    identity.

    Returns:
        Lines about the import for the user.

    Raises:
        BadInput: the file is not a bundle, or a measurement in it has a fault. Nothing is imported.
        StoreAway: the store does not answer. The measurements that it already got stay there.

    """
    check_regular_file(path, "import")
    with _open_bundle(path) as bundle:
        fingerprints = _check_entries(bundle, path)
        _check_measurements(bundle, fingerprints, path)
    num_new = 0
    with zipfile.ZipFile(path) as bundle:
        for fingerprint in fingerprints:
            if store.find_equivalent(Record.parse(bundle.read(f"{fingerprint}/{RECORD_FILE}"))):
                continue
            with _unpack(bundle, fingerprint) as folder:
                _complete_measurement(folder, path)
                Outbox(store).deliver(folder, keep_folder=True)
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


def _copy_measurement(store: Store, run_id: str, folder: Path) -> Record:
    """Copy a measurement's record, and those of its files that a bundle may contain, to a folder. Return the record."""
    record = store.sealed_record(run_id)  # in the bundle the record gets another seal, because it lists fewer files
    for name in record.files:
        path = store.recorded_file(run_id, name, record)
        if name in _BUNDLED_FILES:
            shutil.copyfile(path, folder / name)
    record.write(folder)
    return record


def _check_measurements(bundle: zipfile.ZipFile, fingerprints: Sequence[str], path: Path) -> None:
    """Raise BadInput if measurements of a bundle have faults. The message lists at most ten faults."""
    faults = []
    for fingerprint in fingerprints:
        with _unpack(bundle, fingerprint) as folder:
            for fault in faults_of_measurement(folder, fingerprint):
                faults.append(f"measurement {fingerprint[:12]}: {fault}")
    if faults:
        raise BadInput("\n  ".join([f"{path} is not imported:", *faults[:10]]))


def _complete_measurement(folder: Path, bundle: Path) -> None:
    """Add the histogram, the curve and the name of the bundle to a checked measurement in a folder."""
    record = Record.read(folder)
    record.tags.setdefault(Tag.IMPORTED, "bundle")
    record.tags[Tag.IMPORTED_FROM] = bundle.name
    record.tags.pop(Tag.FORCED, None)
    if RANKS_FILE in record.files:
        histogram = compute_histogram(folder / RANKS_FILE)
        record.curves = {Metric.RBP_CURVE: rbp_curve(histogram)}
        histogram.write(folder / HISTOGRAM_FILE)
    record.write(folder)


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


@contextmanager
def _unpack(bundle: zipfile.ZipFile, fingerprint: str) -> Iterator[Path]:
    """Unpack a measurement of a bundle to a temporary folder, which is deleted when the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in bundle.infolist():
            folder_in_bundle, _, file = entry.filename.partition("/")
            if folder_in_bundle == fingerprint:
                with bundle.open(entry) as source, Path(folder, file).open("wb") as target:
                    shutil.copyfileobj(source, target)  # zipfile reads at most the size that was checked
        yield Path(folder)
