"""Read the zip file of a bundle. Nothing is unpacked before the names and sizes of all entries are checked."""

from __future__ import annotations

import errno
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rbptrack.analysis.input_files import parse_json
from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import counted
from rbptrack.measurement.files import CONFIG_FILE, HISTOGRAM_FILE, MEASUREMENT_FILES, RECORD_FILE, TOKENS_FILE
from rbptrack.tracking.names import READING_FILE

MANIFEST = "bundle.json"
"""The name of the entry that says how many measurements a bundle has."""

BUNDLED_FILES = {RECORD_FILE, *MEASUREMENT_FILES} - {HISTOGRAM_FILE, CONFIG_FILE}
"""The files of a measurement that a bundle may contain."""

MAX_UNPACKED_BYTES = 64 * 2**30
"""The largest unpacked size of a bundle, in bytes."""

_ENTRY_NAME = re.compile(rf"[0-9a-f]{{64}}/({'|'.join(map(re.escape, BUNDLED_FILES))})")
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
_MAX_RATIO = 200  # largest ratio of unpacked to packed size of an entry; tables are already compressed
_MAX_ENTRY_BYTES = {RECORD_FILE: 2**24, TOKENS_FILE: 2**30, MANIFEST: 2**16}
"""The largest unpacked sizes, in bytes, of the entries that are read into memory as a whole."""


def is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle. Raises OSError if the operating system cannot read the file."""
    if not path.is_file():
        return False
    try:
        with _opened(path) as bundle:
            return MANIFEST in bundle.namelist()
    except BadInput:
        return False


def unpack_bundle(path: Path, folder: Path) -> list[str]:
    """Check the names and sizes of a bundle's entries, and unpack each measurement to a subfolder of a folder.

    Returns the fingerprints of the measurements, which are also the names of the subfolders.

    Raises BadInput if the file is not a bundle or is damaged, if an entry is not allowed or unpacks to too many bytes,
    or if measurements are missing.
    """
    with _opened(path) as bundle:
        fingerprints = _check_entries(bundle, path)
        for fingerprint in fingerprints:
            (folder / fingerprint).mkdir()
        for entry in bundle.infolist():
            if "/" in entry.filename:
                with bundle.open(entry) as source, (folder / entry.filename).open("wb") as target:
                    shutil.copyfileobj(source, target)  # zipfile reads at most the size that was checked
    return fingerprints


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for a block that reads it. Raises BadInput if it is not a zip file, or is damaged."""
    try:
        with zipfile.ZipFile(path) as bundle:
            yield bundle
    except _DAMAGE_ERRORS as error:
        raise BadInput(f"{path} is not a bundle of rbptrack, or is damaged: export it again") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # if the file's beginning is cut off, zipfile seeks to a negative position
            raise
        raise BadInput(f"{path} is damaged because its beginning is missing: export it again") from error


def _check_entries(bundle: zipfile.ZipFile, path: Path) -> list[str]:
    """Check the entries of a bundle, and return the fingerprints of its measurements.

    Raises BadInput if an entry is not allowed or unpacks to too many bytes, or if measurements are missing.
    """
    entries = bundle.infolist()
    names = [entry.filename for entry in entries]
    if MANIFEST not in names:
        raise BadInput(f"{path} is not a bundle of rbptrack: it has no {MANIFEST}")
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
    manifest = parse_json(bundle.read(MANIFEST), f"{path}, {MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("measurements") != len(fingerprints):
        raise BadInput(
            f"{path} is damaged: it has {counted(len(fingerprints), 'measurement')}, but {MANIFEST} says another "
            "number. Export it again"
        )
    return fingerprints


def _check_entry(entry: zipfile.ZipInfo, path: Path) -> None:
    """Raise BadInput if a bundle must not have an entry: if it is unknown, a link, encrypted or too large."""
    is_known = entry.filename in (MANIFEST, READING_FILE) or _ENTRY_NAME.fullmatch(entry.filename)
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
