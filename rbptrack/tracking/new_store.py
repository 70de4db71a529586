"""Making a local store: under another name, and renamed into place when it is whole."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rbptrack.base.files import make_folder, put, sync
from rbptrack.base.names import file_name
from rbptrack.config.paths import home
from rbptrack.tracking.local import artifact_folder, database_of
from rbptrack.tracking.uri import is_server

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

_TRAINING = {"mlflow.experimentKind": "custom_model_development"}  # else the UI opens its pages for LLM applications


def make(database: Path, experiment: str, fill: Callable[[str], object]) -> None:
    """Make a store under another name and rename it into place: an interrupt leaves none, or a whole one.

    The caller holds the store's lock, so that what stands under the other name was left by a dead process.
    """
    unfinished = database.with_name(f"{database.name}.unfinished")
    for suffix in ("", "-wal", "-shm", "-journal"):
        unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)
    make_folder(artifact_folder(database, experiment))
    # Tables are made in a temporary folder, because MLflow fails to make them in one with quotes in its path.
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "mlflow.db")
        # No pool, so that MLflow's connections are closed after each use and not when the process ends.
        settings = {"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool", "_MLFLOW_SERVER_ARTIFACT_ROOT": folder}
        with _loggers_kept(), _environment(**settings):
            fill(f"sqlite:///{made}")
        with closing(sqlite3.connect(made)) as source, closing(sqlite3.connect(unfinished)) as target:
            source.backup(target)
            others = artifact_folder(database, "Default").as_uri()  # MLflow's own experiment
            target.execute("update experiments set artifact_location = ? where name = 'Default'", (others,))
            target.commit()
            # Write-ahead logging: concurrent writers wait a third of the time.
            target.execute("pragma journal_mode=WAL")
    put(unfinished, database, durable=True)
    sync([database.parent.parent])  # the folder may be new, and another's


def make_experiment(client: MlflowClient, name: str, uri: str, artifacts: str) -> Experiment:
    """Make an experiment, or return the one that another process was faster to make.

    Where no server stands between, the client says where artifacts go: below `artifacts`, a folder or bucket, if given.
    """
    from mlflow.exceptions import MlflowException

    location = None
    if artifacts:
        location = f"{artifacts.rstrip('/')}/{file_name(name)}"
    elif (database := database_of(uri)) is not None:
        location = artifact_folder(database, name).as_uri()
    elif not is_server(uri):
        location = (home() / "artifacts" / file_name(name)).as_uri()
    try:
        made = client.create_experiment(name, artifact_location=location, tags=_TRAINING)
        return client.get_experiment(made)
    except MlflowException:
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            raise
        return experiment


@contextmanager
def _loggers_kept() -> Iterator[None]:
    """Undo what migrations do to loggers: some versions of alembic's set-up disable all that exist."""
    loggers = [logger for logger in logging.Logger.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    before = [(logger, logger.disabled) for logger in loggers]
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
    try:
        yield
    finally:
        for logger, disabled in before:
            logger.disabled = disabled
        root.handlers[:] = handlers
        root.setLevel(level)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
