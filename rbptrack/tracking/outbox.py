"""Deliver finished measurements from folders on this disk to a store."""

from __future__ import annotations

import json
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from rbptrack.base.errors import (
    BadInput,
    FileAccessError,
    MissingArtifact,
    RbptrackError,
    StoreAway,
    file_access_error,
    first_line,
)
from rbptrack.base.files import read_regular, sha256, sync, sync_tree, write_whole
from rbptrack.base.formatting import counted, short_path
from rbptrack.config.paths import cells_folder, mlruns_folder
from rbptrack.measurement.files import RECORD_FILE, SEAL_FILE
from rbptrack.measurement.record import MeasurementRecord, parse_measurement, read_measurement, read_record, record_seal
from rbptrack.tracking.names import STORE_FILE
from rbptrack.tracking.picture import draw_picture
from rbptrack.tracking.store import Store

_MAX_REFUSED = 3  # after so many folders that the store refused, one after the other, the rest is not tried
_DELIVERED_SUFFIX = ".delivered"  # a delivered folder has this suffix while it is being removed
_IMPORT_SUFFIX = ".import"  # of a folder in mlruns/cells with the waiting measurements of one import
_UNFINISHED_SUFFIX = ".unfinished"  # of such a folder while the import writes it


@dataclass(frozen=True)
class Delivery:
    """The result of an attempt to deliver a measurement.

    Attributes:
        name: the name of the measurement, or the beginning of its fingerprint.
        run_id: the ID of the run; empty if the measurement could not be delivered.
        error: why it could not be delivered; empty if it was delivered.

    """

    name: str
    run_id: str
    error: str = ""

    def line(self) -> str:
        """Return the line about this delivery that the terminal shows."""
        if self.error:
            return f"{self.name} was not sent to the tracking store and stays on this disk: {self.error}"
        return f"{self.name}: delivered"


