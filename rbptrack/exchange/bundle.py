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
from rbptrack.base.errors import BadInput, first_line
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

LARGEST = 64 * 2**30
"""The largest unpacked size of a bundle, in bytes."""

_MANIFEST = "bundle.json"
_BUNDLED_FILES = (RECORD_FILE, RANKS_FILE, DOCUMENTS_FILE, UNSCORED_FILE, TOKENS_FILE)
_ENTRY_NAME = re.compile(rf"[0-9a-f]{{64}}/({'|'.join(map(re.escape, _BUNDLED_FILES))})")
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
_MAX_RATIO = 200  # largest ratio of unpacked to packed size of an entry; the tables in it are compressed already
_LARGEST_ENTRIES = {RECORD_FILE: 2**24, TOKENS_FILE: 2**30, _MANIFEST: 2**16}
"""The largest sizes, in bytes, of the entries that are read into memory as a whole."""


def export_bundle(runs: Runs, path: Path, *, reading: str = "") -> int:
    """Write measurements to one file, completely or not at all, and return their number.

    A bundle holds the ids and texts of the tokens, so its readers can read the documents. It leaves out files that an
    import can compute, and config.yaml, which contains paths of this machine.

    Args:
        runs: the measurements. They must come from a store.
        path: the bundle.
        reading: a reading page to add for readers, or empty. An import ignores it.

    Raises:
        BadInput: the path is a link or a folder, or the runs do not come from a store.
        MissingArtifact: a file of a measurement is missing, or was changed after the measurement.

    """
    store = runs.store
    if not isinstance(store, Store):
        raise BadInput("only measurements of a store can be exported as a bundle")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as bundle:
        for run_id in runs["run_id"]:
            with tempfile.TemporaryDirectory() as name:
                record = _copy_to_folder(store, run_id, Path(name))
                for file in (RECORD_FILE, *sorted(record.files)):
                    bundle.write(Path(name, file), f"{record.fingerprint}/{file}")
        if reading:
            bundle.writestr(READING_FILE, reading)
        bundle.writestr(_MANIFEST, json.dumps({"format": "rbptrack bundle", "measurements": len(runs)}))
    return len(runs)


def is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as bundle:
            return _MANIFEST in bundle.namelist()
    except (*_DAMAGE_ERRORS, OSError):
        return False


def import_bundle(path: Path, store: Store) -> list[str]:
    """Check all measurements of a bundle, and add those that the store does not have yet.

    CE, RBP_k, the curve and the fingerprint are computed again and compared. The histogram is computed from the ranks.

    Returns:
        Lines about the import for the user.

    Raises:
        BadInput: the file is not a bundle, has entries that a bundle does not have, or has numbers that disagree with
            its ranks. Nothing is imported.
        StoreAway: the store does not answer. Run the command again later to complete the import.

    """
    check_regular_file(path, "import")
    with _open_bundle(path) as bundle:
        fingerprints = _check_entries(bundle, path)
        _check_measurements(bundle, fingerprints, path)
    new = 0
    with zipfile.ZipFile(path) as bundle:
        for fingerprint in fingerprints:
            if store.find_same(Record.parse(bundle.read(f"{fingerprint}/{RECORD_FILE}"))):
                continue
            with _unpack(bundle, fingerprint) as folder:
                _complete_measurement(folder, path)
                Outbox(store).deliver(folder, keep=True)
            new += 1
    return [imported_line(new, len(fingerprints))]


