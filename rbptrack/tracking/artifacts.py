"""The files of runs: local ones where they lie, those of a remote store fetched once into the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from rbptrack.base.errors import MissingArtifact, RbptrackError
from rbptrack.base.parquet import Damaged
from rbptrack.ranks import VERSION, RankHistogram, RankTable
from rbptrack.sources.cache import fetched, forget
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.explained import explained
from rbptrack.tracking.groups import DOCUMENTS, read_groups
from rbptrack.tracking.record import HISTOGRAM, RANKS, TOKENS, read_token_texts

T = TypeVar("T")


class Artifacts:
    """Reads the artifacts of one experiment's runs.

    Every method raises StoreAway where the store does not answer, and BadInput where it refuses.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._locations: dict[str, str] = {}  # of the artifacts of each run that was asked for

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, without anything that only this one holds open."""
        return {"connection": self.connection, "_locations": self._locations}

    def sizes(self, run_id: str) -> dict[str, int] | None:
        """Return bytes of a run's artifacts by name, of a remote store of those at the top; None where they are not
        known.
        """
        here = Path(self.artifact_uri(run_id))
        if here.is_absolute():
            if not here.parent.parent.is_dir():  # its experiment's: a disk that is not mounted here
                return None
            return {p.relative_to(here).as_posix(): p.stat().st_size for p in here.rglob("*") if p.is_file()}
        client = self.connection.open()
        try:
            with explained(self.connection.uri):
                listed = client.list_artifacts(run_id)
        except RbptrackError:
            return None
        return {entry.path: entry.file_size or 0 for entry in listed if not entry.is_dir}

    def digest(self, run_id: str) -> str:
        """Return a hash of the files that analyses read of a measurement; empty for a remote store, where none
        changes.
        """
        here = Path(self.artifact_uri(run_id))
        whole = hashlib.sha256()
        for path in (here / name for name in (RANKS, HISTOGRAM, DOCUMENTS, TOKENS)):
            if path.is_absolute() and path.is_file():
                with path.open("rb") as file:
                    whole.update(hashlib.file_digest(file, "sha256").digest())
            whole.update(path.name.encode())
        return whole.hexdigest() if here.is_absolute() else ""

    def histogram(self, run_id: str) -> RankHistogram:
        """Read the rank histogram of a measurement."""
        return self._read(run_id, HISTOGRAM, RankHistogram.read)

    def rank_pieces(self, run_id: str, *, version: int = VERSION) -> Iterator[RankTable]:
        """Read the rank table of a measurement in pieces of whole documents, without columns of later versions."""
        return RankTable.read_pieces(self.artifact(run_id, RANKS), version=version)

    def ranks(self, run_id: str) -> RankTable:
        """Read the rank table of a measurement."""
        return self._read(run_id, RANKS, RankTable.read)

    def _read(self, run_id: str, name: str, read: Callable[[Path], T]) -> T:
        """Read an artifact; a copy in the cache that is damaged, or was removed a moment ago, is fetched again."""
        path = self.artifact(run_id, name)
        try:
            return read(path)
        except (Damaged, FileNotFoundError):
            if not forget(path):
                raise
            return read(self.artifact(run_id, name))

    def token_texts(self, run_id: str) -> dict[int, str]:
        """Return the texts of a measurement's tokens by id; empty where they were not kept."""
        with suppress(RbptrackError, OSError, ValueError):
            return read_token_texts(self.artifact(run_id, TOKENS))
        return {}

    def groups(self, run_id: str) -> list[str]:
        """Return the source of each document of a measurement, by its number; empty where none is named."""
        return read_groups(self.artifact(run_id, DOCUMENTS))

    def artifact_names(self, run_id: str) -> list[str]:
        """Return paths of a run's artifacts, those in folders included."""
        here = Path(self.artifact_uri(run_id))
        if here.is_absolute():  # MLflow's own way asks the database several times for each folder
            return sorted(path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file())
        client = self.connection.open()
        names = list[str]()
        folders = [""]
        with self.connection.explained():
            while folders:
                for entry in client.list_artifacts(run_id, folders.pop() or None):
                    (folders if entry.is_dir else names).append(entry.path)
        return names

    def artifact(self, run_id: str, path: str) -> Path:
        """Return an artifact as a file: a copy in the cache, or the file itself where the store is local."""
        here = Path(self.artifact_uri(run_id), path)
        if here.is_absolute() and here.exists():
            return here  # MLflow's own way asks the database several times for each file
        if here.is_absolute():
            raise MissingArtifact(f"run {run_id} lacks its artifact {path}")
        try:
            return fetched(
                f"{self.connection.shown} {run_id} {path}", lambda place: self._download(run_id, path, place)
            )
        except OSError:  # the cache cannot be written
            place = Path(self._uncached.name, run_id)
            if not (place / path).exists():
                place.mkdir(exist_ok=True)
                self._download(run_id, path, place)
            return place / path

    def _download(self, run_id: str, path: str, place: Path) -> Path:
        import mlflow.artifacts
        from mlflow.exceptions import MlflowException

        try:
            return Path(
                mlflow.artifacts.download_artifacts(
                    run_id=run_id, artifact_path=path, tracking_uri=self.connection.uri, dst_path=str(place)
                )
            )
        except (MlflowException, OSError) as error:
            if path not in self.artifact_names(run_id):
                raise MissingArtifact(f"run {run_id} lacks its artifact {path}") from error
            with self.connection.explained():
                raise

    @cached_property
    def _uncached(self) -> TemporaryDirectory[str]:
        """Holds fetched files that could not be cached, for as long as this reader lives."""
        return TemporaryDirectory()

    def artifact_uri(self, run_id: str) -> str:
        """Return the address of the run's artifacts; a plain path where the store is local."""
        if run_id not in self._locations:
            source = self.connection.source
            with self.connection.explained():
                self._locations[run_id] = self._located(source.run(run_id).artifacts)
        return self._locations[run_id]

    def _located(self, address: str) -> str:
        uri = self.connection.located(address)
        return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri

    def report_page(self, run_id: str) -> str:
        """Return the address of a run's page: the file in a local store, or the server's own page of it."""
        if server := self.connection.run_page:
            return server.replace("{}", f"{run_id}/artifacts/report.html")
        return f"{self.artifact_uri(run_id)}/report.html"
