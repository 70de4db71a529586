"""Where the tracking store is, whether it answers, and its errors in words; no password in any of them."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mlflow.exceptions import MlflowException

from rbptrack.config.paths import home
from rbptrack.config.schema import TrackingConfig
from rbptrack.errors import BadInput, RbptrackError, StoreAway

_REACH_SECONDS = 5
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")
_NOBODY = re.compile(
    r"Max retries exceeded|Connection refused|Connection aborted|timed? ?out|error code 50\d|50\d error responses"
    r"|could not (connect|receive|translate)|server closed the connection|connection (failed|is bad|to server)"
    r"|database is locked|Name or service not known|failed to resolve|SSL connection has been closed",
    re.IGNORECASE,
)


def resolve_uri(config: TrackingConfig) -> str:
    """The tracking URI: the config's, else MLFLOW_TRACKING_URI, else the local database; absolute.

    User and password of a server's address move into the environment, from where MLflow takes them.

    Raises:
        BadInput: it is no address of a tracking store.

    """
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI", "") or f"sqlite:///{home() / 'mlflow.db'}"
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        uri = f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    if scheme in ("", "file"):
        raise BadInput(
            f"tracking.uri={uri}: MLflow no longer keeps runs in plain files; "
            "give sqlite:////absolute/path/mlflow.db, a database or http(s)://server"
        )
    if scheme not in (*_DATABASES, *_SERVERS, "databricks"):
        raise BadInput(
            f"tracking.uri={without_password(uri)}: {scheme}:// is no kind of tracking store. "
            "Kinds: sqlite:////path/mlflow.db, postgresql://user@host/database, http(s)://server"
        )
    if scheme in _SERVERS and parts.username:
        os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username)
        os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
        uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return uri


def without_password(uri: str) -> str:
    """The URI with `***` for a password, for people and logs."""
    password = urlsplit(uri).password
    return uri.replace(f":{password}@", ":***@") if password else uri


def reach(uri: str) -> None:
    """Knock at a server or database within seconds, because MLflow itself would go on trying for minutes.

    Raises:
        StoreAway: nothing answers.
        BadInput: a database answers and refuses, or its driver is not installed.

    """
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme in _SERVERS:
        try:
            urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_REACH_SECONDS).close()  # noqa: S310
        except urllib.error.HTTPError:
            pass  # whatever it says, something answers
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise StoreAway(
                f"no tracking server answers at {uri} ({reason}): is it running, is the address right?"
            ) from (error)
    elif scheme in _DATABASES[1:]:
        _reach_database(uri)


def _reach_database(uri: str) -> None:
    import sqlalchemy

    arguments = {"connect_timeout": _REACH_SECONDS} if uri.startswith(("postgresql", "mysql")) else {}
    try:
        engine = sqlalchemy.create_engine(uri, connect_args=arguments)
        engine.connect().close()
        engine.dispose()
    except ModuleNotFoundError as error:
        extra = " (pip install 'rbptrack[postgres]')" if uri.startswith("postgresql") else ""
        raise BadInput(f"{without_password(uri)} needs the Python package {error.name}{extra}") from error
    except sqlalchemy.exc.ArgumentError as error:
        raise BadInput(f"tracking.uri={without_password(uri)} is not a database's address") from error


def check_place(database: Path, artifacts: str, experiment: str) -> None:
    """BadInput where a local store was moved: MLflow keeps absolute paths to the artifacts."""
    here = database.parent / "artifacts" / experiment
    there = Path(unquote(urlsplit(artifacts).path))
    if artifacts.startswith("file:") and here != there and here.is_dir() and not there.exists():
        raise BadInput(
            f"the tracking store {database} was moved: its runs look for artifacts under {there}, which is gone.\n"
            f"Repair: python -m rbptrack sync moved=true tracking.uri=sqlite:///{database}"
        )


def relocate(database: Path, experiment: str) -> int:
    """Point a moved local store's artifact addresses at the folder beside its database; returns how many changed.

    All in one transaction. Only addresses under the experiment's old folder change.
    """
    new = (database.parent / "artifacts" / experiment).as_uri()
    with closing(sqlite3.connect(database)) as connection, connection:
        rows = connection.execute("select artifact_location from experiments where name = ?", (experiment,)).fetchone()
        if rows is None:
            raise BadInput(f"{database} has no experiment {experiment!r}; choose one: tracking.experiment=NAME")
        old = rows[0]
        changed = 0
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            changed += connection.execute(
                f"update {table} set {column} = ? || substr({column}, ?) where {column} = ? or {column} like ? || '/%'",  # noqa: S608
                (new, len(old) + 1, old, old),
            ).rowcount
    return changed


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn MLflow's and the database's errors into one line; a password in the URI is not repeated.

    Raises:
        StoreAway: nobody answers now.
        BadInput: any other refusal.

    """
    try:
        yield
    except RbptrackError:
        raise
    except Exception as error:
        if not (isinstance(error, (MlflowException, OSError, sqlite3.Error)) or "sqlalchemy" in type(error).__module__):
            raise
        raise _in_words(error, uri) from error


def _in_words(error: Exception, uri: str) -> BadInput:
    shown, text = without_password(uri), _cleaned(" ".join(str(error).split()), uri)
    if "out-of-date database schema" in text or "Can't locate revision" in text or "schema version" in text:
        import mlflow

        return BadInput(
            f"the tracking store {shown} was written by another MLflow than this one ({mlflow.__version__}). "
            f"If it is older: mlflow db upgrade {shown} (keep a copy); if it is newer: pip install --upgrade mlflow"
        )
    if "error code 401" in text:
        return BadInput(
            f"the tracking server {shown} refuses this user or password: "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if "error code 403" in text or ("Permission denied" in text and uri.startswith(_SERVERS)):
        return BadInput(f"the tracking server {shown} does not permit this: {text[:200]}")
    if "disk is full" in text or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return BadInput(f"the disk of the tracking store {shown} is full: free some space; what was measured is kept")
    if "readonly database" in text or getattr(error, "errno", None) in (errno.EROFS, errno.EACCES):
        return BadInput(f"the tracking store {shown} is not writable: {text[:200]}")
    refused = re.search(
        r'password authentication failed|(role|database) "[^"]*" does not exist|no password supplied', text
    )
    if refused:
        return BadInput(f"the database {shown} refuses: {refused[0]}")
    if _NOBODY.search(text) or type(error).__name__ in ("ConnectionError", "ConnectTimeout", "ReadTimeout"):
        return StoreAway(f"the tracking store {shown} cannot be reached: {text[:200]}")
    return BadInput(f"the tracking store {shown} cannot be used: {text[:300]}")


def _cleaned(text: str, uri: str) -> str:
    """Text without the password, in whatever form it was given."""
    text = text.replace(uri, without_password(uri))
    given = urlsplit(uri).password or ""
    for secret in {given, unquote(given), quote(unquote(given)), os.environ.get("MLFLOW_TRACKING_PASSWORD", "")}:
        text = text.replace(secret, "***") if secret else text
    return text