@contextmanager
def _open_bundle(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for a block. Raises BadInput if it is damaged."""
    try:
        with zipfile.ZipFile(path) as bundle:
            yield bundle
    except _DAMAGE_ERRORS as error:
        raise BadInput(f"{path} is not a bundle of rbptrack, or damaged: {first_line(error)[:200]}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # if the file's beginning is cut off, zipfile seeks to a negative position
            raise
        raise BadInput(f"{path} is not a bundle of rbptrack, or damaged: its beginning is missing") from error


def _copy_to_folder(store: Store, run_id: str, folder: Path) -> Record:
    """Copy a measurement's record and the files that a bundle may hold to a folder. Return the record."""
    record = store.sealed_record(run_id)  # in the bundle the record gets another seal, because it lists fewer files
    for name in record.files:
        if name in _BUNDLED_FILES:
            shutil.copyfile(store.artifact(run_id, name), folder / name)
    record.write(folder)
    return record


def _check_measurements(bundle: zipfile.ZipFile, fingerprints: Sequence[str], path: Path) -> None:
    """Raise BadInput, with up to ten faults, if the content of a measurement in a bundle is wrong."""
    faults = []
    for fingerprint in fingerprints:
        with _unpack(bundle, fingerprint) as folder:
            for fault in faults_of_measurement(folder, fingerprint):
                faults.append(f"measurement {fingerprint[:12]}: {fault}")
    if faults:
        raise BadInput("\n  ".join([f"{path} is not imported:", *faults[:10]]))


def _complete_measurement(folder: Path, source: Path) -> None:
    """Add the histogram, the curve and the name of the bundle to a checked measurement in a folder."""
    record = Record.read(folder)
    record.tags.setdefault(Tag.IMPORTED, "bundle")
    record.tags[Tag.IMPORTED_FROM] = source.name
    record.tags.pop(Tag.FORCED, None)
    if RANKS_FILE in record.files:
        histogram = compute_histogram(folder / RANKS_FILE)
        record.curves = {Metric.RBP_CURVE: rbp_curve(histogram)}
        histogram.write(folder / HISTOGRAM_FILE)
    record.write(folder)


def _check_entries(bundle: zipfile.ZipFile, path: Path) -> list[str]:
    """Check the names, kinds and sizes of a bundle's entries. Return the fingerprints of its measurements.

    Raises BadInput if there is an unknown, repeated, encrypted, linked or oversized entry, or no measurement.
    """
    entries = bundle.infolist()
    names = [entry.filename for entry in entries]
    if _MANIFEST not in names:
        raise BadInput(f"{path} is not a bundle of rbptrack: it holds no {_MANIFEST}")
    for entry in entries:
        known = entry.filename in (_MANIFEST, READING_FILE) or _ENTRY_NAME.fullmatch(entry.filename)
        link = stat.S_ISLNK(entry.external_attr >> 16)  # a Unix mode is in the upper half
        encrypted = entry.flag_bits & 1
        plain = not link and not encrypted and entry.compress_type in _COMPRESSIONS
        if not known or not plain or names.count(entry.filename) > 1:
            raise BadInput(
                f"{path} holds {entry.filename[:100]!r}, which is not allowed in a bundle: nothing is imported"
            )
        largest = min(
            _LARGEST_ENTRIES.get(entry.filename.rpartition("/")[2], LARGEST),
            _MAX_RATIO * max(entry.compress_size, 2**16),
        )
        if entry.file_size > largest:
            raise BadInput(
                f"{path}: {entry.filename[:80]} would unpack to {entry.file_size:,} bytes; at most {largest:,} are "
                "allowed"
            )
    total = sum(entry.file_size for entry in entries)
    if total > LARGEST:
        raise BadInput(f"{path} would unpack to {total:,} bytes; at most {LARGEST:,} are allowed")
    fingerprints = list(dict.fromkeys(name.partition("/")[0] for name in names if "/" in name))
    if not fingerprints:
        raise BadInput(f"{path} holds no measurement")
    manifest = parse_json(bundle.read(_MANIFEST), f"{path}, {_MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("measurements") != len(fingerprints):
        raise BadInput(
            f"{path} holds {counted(len(fingerprints), 'measurement')}, but its {_MANIFEST} has another number: it is "
            "damaged"
        )
    return fingerprints


@contextmanager
def _unpack(bundle: zipfile.ZipFile, fingerprint: str) -> Iterator[Path]:
    """Unpack a measurement of a bundle to a temporary folder, which is deleted when the block ends."""
    with tempfile.TemporaryDirectory() as name:
        for entry in bundle.infolist():
            folder, _, file = entry.filename.partition("/")
            if folder == fingerprint:
                with bundle.open(entry) as source, Path(name, file).open("wb") as target:
                    shutil.copyfileobj(source, target)  # zipfile reads at most the size that was checked
        yield Path(name)
