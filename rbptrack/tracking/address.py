"""Where the tracking store is, and its errors in words; no password in either."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mlflow.exceptions import MlflowException

from rbptrack.config import TrackingConfig
from rbptrack.errors import BadInput


def home() -> Path:
    """The folder that holds everything local: ./mlruns of the working folder."""
    return Path.cwd() / "mlruns"


def resolve_uri(config: TrackingConfig) -> str:
    """The tracking URI: the config's, else MLFLOW_TRACKING_URI, else the local database; absolute."""
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI", "") or f"sqlite:///{home() / 'mlflow.db'}"
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        uri = f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    scheme = urlsplit(uri).scheme
    if scheme in ("", "file"):
        raise BadInput(
            f"tracking.uri={uri}: MLflow no longer keeps runs in plain files; "
            "give sqlite:////absolute/path/mlflow.db, a database or http(s)://server"
        )
    return uri


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn MLflow's and the database's errors into one line; a password in the URI is not repeated."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        shown = without_password(uri)
        text = " ".join(str(error).split())
        if (
            "out-of-date database schema" in text
            or "Can't locate revision" in text
            or ("SCHEMA" in text.upper() and "version" in text)
        ):
            import mlflow

            raise BadInput(
                f"the tracking store {shown} was written by another MLflow than this one ({mlflow.__version__}). "
                f"If it is older: mlflow db upgrade {shown} (keep a copy); if it is newer: pip install --upgrade mlflow"
            ) from error
        if isinstance(error, (MlflowException, OSError, sqlite3.Error)) or "sqlalchemy" in type(error).__module__:
            raise BadInput(f"the tracking store {shown} cannot be used: {text[:300].replace(uri, shown)}") from error
        raise


def without_password(uri: str) -> str:
    """The URI with `***` for a password, for people and logs."""
    parts = urlsplit(uri)
    if parts.password:
        return uri.replace(f":{parts.password}@", ":***@")
    return uri
