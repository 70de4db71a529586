"""Translate errors of MLflow, of servers and of databases to errors with a message of one line."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import ssl
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import format_exception

from rbptrack.base.errors import BadInput, RbptrackError, StoreAway, StoreRefuses, file_access_error
from rbptrack.base.secrets import without_password

_STATUS_OF_NO_ANSWER = 429  # HTTP; from a busy server
_CONNECTION_ERRORS = (
    "ConnectionError",
    "Timeout",
    "ConnectTimeout",
    "ReadTimeout",
    "RetryError",  # a busy server, after all attempts
    "ChunkedEncodingError",
    "ProtocolError",
)
_MAX_QUOTED = 300  # largest number of characters that are quoted from another program's message
# Two errors that have no type or code of their own: a server's error page, and an answer that is cut off.
_NO_ANSWER = re.compile(r"failed with error code 50\d|not in a valid JSON format. Response body: '\{")


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Translate the errors that MLflow or its database raises in a block to errors with a message of one line.

    Args:
        uri: the address of the store, for the messages.

    Raises:
        StoreAway: the store does not answer now.
        StoreRefuses: the store does not let this user write, or its disk is full.
        BadInput: the store cannot be used for another reason.

    """
    try:
        yield
    except RbptrackError:
        raise
    except Exception as error:  # MLflow raises errors of every kind if an answer of the server is malformed
        raise _explain_error(error, without_password(uri)) from error


def _explain_error(error: Exception, store: str) -> RbptrackError:
    """Return the error for the user that explains an error of MLflow or its database. `store` is the shown address."""
    causes = list(_errors_within(error))
    if isinstance(error, TimeoutError):
        return StoreAway(f"the tracking store {store} does not answer: {error}")
    quoted = textwrap.shorten(without_password(str(error)), _MAX_QUOTED, placeholder=" ...")
    if any("out-of-date database schema" in str(cause) or "Can't locate revision" in str(cause) for cause in causes):
        import mlflow

        return BadInput(
            f"the tracking store {store} was written by another version of MLflow than this one "
            f"({mlflow.__version__}). If the store is older, keep a copy and run: mlflow db upgrade {store}. "
            "If it is newer, run: pip install --upgrade mlflow"
        )
    transport_error = _explain_transport_error(causes, store)
    if transport_error is not None:
        return transport_error
    for cause in reversed(causes):  # the innermost error is the most precise
        for explain in (_explain_system_error, _explain_sqlite_error, _explain_postgres_error, _explain_server_error):
            explanation = explain(cause, store, quoted)
            if explanation is not None:
                return explanation
    if _NO_ANSWER.search(str(error)):
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    unexpected = BadInput(f"the tracking store {store} cannot be used: {quoted}")
    unexpected.trace = "".join(format_exception(error))
    return unexpected


