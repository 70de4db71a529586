"""The errors of MLflow and of databases in one line for people."""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from rbptrack.base.errors import BadInput, RbptrackError, StoreAway
from rbptrack.base.secrets import without_password

_NO_ANSWER = re.compile(
    r"Max retries exceeded|Connection refused|Connection aborted|timed? ?out|error code 50\d|50\d error responses"
    r"|could not (connect|receive|translate)|server closed the connection|connection (failed|is bad|to server)"
    r"|IncompleteRead|RemoteDisconnected|Connection broken|not in a valid JSON format. Response body: '{"  # cut off
    r"|database is locked|Name or service not known|failed to resolve|SSL connection has been closed",
    re.IGNORECASE,
)
_REFUSED = re.compile(r'password authentication failed|(role|database) "[^"]*" does not exist|no password supplied')
_LIBRARIES = ("mlflow", "sqlalchemy", "requests", "urllib3")


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn errors of MLflow and of its database into a line: StoreAway where nothing answers now, else BadInput."""
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
    text = without_password(" ".join(str(error).split()))
    number = getattr(error, "errno", None)
    if "out-of-date database schema" in text or "Can't locate revision" in text or "schema version" in text:
        import mlflow

        return BadInput(
            f"the tracking store {store} was written by another MLflow than this one ({mlflow.__version__}). "
            f"If it is older: mlflow db upgrade {store} (keep a copy); if it is newer: pip install --upgrade mlflow"
        )
    if "error code 401" in text:
        return BadInput(
            f"the tracking server {store} refuses this user or password: "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if "error code 403" in text:
        return BadInput(f"the tracking server {store} does not permit this: {text[:200]}")
    if "disk is full" in text or number in (errno.ENOSPC, errno.EDQUOT):
        return BadInput(f"the disk of the tracking store {store} is full: free some space; measurements are kept")
    if "readonly database" in text or number in (errno.EROFS, errno.EACCES):
        return BadInput(f"the tracking store {store} is not writable: {text[:200]}")
    if refused := _REFUSED.search(text):
        return BadInput(f"the database {store} refuses: {refused[0]}")
    if _NO_ANSWER.search(text) or type(error).__name__ in ("ConnectionError", "ConnectTimeout", "ReadTimeout"):
        return StoreAway(f"the tracking store {store} does not answer: {text[:200]}")
    return BadInput(f"the tracking store {store} cannot be used: {text[:300]}")