class Outbox:
    """The finished measurements in mlruns/cells that wait for one store.

    Args:
        store: the tracking store.

    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def write_address(self, folder: Path) -> None:
        """Write the store's address to a file in a cell's folder. Later commands deliver the folder to this store."""
        write_whole(folder / STORE_FILE, json.dumps(self._store_address))

    def add_copy(self, folder: Path) -> None:
        """Copy the folder of a finished measurement to mlruns/cells. The next command delivers it to this store."""
        waiting = cells_folder() / folder.name
        waiting.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(waiting.with_name(f"{waiting.name}.lock")):
            if (waiting / RECORD_FILE).exists():
                return
            shutil.copytree(folder, waiting, ignore=shutil.ignore_patterns(RECORD_FILE), dirs_exist_ok=True)
            self.write_address(waiting)
            sync_tree(waiting)
            # The record is written last, because a folder with a record counts as complete.
            write_whole(waiting / RECORD_FILE, (folder / RECORD_FILE).read_bytes())

    @contextmanager
    def delivering_together(self) -> Iterator[Path]:
        """Yield an empty folder for the measurements of an import, and deliver all of them or none.

        The block writes a subfolder for each measurement, named by its fingerprint. Until the block ends, nothing is
        delivered. Then the folder is renamed in one step. From now on its measurements wait for the store, and those
        that are not delivered now are delivered by the next command.

        Raises:
            StoreAway: the store does not answer. If measurements wait, the message says how many.
            StoreRefuses: the store does not let this user write. If measurements wait, the message says how many.

        """
        cells = cells_folder()
        cells.mkdir(parents=True, exist_ok=True)
        _remove_leftovers()
        name = secrets.token_hex(8)
        unfinished = cells / f"{name}{_UNFINISHED_SUFFIX}"
        waiting = cells / f"{name}{_IMPORT_SUFFIX}"
        with _lock_of_import(unfinished):
            unfinished.mkdir()
            try:
                yield unfinished
                folders = sorted(unfinished.iterdir())
                if not folders:
                    return
                self.store.check_writable()
                for folder in folders:
                    self.write_address(folder)
                sync(unfinished)
                unfinished.rename(waiting)
                sync(cells)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        for num_delivered, folder in enumerate(folders):
            try:
                with FileLock(waiting / f"{folder.name}.lock"):
                    self.deliver(waiting / folder.name)
            except RbptrackError as error:
                num_waiting = counted(len(folders) - num_delivered, "measurement")
                raise type(error)(f"{error}; {num_waiting} of the import waiting on this disk for sync") from error
        shutil.rmtree(waiting, ignore_errors=True)

    def deliver(self, folder: Path) -> str:
        """Log a finished measurement as a run, and remove its folder.

        If the store already has an equivalent finished run (`Store.log`), no second run is created. A folder that waits
        for another store is logged to this store as well, but stays in its place.

        Args:
            folder: the folder with record.json and the files that it names.

        Returns:
            The ID of the new or the existing run.

        Raises:
            MissingArtifact: the folder is damaged.
            FileAccessError: the operating system cannot read a file of the folder.
            StoreAway: the store does not answer.
            StoreRefuses: the store does not let this user write.

        """
        address = _read_address(folder)
        waits_for_other_store = address not in (None, self._store_address)
        if folder.exists() and address is None:
            self.write_address(folder)
        pictures = draw_picture(folder)
        with self.store.connection.write_lock():
            if not folder.exists() and (run_id := self.store.find(folder.name)):  # another process was faster
                return run_id
            record, seal = _read_checked_record(folder)
            run_id = self.store.log(folder, record, seal, pictures)
            if not waits_for_other_store:
                _remove_delivered(folder)
        return run_id

    def waiting_folders(self) -> list[Path]:
        """Return the folders of finished measurements that wait for this store."""
        return [folder for folder in _finished_folders() if _read_address(folder) == self._store_address]

    def without_address(self) -> list[Delivery]:
        """Return the finished measurements whose file with the store's address is missing or damaged."""
        error = (
            f"its file {STORE_FILE}, which names the store, is missing or damaged. Measure or import it again: "
            "the same command then delivers the measurement"
        )
        return [Delivery(short_path(folder), "", error) for folder in _finished_folders() if not _read_address(folder)]

    def count_waiting_elsewhere(self) -> dict[tuple[str, str], int]:
        """Count the finished measurements in mlruns/cells that wait for other stores, by address and experiment."""
        counts: Counter[tuple[str, str]] = Counter()
        for folder in _finished_folders():
            address = _read_address(folder)
            if address and address != self._store_address:
                counts[address.get("uri", ""), address.get("experiment", "")] += 1
        return counts

    def deliver_waiting(self) -> list[Delivery]:
        """Deliver every folder that waits for this store. Folders that another process has locked are skipped.

        If a folder cannot be delivered, the others are delivered. Only if the store does not answer, or if it refuses
        several folders one after the other, the rest is not tried.
        """
        _remove_leftovers()
        deliveries: list[Delivery] = []
        num_refused = 0  # one after the other
        for folder in self.waiting_folders():
            with suppress(Timeout, FileNotFoundError), FileLock(folder.with_name(f"{folder.name}.lock"), timeout=0):
                delivery = Delivery(_read_name(folder), "", deliveries[-1].error if num_refused >= _MAX_REFUSED else "")
                if not delivery.error:
                    try:
                        delivery = replace(delivery, run_id=self.deliver(folder))
                        num_refused = 0
                    except RbptrackError as error:
                        delivery = replace(delivery, error=first_line(error))
                        if not isinstance(error, MissingArtifact | FileAccessError):  # files on this disk
                            num_refused += _MAX_REFUSED if isinstance(error, StoreAway) else 1
                deliveries.append(delivery)
        _remove_leftovers()
        return deliveries

    @property
    def _store_address(self) -> dict[str, str]:
        """The address of the store as it is written to folders.

        If the store is a SQLite file next to `mlruns`, the address has no path. The file and `mlruns` can therefore be
        moved together.
        """
        uri = self.store.shown_address.rstrip("/")
        database = self.store.connection.database
        if database and database.parent == mlruns_folder().parent:
            uri = f"sqlite:///{database.name}"
        return {"uri": uri, "experiment": self.store.experiment}


