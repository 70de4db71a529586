"""The way to a store: which one is meant, its client, and a lock for whoever writes."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from filelock import FileLock

from rbptrack.base.errors import BadInput
from rbptrack.base.files import kind_of, sync
from rbptrack.base.secrets import shown_address, without_password
from rbptrack.config.paths import home
from rbptrack.tracking.explained import explained

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SERVERS = ("http", "databricks")
_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
_ADDRESS_OF_A_FILE = "sqlite:///"

_SETTINGS = {  # while a store is used, unless the user has set them
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # 5 s instead of 4 minutes until a server is away
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class Connection:
    """A store's address and its client, which is made when it is first needed, in each process anew.

    Args:
        uri: the address; empty: MLFLOW_TRACKING_URI, else what MLflow itself uses in this folder.

    Attributes:
        uri: the address, absolute.
        database: the SQLite file; None of any other store.
        writer: the name of the lock. Processes that share a lock have equal names.

    Raises:
        BadInput: the address does not name a tracking store, or holds a password.

    """

    def __init__(self, uri: str) -> None:
        self.uri, self.database = _absolute_address(uri or os.environ.get("MLFLOW_TRACKING_URI", ""))
        self._lock_file = (self.database.parent / "mlruns" if self.database else home()) / "store.lock"
        # A SQLite file has one lock, beside it; a server is written to from many folders, each with a lock of its own.
        self.writer = "beside the database" if self.database else f"{socket.gethostname()}:{home()}"
        self._lock = FileLock(self._lock_file)  # may be taken again by the thread that holds it
        self._client: MlflowClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, which opens the store itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_client", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _client=None, _lock=FileLock(state["_lock_file"]))

    @property
    def shown(self) -> str:
        """The address without a password."""
        return without_password(self.uri)

    @property
    def exists(self) -> bool:
        """False for a SQLite file that is not made yet; True for every other store, whether it answers or not."""
        return self.database is None or (self.database.exists() and self.database.stat().st_size > 0)

    @property
    def client(self) -> MlflowClient:
        """MLflow's client; a SQLite file is made if it is not there. Use it within `explained`."""
        if self._client is None:
            import mlflow  # noqa: F401 - sets these levels

            for logger in ("mlflow", "alembic"):  # after the import, which sets them
                logging.getLogger(logger).setLevel(logging.WARNING)
            # It logs a traceback for what `explained` says in a line, of a full disk for example.
            logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
            with self.explained():
                if self.database and not self.exists:
                    with self.alone():
                        if not self.exists:
                            _make_database(self.database)
                if not self.database and not self.uri.startswith(_SERVERS):
                    _try_to_connect(self.uri)
                self._client = _make_client(self.uri)
        return self._client

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn MLflow's errors into StoreAway or BadInput."""
        with _settings(_SETTINGS), explained(self.uri):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock: of those who write into a SQLite file, or from this folder to a server, one at a time."""
        with self.explained():
            self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            yield

    def experiment_names(self) -> list[str]:
        """The experiments that the store has, beside MLflow's own."""
        client = self.client
        with self.explained():
            return [one.name for one in client.search_experiments() if one.name != "Default"]


def _absolute_address(uri: str) -> tuple[str, Path | None]:
    """The address, absolute, and its SQLite file."""
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if not uri:
        database = Path.cwd() / "mlflow.db"
    elif scheme != "sqlite":
        if scheme not in _SCHEMES:
            raise BadInput(
                f"{shown_address(uri)} is not a tracking store: give http://HOST:PORT, sqlite:///FILE or "
                "postgresql://HOST/NAME (MLflow no longer keeps runs in plain folders)"
            )
        return uri, None
    else:
        path = unquote(uri.partition(":///")[2])  # a question mark is part of the name: these addresses take no options
        if not path:
            raise BadInput(f"{uri} names no file: give sqlite:///FILE")
        database = Path(path).absolute()
    if database.is_dir():
        raise BadInput(f"{database} is a folder, no tracking store: give sqlite:///{database}/mlflow.db")
    if database.exists() and not database.is_file():  # root would replace /dev/null by a file
        raise BadInput(f"{database} is {kind_of(database)}, no tracking store: give sqlite:///FILE")
    return _ADDRESS_OF_A_FILE + str(database).replace("%", "%25").replace("?", "%3F"), database


def _make_client(uri: str) -> MlflowClient:
    """Make MLflow's client.

    MLflow makes the folder of a SQLite file as the address spells it. If the folder's name has signs that an address
    writes as %3F, this is another folder, which is removed.
    """
    from mlflow import MlflowClient

    spelled = Path(uri.removeprefix(_ADDRESS_OF_A_FILE)).parent
    strays = [folder for folder in (spelled, *spelled.parents) if "%" in str(folder) and not folder.exists()]
    client = MlflowClient(uri)
    for folder in strays:
        with suppress(OSError):
            folder.rmdir()
    return client


def _try_to_connect(uri: str) -> None:
    """Connect to a database once; MLflow itself would try for 100 seconds, and log each attempt."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


@contextmanager
def _settings(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment that are not set, and remove them afterwards."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _make_database(database: Path) -> None:
    """Make a store's SQLite file under another name and rename it. An interrupt then leaves no incomplete file.

    Two processes that make one at once break it, hence the caller's lock. With write-ahead logging,
    writers wait a third of the time.
    """
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "mlflow.db")
        with _settings({"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool"}):  # connections are closed after each use
            MlflowClient(f"sqlite:///{made}").search_experiments(max_results=1)
        unfinished = database.with_name(f".{database.name}.new")
        unfinished.unlink(missing_ok=True)
        with closing(sqlite3.connect(made)) as source, closing(sqlite3.connect(unfinished)) as target:
            source.backup(target)
            target.execute("pragma journal_mode=WAL")
    sync(unfinished)
    unfinished.replace(database)
    sync(database.parent)
