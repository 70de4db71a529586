"""Connect to a tracking store: its address, MLflow's client, and a lock for writing."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote

from filelock import FileLock

from rbptrack.base.errors import BadInput
from rbptrack.base.files import describe_kind, replacing
from rbptrack.base.secrets import shown_address, without_password
from rbptrack.config.paths import mlruns_folder
from rbptrack.tracking.errors import translate_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient

T = TypeVar("T")

_WEB_SCHEMES = ("http", "https")
_SERVER_SCHEMES = (*_WEB_SCHEMES, "databricks")
_SCHEMES = (*_SERVER_SCHEMES, "sqlite", "postgresql", "mysql", "mssql")
_SQLITE_PREFIX = "sqlite:///"
_MAX_CALL_SECONDS = 30  # after this time, a call counts as not answered

_ENVIRONMENT = {  # variables that are set while a store is used, unless the user has set them
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow then gives up on a server after 5 s instead of 4 minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_MAX_CALL_SECONDS),
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",  # a server could let this process wait for hours
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class Connection:
    """The connection to a tracking store. Each process creates its own MLflow client when it first needs it.

    Args:
        uri: the address; empty for MLFLOW_TRACKING_URI or, if that is not set, for ./mlflow.db.

    Attributes:
        uri: the address. The path of a SQLite file is absolute.
        database: the path of the SQLite file; None for other stores.
        lock_name: the name of the lock for writing. Two processes have equal names if they share a lock.

    Raises:
        BadInput: the address does not name a tracking store, or holds a password.

    """

    def __init__(self, uri: str) -> None:
        self.uri, self.database = _absolute_address(uri or os.environ.get("MLFLOW_TRACKING_URI", ""))
        self._lock_file = (self.database.parent / "mlruns" if self.database else mlruns_folder()) / "store.lock"
        # A SQLite file has one lock, next to the file. For a server, each folder of each machine has its own lock.
        self.lock_name = "next to the database" if self.database else f"{socket.gethostname()}:{mlruns_folder()}"
        self._lock = FileLock(self._lock_file)  # reentrant: the thread that holds the lock may acquire it again
        self._client: MlflowClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle, without the client and the lock. Another process creates its own."""
        return {name: value for name, value in vars(self).items() if name not in ("_client", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _client=None, _lock=FileLock(state["_lock_file"]))

    @property
    def shown_address(self) -> str:
        """The address for messages, without a password."""
        return without_password(self.uri)

    @property
    def is_server(self) -> bool:
        """Whether the address names a server, which has MLflow's page. Otherwise it names a database."""
        return _scheme(self.uri) in _SERVER_SCHEMES

    @property
    def page_address(self) -> str:
        """The address of MLflow's page. It is empty for databases, and for Databricks, whose page is elsewhere."""
        return self.shown_address.rstrip("/") if _scheme(self.uri) in _WEB_SCHEMES else ""

    @property
    def exists(self) -> bool:
        """Whether the store exists. Only a SQLite file can be missing; a server counts as existing."""
        try:
            return self.database is None or self.database.stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False

    @property
    def client(self) -> MlflowClient:
        """MLflow's client, for calls within `translated_errors`. The first access creates a missing SQLite file."""
        if self._client is None:
            import mlflow  # noqa: F401 - the import sets the levels that the next lines change

            for logger in ("mlflow", "alembic"):
                logging.getLogger(logger).setLevel(logging.WARNING)
            # With MLFLOW_TRACKING_INSECURE_TLS, urllib3 would warn at each request.
            warnings.filterwarnings("once", message="Unverified HTTPS request")
            # This logger prints tracebacks of errors that `translated_errors` reports in one line, such as a full disk.
            logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
            with self.translated_errors():
                if self.database and not self.exists:
                    self._create_database_once(self.database)
                if not self.is_server:
                    call_within_deadline(_try_to_connect, self.uri)
                client = _create_client(self.uri)
                self._client = client if self.database else cast("MlflowClient", _ClientWithDeadline(client))
        return self._client

    def _create_database_once(self, database: Path) -> None:
        with self.write_lock():
            if not self.exists:  # otherwise another process created it while this one waited for the lock
                _create_database(database)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Translate the errors that MLflow raises in a block to StoreAway, StoreRefuses or BadInput."""
        with _set_missing_variables(_ENVIRONMENT), translate_errors(self.uri):
            yield

    @contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the store's lock for writing while a block runs. Only one process at a time can hold it.

        All processes that write to a SQLite file share its lock. For a server, only the processes that write to it from
        this folder share a lock.
        """
        with self.translated_errors():
            self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            yield

    def experiment_names(self) -> list[str]:
        """Return the names of the store's experiments, without MLflow's own experiment `Default`."""
        client = self.client
        with self.translated_errors():
            return [experiment.name for experiment in client.search_experiments() if experiment.name != "Default"]


class _ClientWithDeadline:
    """MLflow's client of a server or a database on another machine, whose methods return within 30 s."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(call_within_deadline, getattr(self._client, name))


def call_within_deadline(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in another thread. Raises TimeoutError if it takes more than 30 s.

    The timeouts of MLflow do not suffice: a server that sends its answer byte by byte never exceeds them. The thread of
    a call that is too slow goes on in the background, and does not keep the process from ending.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as error:  # the caller gets it
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return future.result(_MAX_CALL_SECONDS)
    except TimeoutError as error:
        if future.done():  # the function itself raised the error
            raise
        raise TimeoutError(f"no complete answer within {_MAX_CALL_SECONDS} s") from error


def _absolute_address(uri: str) -> tuple[str, Path | None]:
    """Return an address with an absolute path, and the path of its SQLite file (None for other stores).

    Raises BadInput if the address does not name a tracking store.
    """
    scheme = _scheme(uri)
    if uri and scheme not in _SCHEMES:
        raise BadInput(
            f"{shown_address(uri)} is not a tracking store: give http://HOST:PORT, sqlite:///FILE or "
            "postgresql://HOST/NAME (MLflow no longer keeps runs in plain folders)"
        )
    if uri and scheme != "sqlite":
        return uri, None
    if not uri:
        _refuse_file_store(mlruns_folder())
    path = unquote(uri.partition(":///")[2])  # "?" is part of the name, because these addresses have no options
    if uri and not path:
        raise BadInput(f"{uri} does not name a file: give sqlite:///FILE")
    database = Path(path or "mlflow.db").absolute()
    if database.is_dir():
        raise BadInput(f"{database} is a folder, not a tracking store: give sqlite:///{database}/mlflow.db")
    if database.exists() and not database.is_file():  # otherwise root would replace /dev/null by a file
        raise BadInput(f"{database} is {describe_kind(database)}, not a tracking store: give sqlite:///FILE")
    return _SQLITE_PREFIX + str(database).replace("%", "%25").replace("?", "%3F"), database


def _scheme(uri: str) -> str:
    """Return the scheme of an address in lower case, without the driver: `postgresql` for `postgresql+psycopg2://`."""
    return uri.partition(":")[0].partition("+")[0].lower()


def _refuse_file_store(folder: Path) -> None:
    """Raise BadInput if a folder holds MLflow's old file store, which MLflow itself would open, and then refuse."""
    if any(file.parent.name.isdigit() for file in folder.glob("*/meta.yaml")):
        raise BadInput(
            f"{folder} is a file store of an older MLflow, which MLflow would use here and can no longer write. "
            "Convert it with `mlflow migrate-filestore`, or name another store, such as tracking.uri=sqlite:///mlflow.db"
        )


def _create_client(uri: str) -> MlflowClient:
    """Create MLflow's client.

    MLflow also creates the folder of a SQLite file, but does not decode escapes such as %3F in the address. It
    therefore creates a folder with a wrong name, which is removed here.
    """
    from mlflow import MlflowClient

    undecoded = Path(uri.removeprefix(_SQLITE_PREFIX)).parent
    wrong_folders = [folder for folder in (undecoded, *undecoded.parents) if "%" in str(folder) and not folder.exists()]
    client = MlflowClient(uri)
    for folder in wrong_folders:
        with suppress(OSError):
            folder.rmdir()
    return client


def _try_to_connect(uri: str) -> None:
    """Read from a database once, because MLflow itself would try for 100 seconds and log each attempt."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri)
    try:
        sqlalchemy.inspect(engine).has_table("experiments")
    finally:
        engine.dispose()


@contextmanager
def _set_missing_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """While a block runs, set those environment variables that are not set yet."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _create_database(database: Path) -> None:
    """Create the SQLite file of a store, completely or not at all. The caller must hold the store's lock."""
    artifacts = Path.cwd() / "mlruns" / "0"  # where MLflow keeps the artifacts of its experiment `Default`
    with replacing(database) as unfinished:
        unfinished.write_bytes(_empty_database())
        with closing(sqlite3.connect(unfinished)) as connection, connection:
            connection.execute("update experiments set artifact_location = ?", [str(artifacts)])


@cache
def _empty_database() -> bytes:
    """Return the content of the SQLite file that MLflow creates for a new store.

    MLflow takes about a second to create the file, so each process creates it once. The file uses write-ahead logging,
    with which writers wait only a third of the time.
    """
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "mlflow.db")
        # With NullPool, SQLAlchemy closes each connection after its use.
        with _set_missing_variables({"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool"}):
            MlflowClient(f"{_SQLITE_PREFIX}{template}").search_experiments(max_results=1)
        with closing(sqlite3.connect(template)) as connection:
            connection.execute("pragma journal_mode=WAL")
        return template.read_bytes()