def _read_name(folder: Path) -> str:
    """Return the name of the measurement in a folder. If it cannot be read, return the beginning of its fingerprint.

    Raises FileNotFoundError if another process has removed the record.
    """
    try:
        return read_measurement(folder).title
    except FileNotFoundError:
        raise
    except (MissingArtifact, OSError):
        return folder.name[:12]


def _read_checked_record(folder: Path) -> tuple[MeasurementRecord, str]:
    """Return the record in a folder, and its seal.

    Raises:
        MissingArtifact: the record or a file is missing or damaged.
        FileAccessError: the operating system cannot read the record or a file.

    """
    damaged = [RECORD_FILE]
    try:
        content = read_record(folder / RECORD_FILE)
        seal = record_seal(content)
        if read_regular(folder / SEAL_FILE) == seal.encode():
            record = parse_measurement(content)
            damaged = [name for name, digest in record.files.items() if sha256(folder / name) != digest]
    except OSError as error:
        problem = f"{Path(error.filename or folder).name}: {error.strerror}"
        damage = MissingArtifact(f"{folder} is damaged ({problem}): remove it, and measure again")
        raise file_access_error(error, folder) or damage from error
    except BadInput as error:  # not a regular file
        raise MissingArtifact(f"{folder} is damaged ({error}): remove it, and measure again") from error
    if damaged:
        raise MissingArtifact(f"{folder} is damaged ({', '.join(damaged)}): remove it, and measure again")
    return record, seal


def _finished_folders() -> list[Path]:
    """Return the folders of finished measurements in mlruns/cells, and in the folders of its imports."""
    folders = [*cells_folder().glob("*"), *cells_folder().glob(f"*{_IMPORT_SUFFIX}/*")]
    return sorted(filter(_is_finished, folders))


def _remove_leftovers() -> None:
    """Remove what is left of delivered measurements, and of imports that were delivered or killed."""
    for delivered in cells_folder().glob(f"*{_DELIVERED_SUFFIX}"):
        shutil.rmtree(delivered, ignore_errors=True)
    for imported in cells_folder().glob(f"*{_IMPORT_SUFFIX}"):
        if not any(map(_is_finished, imported.glob("*"))):
            shutil.rmtree(imported, ignore_errors=True)
    for unfinished in cells_folder().glob(f"*{_UNFINISHED_SUFFIX}"):
        with suppress(Timeout), _lock_of_import(unfinished):
            shutil.rmtree(unfinished, ignore_errors=True)  # the import was killed


@contextmanager
def _lock_of_import(unfinished: Path) -> Iterator[None]:
    """Hold the lock of the folder that an import writes, and then delete its file. Raises Timeout if it is taken."""
    path = unfinished.with_name(f"{unfinished.name}.lock")
    with FileLock(path, timeout=0):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _is_finished(folder: Path) -> bool:
    return (folder / RECORD_FILE).exists() and not folder.name.endswith(_DELIVERED_SUFFIX)


def _read_address(folder: Path) -> dict[str, str] | None:
    """Return the address of the store that a folder waits for. Return None if it is not finished or has no address."""
    if not _is_finished(folder):
        return None
    with suppress(OSError, ValueError, BadInput):
        address = json.loads(read_regular(folder / STORE_FILE))
        return address if isinstance(address, dict) else None
    return None


def _remove_delivered(folder: Path) -> None:
    """Remove a delivered folder. It is renamed first, because a partly removed folder must not look as if it waited."""
    delivered = folder.with_name(folder.name + _DELIVERED_SUFFIX)
    shutil.rmtree(delivered, ignore_errors=True)
    folder.rename(delivered)
    shutil.rmtree(delivered, ignore_errors=True)
