"""Addresses of tracking stores: which one is meant, and the way to a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rbptrack.base.addresses import SERVERS, from_environment, refuse_secret, scheme
from rbptrack.base.errors import BadInput
from rbptrack.config.paths import home
from rbptrack.config.schema import TrackingConfig

if TYPE_CHECKING:
    from sqlalchemy import Connection

TRAINING_MODE = "workflowType=machine_learning"
"""Part of an address of MLflow's pages; without it they open among those for generative AI."""


def is_server(uri: str) -> bool:
    """Return whether a URI names a tracking server rather than a database."""
    return scheme(uri) in SERVERS


def resolve_uri(config: TrackingConfig) -> str:
    """Return the tracking URI: the config's, else MLFLOW_TRACKING_URI, else the local database; absolute, without a
    password.

    Raises:
        BadInput: it is not the address of a tracking store, or the config's holds a password.

    """
    refuse_secret("tracking.uri", config.uri)
    uri = config.uri or from_environment() or f"sqlite:///{home() / 'mlflow.db'}"
    if uri.startswith("sqlite:///"):
        path, mark, query = uri.removeprefix("sqlite:///").partition("?")
        if "%" in unquote(path) or "%3F" in path.upper():
            raise BadInput(f"tracking.uri={uri}: MLflow cannot keep a database at a path with ? or % in it")
        return f"sqlite:///{Path(unquote(path)).absolute()}{mark}{query}"
    return uri


@contextmanager
def opened(uri: str, **options: Any) -> Iterator[Connection]:
    """Yield a connection to a database that several users share; options are those of SQLAlchemy's engine."""
    import sqlalchemy  # a fifth of what reading a local store takes

    engine = sqlalchemy.create_engine(uri, **options)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def run_page(experiment_id: str) -> str:
    """Return the address of a run's page below a server's, `{}` for the run's ID."""
    return f"#/experiments/{experiment_id}/runs/{{}}?{TRAINING_MODE}"
