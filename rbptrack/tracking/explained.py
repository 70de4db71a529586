"""The errors of MLflow, of servers and of databases in one line for people."""

from __future__ import annotations

import errno
import re
import sqlite3
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from rbptrack.base.errors import BadInput, RbptrackError, StoreAway, StoreRefuses
from rbptrack.base.secrets import without_password

_LIBRARIES = ("mlflow", "sqlalchemy", "requests", "urllib3")
_AWAY = (429, 502, 503, 504)  # status codes of a server that is busy, or of a proxy before one that is away
_NO_CONNECTION = (
    "ConnectionError",
    "Timeout",
    "ConnectTimeout",
    "ReadTimeout",
    "ChunkedEncodingError",
    "ProtocolError",
)
_MAX_QUOTED = 300  # characters of another program's message
# What no type and no code says: a server's error page, and an answer that is cut off.
_NO_ANSWER = re.compile(r"failed with error code 50\d|not in a valid JSON format. Response body: '\{")


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn errors of MLflow and of its database into a line: StoreAway if nothing answers now, else BadInput."""
    try:
        yield
    except RbptrackError:
        raise
    except Exception as error:
        theirs = type(error).__module__.startswith(_LIBRARIES)
        if not theirs and not isinstance(error, (OSError, sqlite3.Error, ImportError)):  # the last of a driver
            raise
        raise _in_words(error, without_password(uri)) from error


def _in_words(error: Exception, store: str) -> RbptrackError:
    causes = list(_causes(error))
    quoted = textwrap.shorten(without_password(str(error)), _MAX_QUOTED, placeholder=" ...")
    if any("out-of-date database schema" in str(cause) or "Can't locate revision" in str(cause) for cause in causes):
        import mlflow

        return BadInput(
            f"the tracking store {store} was written by another MLflow than this one ({mlflow.__version__}). "
            f"If it is older: mlflow db upgrade {store} (keep a copy); if it is newer: pip install --upgrade mlflow"
        )
    for cause in reversed(causes):  # the innermost knows best
        explanation = (
            _of_system(cause, store) or _of_sqlite(cause, store, quoted) or _of_postgres(cause, store, quoted)
            or _of_server(cause, store, quoted)
        )  # fmt: skip
        if explanation is not None:
            return explanation
    if _NO_ANSWER.search(str(error)):
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    return BadInput(f"the tracking store {store} cannot be used: {quoted}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and everything that it came from: its causes, and the errors that it carries."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        carried = [getattr(one, name, None) for name in ("orig", "reason")]
        waiting += [one.__cause__, one.__context__, *carried, *one.args]


def _of_system(error: BaseException, store: str) -> RbptrackError | None:
    number = getattr(error, "errno", None)
    if not isinstance(error, OSError) or number is None:
        return None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return _full(store)
    if number in (errno.EROFS, errno.EACCES):
        return StoreRefuses(f"the tracking store {store} is not writable: {error}")
    if isinstance(error, ConnectionError):
        return StoreAway(f"the tracking store {store} does not answer: {error}")
    return None


def _of_sqlite(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what extends it
    if code == sqlite3.SQLITE_FULL:
        return _full(store)
    if code == sqlite3.SQLITE_READONLY:
        return StoreRefuses(f"the tracking store {store} is not writable: {quoted}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreAway(f"the tracking store {store} does not answer: {error}")
    return BadInput(f"the tracking store {store} cannot be used: {quoted}")


def _of_postgres(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    """Explain an error of psycopg, by the codes of PostgreSQL (its appendix A)."""
    if not type(error).__module__.startswith("psycopg"):
        return None
    code = getattr(error, "sqlstate", None) or ""
    text = str(error)
    if code[:2] in ("28", "3D") or re.search(r'authentication failed|" does not exist|no password supplied', text):
        return BadInput(f"the database {store} refuses: {quoted}")  # psycopg has no code while it connects
    if code == "42501":
        return StoreRefuses(f"the database {store} does not permit this: {quoted}")
    if code == "53100":
        return _full(store)
    if code[:2] in ("", "08", "53", "57") and type(error).__name__ == "OperationalError":
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    return None


def _of_server(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    if type(error).__name__ in _NO_CONNECTION and type(error).__module__.startswith(("requests", "urllib3")):
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    status = _status(error)
    if status == 401:
        return StoreRefuses(
            f"the tracking server {store} refuses this user or password: "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if status == 403 and "Permission denied" in quoted:  # else a server that does not accept this host's name
        return StoreRefuses(
            f"the tracking server {store} does not give this user permission: ask for it on its experiment, or name "
            "another one (tracking.experiment=NAME; --experiment NAME for other commands)"
        )
    if status == 403:
        return StoreRefuses(f"the tracking server {store} does not permit this: {quoted}")
    if status in _AWAY or (status == 500 and type(error).__name__ == "RestException"):
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    return None


def _status(error: BaseException) -> int:
    """Return the status code of an HTTP answer that an error is about; 0 if there is none."""
    response = getattr(error, "response", None)
    if response is not None:
        return int(getattr(response, "status_code", 0))
    code = getattr(error, "get_http_status_code", None)
    return int(code()) if code else 0


def _full(store: str) -> StoreRefuses:
    return StoreRefuses(f"the disk of the tracking store {store} is full: free some space; measurements are kept")
