"""Opening a bundle that somebody else made: what may be in the file, how much of it, and what it must say."""

from __future__ import annotations

import errno
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rbptrack.base import limits
from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.exchange.contents import check
from rbptrack.exchange.faults import Faults
from rbptrack.tracking.record import Record
from rbptrack.tracking.rules import MeasurementRow, OrNone, faults, shown
from rbptrack.tracking.schema import Tag

FORMAT = 2
"""1: without the texts of tokens, which every version reads; 2: with them."""

MANIFEST = "bundle.json"
NAMES = re.compile(
    r"[0-9a-f]{64}/(record\.json|tokens\.json|ranks\.parquet|histogram\.parquet|figures/[\w-][\w.-]{0,100}\.png)"
)

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LINK = 0o120000


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    format: OrNone
    rbptrack: str
    measurements: OrNone | None = None


class Bundle:
    """A bundle, opened for reading; a context manager.

    Nothing of it is trusted: entries have the names that bundles have and no others, no links, no encryption; sizes
    are bounded before anything is unpacked.

    Raises:
        BadInput: it is no bundle, of a newer format, or holds what no bundle does.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise BadInput(f"{path} is not a bundle of rbptrack, or damaged: {first_line(error)}") from error
        try:
            self._entries = self._checked_entries()
            self._check_manifest()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    @property
    def fingerprints(self) -> list[str]:
        """Of its measurements, in the order of the file."""
        return list(dict.fromkeys(name.partition("/")[0] for name in self._entries if name != MANIFEST))

    def check(self, folder: Path, rules: type[MeasurementRow]) -> None:
        """Unpack and check one measurement after the other; BadInput names those that are wrong, and how."""
        faults = Faults(self.path)
        for fingerprint in self.fingerprints:
            try:
                with self.unpacked(fingerprint, folder) as own:
                    check(own, fingerprint, rules, faults)
            except RbptrackError as error:
                faults.add(f"measurement {fingerprint[:12]}", str(error))
        faults.refuse()

    @contextmanager
    def unpacked(self, fingerprint: str, folder: Path) -> Iterator[Path]:
        """Unpack a measurement into its own folder, for as long as the block; BadInput where an entry is damaged."""
        own = folder / fingerprint
        try:
            for name, entry in self._entries.items():
                if name.startswith(f"{fingerprint}/"):
                    self._unpack(entry, folder / name)
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def record(self, own: Path) -> Record:
        """Return the record of an unpacked measurement that passed `check`."""
        record = Record.read(own)
        record.tags[Tag.RECORD] = record.fingerprint[:32]  # ours to choose: a run is found by it
        before = record.tags.get(Tag.IMPORTED, "")
        before = before.partition(", ")[2] if before.startswith("bundle: ") else before
        record.tags[Tag.IMPORTED] = f"bundle: {self.path.name.replace(', ', ' ')}" + (f", {before}" if before else "")
        return record

    def _unpack(self, entry: zipfile.ZipInfo, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._zip.open(entry) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)  # never more than the size that was checked
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise BadInput(f"{target.name} is damaged: {first_line(error)}") from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # such as a full disk
                raise
            raise BadInput(f"{target.name} is damaged: its place in the file cannot be") from error

    def _checked_entries(self) -> dict[str, zipfile.ZipInfo]:
        """Return the entries by name; BadInput for one that no bundle has, or for more than one may hold."""
        listed = self._zip.infolist()
        if len(listed) > limits.ENTRIES:
            raise BadInput(f"{self.path} has {len(listed):,} entries; a bundle has at most {limits.ENTRIES:,}")
        entries: dict[str, zipfile.ZipInfo] = {}
        of_one: dict[str, int] = {}
        for entry in listed:
            name = entry.filename
            if name != MANIFEST and not NAMES.fullmatch(name):
                raise BadInput(f"{self.path} holds {shown(name)}, which no bundle does: not imported")
            if name in entries:
                raise BadInput(f"{self.path} holds {name} twice: not imported")
            if reason := _refused(entry):
                raise BadInput(f"{self.path}: {name} {reason}: not imported")
            entries[name] = entry
            folder = name.partition("/")[0]
            of_one[folder] = of_one.get(folder, 0) + 1
            if of_one[folder] > limits.ENTRIES_OF_ONE:
                raise BadInput(
                    f"{self.path}: measurement {folder[:12]} has more than {limits.ENTRIES_OF_ONE} files: not imported"
                )
        unpacked = sum(e.file_size for e in listed)
        packed = sum(e.compress_size for e in listed)
        if unpacked > limits.BYTES_OF_BUNDLE or packed > self.path.stat().st_size:
            raise BadInput(f"{self.path} would unpack to {unpacked:,} bytes, or its entries overlap: not imported")
        if MANIFEST not in entries:
            raise BadInput(f"{self.path} is not a bundle of rbptrack: it holds no {MANIFEST}")
        return entries

    def _check_manifest(self) -> None:
        try:
            about = _Manifest.model_validate_json(self._zip.read(self._entries[MANIFEST]))
        except ValidationError as error:
            text = "; ".join(f"{key} {fault}".strip() for key, fault in faults(error))
            raise BadInput(f"{self.path} is not a bundle of rbptrack, or damaged: {MANIFEST}: {text}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise BadInput(f"{self.path} is not a bundle of rbptrack, or damaged: {first_line(error)}") from error
        if about.format > FORMAT:
            raise BadInput(
                f"{self.path} was written by rbptrack {about.rbptrack[:40]}, in a newer format ({about.format}, here "
                f"{FORMAT}): pip install --upgrade rbptrack"
            )
        count = len(self.fingerprints)
        if not count:
            raise BadInput(f"{self.path} holds no measurement: nothing to import")
        if about.measurements is not None and about.measurements != count:
            raise BadInput(f"{self.path} should hold {about.measurements} measurements, and holds {count}")


def _refused(entry: zipfile.ZipInfo) -> str:
    """Say why an entry is not unpacked; empty if it may be."""
    most = limits.BYTES[entry.filename.rpartition(".")[2]]
    if entry.flag_bits & 1:
        return "is encrypted"
    if entry.external_attr >> 16 & 0o170000 == _LINK:
        return "is a link"
    if entry.compress_type not in _METHODS:
        return f"is compressed by method {entry.compress_type}, which bundles do not use"
    if entry.file_size > most:
        return f"would unpack to {entry.file_size:,} bytes; at most {most:,} are allowed"
    if limits.out_of_proportion(entry.file_size, entry.compress_size):
        return f"would unpack to {entry.file_size // max(entry.compress_size, 1):,} times its size"
    return ""
