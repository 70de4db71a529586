"""Read the artifacts of runs. Artifacts on this machine are read in place; others are downloaded once into a cache."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

import pandas as pd

from rbptrack.analysis.rank_store import RankStore
from rbptrack.base.errors import BadInput, FileAccessError, MissingArtifact, RbptrackError, StoreAway, file_access_error
from rbptrack.base.files import replacing, sha256
from rbptrack.base.parquet import read_table
from rbptrack.measurement.files import (
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    RANKS_FILE,
    RECORD_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
)
from rbptrack.measurement.record import MeasurementRecord, Record, ReportRecord, parse_record, read_record, record_seal
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources import cache
from rbptrack.tracking.connection import Connection, call_within_deadline
from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

T = TypeVar("T")

PARALLEL = 8
"""The number of files that are sent or fetched at the same time."""


class Artifacts(RankStore):
    """Reads the artifacts of runs. `RankStore` explains the methods that it declares.

    The methods raise MissingArtifact if an artifact is missing or damaged, FileAccessError if the operating system
    cannot read it, and StoreAway if the store does not answer.

    Attributes:
        connection: the connection to the store.
        locations: the address of each run's artifacts, by run ID. It has only runs that were read already.
        seals: the seals of runs, by run ID. It has only runs that were read already.

    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.locations: dict[str, str] = {}
        self.seals: dict[str, str] = {}

    def remember(self, run: Run) -> None:
        """Remember the address and the seal of a run that was just read, so that the store is not asked for them."""
        self.locations[run.info.run_id] = run.info.artifact_uri
        self.seals[run.info.run_id] = run.data.tags.get(Tag.SEAL, "")

    def artifact(self, run_id: str, name: str) -> Path:
        """Return the path of an artifact on this machine. An artifact on a server is downloaded to the cache first."""
        folder = local_path(self._location(run_id))
        if folder is None:
            return self._download_to_cache(run_id, name)
        path = folder / name
        try:
            path.stat()
        except OSError as error:
            missing = MissingArtifact(f"run {run_id} lacks its artifact {name}: {path} does not exist")
            raise file_access_error(error, path) or missing from error
        return path

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        return self._read(run_id, RANKS_FILE, lambda path: RankTable.read(path, columns))

    def rank_pieces(self, run_id: str, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        yield from RankTable.read_pieces(self.artifact(run_id, RANKS_FILE), columns)

    def histogram(self, run_id: str) -> RankHistogram:
        return self._read(run_id, HISTOGRAM_FILE, RankHistogram.read)

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        if not self._has(run_id, TOKENS_FILE):
            return super().token_texts(run_id)
        texts = json.loads(self.recorded_file(run_id, TOKENS_FILE).read_bytes())
        return {int(token): text for token, text in texts.items()}

    def ranks_of_documents(self, run_id: str, documents: Collection[int]) -> RankTable:
        return self._read(run_id, RANKS_FILE, lambda path: RankTable.read_documents(path, documents))

    def unscored(self, run_id: str) -> pd.DataFrame:
        if not self._has(run_id, UNSCORED_FILE):
            return super().unscored(run_id)
        frame: pd.DataFrame = self._read(run_id, UNSCORED_FILE, read_table).to_pandas()
        return frame

    def documents(self, run_id: str) -> pd.DataFrame:
        if not self._has(run_id, DOCUMENTS_FILE):
            return super().documents(run_id)
        columns = ["document", "id", "tokens"]
        frame: pd.DataFrame = self._read(run_id, DOCUMENTS_FILE, lambda path: read_table(path, columns)).to_pandas()
        return frame

    def groups(self, run_id: str) -> Sequence[str]:
        table = self._read(run_id, DOCUMENTS_FILE, lambda path: read_table(path, ["group"]))
        if "group" not in table.column_names:
            raise MissingArtifact(f"run {run_id} does not say to which groups its documents belong")
        return [str(group) for group in table.column("group").to_pylist()]

    def sealed_record(self, run_id: str) -> Record:
        """Return the record of a run, after comparing it with its seal."""
        seal = self._known(self.seals, run_id)

        def read_sealed(path: Path) -> Record:
            content = read_record(path)
            if record_seal(content) != seal:
                raise _changed_file_error(f"run {run_id}", RECORD_FILE)
            return parse_record(content)

        return self._read(run_id, RECORD_FILE, read_sealed)

    def sealed_measurement(self, run_id: str) -> MeasurementRecord:
        """Return the record of a measurement's run. Raises MissingArtifact if the run is not a measurement."""
        record = self.sealed_record(run_id)
        if not isinstance(record, MeasurementRecord):
            raise MissingArtifact(f"run {run_id} is not a measurement")
        return record

    def covered_run_ids(self, run_id: str) -> list[str]:
        """Return the run IDs of the measurements that a sweep or an analysis used."""
        record = self.sealed_record(run_id)
        return record.covered_run_ids if isinstance(record, ReportRecord) else []

    def recorded_file(self, run_id: str, name: str, record: Record | None = None) -> Path:
        """Return the path of an artifact, after comparing it with the record of its run.

        Args:
            run_id: the ID of the run.
            name: the name of the artifact.
            record: the record of the run; by default, it is read.

        """
        sealed = record or self.sealed_record(run_id)

        def check(path: Path) -> Path:
            if sha256(path) != sealed.files.get(name):
                raise _changed_file_error(f"{sealed.title} (run {run_id})", name)
            return path

        return self._read(run_id, name, check)

    def _has(self, run_id: str, name: str) -> bool:
        """Return whether a run has an artifact."""
        try:
            self.artifact(run_id, name)
        except MissingArtifact:
            return False
        return True

    def _read(self, run_id: str, name: str, read: Callable[[Path], T]) -> T:
        """Read an artifact with the function `read`. If its copy in the cache is damaged, download it again."""
        path = self.artifact(run_id, name)
        try:
            return read(path)
        except FileAccessError:
            raise
        except OSError as error:
            raise file_access_error(error, path) or MissingArtifact(f"{path} does not exist") from error
        except RbptrackError:
            if not path.is_relative_to(_cache_folder()):
                raise
            path.unlink(missing_ok=True)
            return read(self.artifact(run_id, name))

    def _location(self, run_id: str) -> str:
        """Return the address of a run's artifacts."""
        return self._known(self.locations, run_id)

    def _known(self, values: dict[str, str], run_id: str) -> str:
        """Return the value of a run in `locations` or `seals`. The store is asked once for each run."""
        if run_id not in values:
            with self.connection.translated_errors():
                self.remember(self.connection.client.get_run(run_id))
        return values[run_id]

    def list_files(self, run_id: str) -> set[str]:
        """Return the names of a run's artifacts."""
        folder = local_path(self._location(run_id))
        if folder is not None:  # MLflow's own listing fails if the system cannot read one of the files
            return {path.name for path in folder.glob("*")}
        with self.connection.translated_errors():
            return {entry.path for entry in call_within_deadline(self._repository(run_id).list_artifacts)}

    def download(self, run_id: str, names: Iterable[str], folder: Path) -> dict[str, Path]:
        """Download artifacts into a folder, several at a time, without using the cache. Return their paths by name.

        If the artifacts are on this machine, they are not copied, and their own paths are returned.
        """
        if local_path(self._location(run_id)) is not None:
            return {name: self.artifact(run_id, name) for name in names}
        paths = {name: folder / name for name in names}
        repository = self._repository(run_id)

        def fetch(name: str) -> None:
            # The public `download_artifacts` would list the artifacts for each file.
            repository._download_file(name, str(paths[name]))  # type: ignore[no-untyped-call]

        with self.connection.translated_errors(), ThreadPoolExecutor(PARALLEL) as pool:
            futures = {name: pool.submit(fetch, name) for name in paths}
            for name, future in futures.items():
                if error := future.exception():
                    raise self._download_error(run_id, name, error, folder) from error
        return paths

    def keep_copies(self, run_id: str, paths: Iterable[Path]) -> None:
        """Copy files that this process has uploaded to the cache, so that nothing downloads them again."""
        if local_path(self._location(run_id)) is not None:
            return
        folder = _cache_folder() / run_id
        with suppress(OSError, BadInput):  # the files are downloaded when they are needed
            folder.mkdir(parents=True, exist_ok=True)
            for path in paths:
                with replacing(folder / path.name) as copy:
                    shutil.copyfile(path, copy)

    def _repository(self, run_id: str) -> ArtifactRepository:
        return artifact_repository(self._location(run_id), self.connection)

    def _download_to_cache(self, run_id: str, name: str) -> Path:
        """Download an artifact to the cache, unless the cache already has it. Return the path of the copy."""
        cached = _cache_folder() / run_id / name
        if not cached.is_file():
            cached.parent.mkdir(parents=True, exist_ok=True)
            # The finished download is moved in one step, so an interrupted download leaves no partial file behind.
            with tempfile.TemporaryDirectory(dir=_cache_folder()) as folder:
                self.download(run_id, [name], Path(folder))[name].replace(cached)
        return cached

    def _download_error(self, run_id: str, name: str, error: BaseException, folder: Path) -> RbptrackError:
        """Return the error for the user if a download failed: the artifact is missing, or cannot be fetched now."""
        if access_error := file_access_error(error, folder):
            return access_error
        if name not in self.list_files(run_id):
            return MissingArtifact(f"run {run_id} lacks its artifact {name}")
        reason = str(error).strip().rpartition("\n")[2]  # MLflow gives the reason of the system at the end
        return StoreAway(f"the artifact {name} of run {run_id} cannot be downloaded ({reason}): try again later")


def artifact_repository(address: str, connection: Connection) -> ArtifactRepository:
    """Return MLflow's access to the artifacts at an address. MlflowClient would ask for the address for each file."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    if address.startswith("mlflow-artifacts:") and not connection.is_server:
        raise BadInput(
            f"an MLflow server keeps the files of the tracking store {connection.shown_address}: give the address of "
            "this server, such as http://HOST:5000, in place of the address of its database"
        )
    return get_artifact_repository(address, tracking_uri=connection.uri)


def _changed_file_error(run_name: str, file: str) -> MissingArtifact:
    return MissingArtifact(f"{run_name}: {file} was changed after it was saved. Run rbptrack verify")


def local_path(address: str) -> Path | None:
    """Return the path that an address of artifacts names on this machine, or None if it is on a server."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if not parts.scheme:
        return Path(address)
    return None


def _cache_folder() -> Path:
    """Return the folder of downloaded artifacts, which is created if it does not exist."""
    return cache.writable_folder(cache.root() / "artifacts")