def _explain_transport_error(causes: Sequence[BaseException], store: str) -> StoreAway | None:
    """Explain an error of a certificate or a proxy. Both hide behind errors of the operating system."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return StoreAway(
                f"the certificate of the tracking server {store} is not trusted ({cause.verify_message}): set "
                "MLFLOW_TRACKING_SERVER_CERT_PATH to the file with its certificate, or with that of its authority"
            )
        if isinstance(cause, ssl.SSLError):
            return StoreAway(
                f"the tracking server {store} does not answer over TLS ({cause.reason}): check the address"
            )
        if type(cause).__name__ == "ProxyError":
            scheme = store.partition(":")[0]
            names = [f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
            settings = [f"{name}={without_password(os.environ[name])}" for name in names if os.environ.get(name)]
            setting = ", ".join(settings) or "a setting of the system"
            return StoreAway(
                f"the proxy for the tracking server {store} does not answer ({setting}): "
                "correct this variable, or name the server's host in NO_PROXY"
            )
    return None


def _errors_within(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and all errors in its attributes and arguments, beginning with the outermost."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        candidate = waiting.pop(0)
        if not isinstance(candidate, BaseException) or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        yield candidate
        attributes = [getattr(candidate, name, None) for name in ("orig", "reason")]
        waiting += [candidate.__cause__, candidate.__context__, *attributes, *candidate.args]


def _explain_system_error(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    number = getattr(error, "errno", None)
    if not isinstance(error, OSError) or number is None:
        return None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return _disk_is_full(store)
    if number in (errno.EROFS, errno.EACCES):
        return StoreRefuses(f"the tracking store {store} cannot be read or written: {error}")
    if isinstance(error, ConnectionError):
        return StoreAway(f"the tracking store {store} does not answer: {error}")
    access_error = file_access_error(error, store)
    return BadInput(f"the tracking store {store} cannot be used: {access_error}") if access_error else None


def _explain_sqlite_error(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code, without SQLite's extension bits
    if code == sqlite3.SQLITE_FULL:
        return _disk_is_full(store)
    if code == sqlite3.SQLITE_READONLY:
        return StoreRefuses(f"the tracking store {store} is not writable: {quoted}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreAway(f"the tracking store {store} does not answer: {error}")
    if code == sqlite3.SQLITE_CANTOPEN:  # SQLite does not tell the reason of the operating system
        return BadInput(
            f"the tracking store {store} cannot be opened: check the permissions of the file and its folder, and the "
            "limit of open files (`ulimit -n`)"
        )
    return BadInput(f"the tracking store {store} cannot be used: {quoted}")


def _explain_postgres_error(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    """Explain an error of psycopg by its SQLSTATE code. Appendix A of PostgreSQL's manual lists the codes."""
    if not type(error).__module__.startswith("psycopg"):
        return None
    code = getattr(error, "sqlstate", None) or ""
    text = str(error)
    # The text is searched, too, because errors that psycopg raises while it connects have no code.
    if code[:2] in ("28", "3D") or re.search(r'authentication failed|" does not exist|no password supplied', text):
        return BadInput(f"the database {store} refuses the connection: {quoted}")
    if code == "42501":
        return StoreRefuses(f"the database {store} does not permit this: {quoted}")
    if code == "53100":
        return _disk_is_full(store)
    if code[:2] in ("", "08", "53", "57") and type(error).__name__ == "OperationalError":
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    return None


def _explain_server_error(error: BaseException, store: str, quoted: str) -> RbptrackError | None:
    if type(error).__name__ in _CONNECTION_ERRORS and type(error).__module__.startswith(("requests", "urllib3")):
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    status = _http_status(error)
    if status == 401:
        return StoreRefuses(
            f"the tracking server {store} refuses this user or password: "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if status == 403 and "Permission denied" in quoted:  # 403 without this text may mean a host name that is refused
        return StoreRefuses(
            f"the tracking server {store} does not give this user permission: ask its administrator for permission on "
            "the experiment, or name another one (tracking.experiment=NAME; --experiment NAME for other commands)"
        )
    if status == 403:
        return StoreRefuses(f"the tracking server {store} does not permit this: {quoted}")
    # Other errors of MLflow have the status 500, too.
    is_answer = type(error).__name__ in ("RestException", "HTTPError")
    if status == _STATUS_OF_NO_ANSWER or (status >= 500 and is_answer):
        return StoreAway(f"the tracking store {store} does not answer: {quoted}")
    return None


def _http_status(error: BaseException) -> int:
    """Return the HTTP status code of an error, or 0 if it has none."""
    response = getattr(error, "response", None)
    if response is not None:
        return int(getattr(response, "status_code", 0))
    get_status = getattr(error, "get_http_status_code", None)
    return int(get_status()) if get_status else 0


def _disk_is_full(store: str) -> StoreRefuses:
    return StoreRefuses(
        f"the disk of the tracking store {store} is full: free some space. Finished measurements are kept"
    )
