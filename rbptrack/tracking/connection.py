"""The way to one experiment of a tracking server or database: opening it, and what its faults mean."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rbptrack.base.addresses import DATABASES, scheme
from rbptrack.base.errors import BadInput, StoreAway
from rbptrack.base.files import TemporaryFolder
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking import local, moved, new_store
from rbptrack.tracking.explained import explained
from rbptrack.tracking.reach import SILENT, reach, say_slow
from rbptrack.tracking.tables import Tables, index_fingerprints
from rbptrack.tracking.uri import is_server, resolve_uri, run_page

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from rbptrack.tracking.client import Client

os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # else two lines for each run of a server

_ANALYSES = "-analyses"
_AWAY_SECONDS = 30.0  # how long a store that did not answer is not asked again
_SLOW_SECONDS = 10.0  # after which a message reports the wait
_IMPATIENT = "10"  # seconds of a request, once a server was waited for in vain

log = logging.getLogger(__name__)


class Connection:
    """One experiment of one tracking server or database; `Reader` and `Writer` use it.

    Nothing is opened, made or asked before `open`.

    Args:
        config: says where; see `resolve_uri`.
        create: whether `open` makes an experiment that is not there.

    Attributes:
        uri: the address, absolute; it holds no password.
        shown: the same, also where a copy is read.
        experiment: the experiment's name.
        database: the SQLite file of a local store; None for any other.
        tables: the SQLite file that is read: the database, or its copy where the store cannot be written.

    Raises:
        BadInput: the config does not give the address of a tracking store.

    """

    def __init__(self, config: TrackingConfig, *, create: bool = True) -> None:
        for name in ("alembic", "mlflow", "sqlalchemy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.uri = resolve_uri(config)
        self.shown = self.uri
        self.experiment = config.experiment
        self.database = local.database_of(self.uri)
        self.tables = self.database
        self._config = config
        self._create_missing = create
        self._client: MlflowClient | None = None
        self._source: Tables | None = None
        self._analyses: Self | None = None
        self._experiment_id = ""
        self._stood_in: Path | None = None
        self._away_until = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the state for another process, which opens the store itself."""
        return partial(type(self), create=self._create_missing), (self._config,)

    def another(self) -> Self:
        """Return a connection of its own to the same place, for another thread: what it waits for, this one does
        not.
        """
        return type(self)(self._config, create=self._create_missing)

    def analyses(self) -> Self:
        """Return the experiment `<name>-analyses` of the same store: its hundreds of metrics would be columns of this
        one.
        """
        if self._analyses is None:
            self._analyses = type(self)(replace(self._config, experiment=f"{self.experiment}{_ANALYSES}"))
        return self._analyses

    @property
    def experiment_ids(self) -> list[str]:
        """MLflow's ids of the experiment and of its analyses', where that exists; opens the store."""
        source = self.source
        with self.explained():
            analyses = source.experiment(f"{self.experiment}{_ANALYSES}")
        return [self._experiment_id, *([analyses.id] if analyses else [])]

    @property
    def new_artifacts(self) -> str:
        """The folder or bucket for the artifacts of an experiment that is made; empty for the usual place."""
        return self._config.artifacts

    @property
    def exists(self) -> bool:
        """False for a local database that has not been made yet; True for every other store, reachable or not."""
        return self.database is None or local.is_made(self.database)

    @property
    def read_only(self) -> bool:
        """Whether this is a local store that is there and cannot be written: it is read through a copy."""
        return self.database is not None and self.exists and not local.writable(self.database)

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the experiment; opens the store."""
        return self._experiment_id if self.source else ""

    @property
    def run_page(self) -> str:
        """The address of a run's page, `{}` for the run's ID; empty where no server's address is known."""
        return f"{self.shown.rstrip('/')}/{run_page(self.experiment_id)}" if is_server(self.uri) else ""

    def check_writable(self) -> None:
        """Raise BadInput or StoreAway unless the store can be written, found out early; a local one is not made for
        it.
        """
        if self.database is None:
            self.open()
        else:
            local.check_writable(self.database)

    def open(self) -> MlflowClient:
        """Return the client, with database and experiment made if they are not there yet.

        Raises:
            StoreAway: nothing answers there now, or nothing did a moment ago.
            BadInput: it answers but cannot be used: permission is lacking, another MLflow wrote it, or the experiment
                was deleted or moved.

        """
        if time.monotonic() < self._away_until:
            raise StoreAway(f"the tracking store {self.shown} cannot be reached")
        if self._client is None:
            if self.database is None:
                self._client = self._connect()
            elif self.read_only:
                self._read_copy(self.database)
                self._client = self._connect()
            else:
                local.check_writable(self.database)
                with self.explained(), local.alone(self.database):
                    self._client = self._connect()
        return self._client

    @property
    def source(self) -> Tables | Client:
        """What answers questions about runs; opens the store, without MLflow where it is local and made."""
        if self._source:
            return self._source
        client = None if self._opened_to_read() else self.open()  # asked each time: a server may be away
        tables = Tables(self.uri)
        if client is None or (scheme(self.uri) in DATABASES and tables.are_known()):
            self._source = tables
            return tables
        from rbptrack.tracking.client import Client

        return Client(client)

    def _opened_to_read(self) -> bool:
        """Open a local store that is made, ours, of a known MLflow and at its place; False where `open` has to."""
        if self.database is None or not self.exists or self._client is not None:
            return False
        local.check_ours(self.database)
        if self.read_only:
            self._read_copy(self.database)
        tables = Tables(self.uri)
        with self.explained():
            experiment = tables.experiment(self.experiment) if tables.are_known() else None
        if experiment is None or experiment.stage == "deleted":
            return False
        if moved.stood_in(self.database, experiment.artifacts, self.experiment) is not None:
            return False
        self._experiment_id = experiment.id
        return True

    def _read_copy(self, database: Path) -> None:
        """Read a copy of the database: SQLite and MLflow both write beside or into one that they only read."""
        if self.tables != database:
            return
        local.check_ours(database)
        self._copy = TemporaryFolder()
        with self.explained():
            self.tables = local.copied(database, self._copy.path)
        self.uri = f"sqlite:///{self.tables}"
        self._create_missing = False

    def repair_moved(self) -> int:
        """Relocate a local store that was moved, even without artifacts, else BadInput; returns how many addresses."""
        if self.database is None or not self.exists:
            raise BadInput(f"moved=true repairs a local database; {self.shown} is none")
        with self.explained(), local.alone(self.database):
            return moved.repair(self.database, self.experiment)

    def located(self, address: str) -> str:
        """Return the address of an artifact; in a copy that cannot be written, its place beside the database."""
        if self._stood_in is None or self.database is None:
            return address
        return moved.located(address, self.database, self._stood_in)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Put errors into words; after one that means that nothing answers, the next calls do not wait for it again.

        Raises:
            StoreAway: nothing answers there now.
            BadInput: any other refusal.

        """
        slow = threading.Timer(_SLOW_SECONDS, say_slow, [self.shown])
        slow.daemon = True
        began = time.monotonic()
        try:
            if self.database is None:
                slow.start()
            with explained(self.uri):
                yield
        except StoreAway:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            if time.monotonic() - began > _SLOW_SECONDS:  # it was there and silent, not refusing
                SILENT.add(self.uri)
                patience = os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]
                os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = min(_IMPATIENT, patience, key=float)
            raise
        finally:
            slow.cancel()

    def _connect(self) -> MlflowClient:
        from mlflow import MlflowClient

        local.commit_durably()
        with self.explained():
            reach(self.uri)
            if self.database is not None and not self.exists and self._create_missing:
                new_store.make(self.database, self.experiment, lambda uri: self._make_experiment(MlflowClient(uri)))
            client = MlflowClient(self.uri)
            experiment = client.get_experiment_by_name(self.experiment) or self._make_experiment(client)
            if experiment.lifecycle_stage == "deleted":
                raise BadInput(
                    f"the experiment {self.experiment!r} was deleted in the UI. Restore it there (or with `mlflow "
                    f"experiments restore -x {experiment.experiment_id}`), or choose another: tracking.experiment=NAME"
                )
            if self.database is not None:
                self._settle(self.database, experiment.artifact_location)
                local.index_tags(self.database)
            elif scheme(self.uri) == "postgresql":
                index_fingerprints(self.uri)
            self._experiment_id = experiment.experiment_id
        return client

    def _settle(self, database: Path, artifacts: str) -> None:
        """Make a store that was copied or moved its own: writing to it must never reach the original.

        Raises:
            BadInput: artifacts are lacking that the original has.

        """
        old = moved.stood_in(database, artifacts, self.experiment)
        if old is None:
            return
        moved.check_files(database, old, self.tables or database)
        if local.writable(database):
            changed = moved.relocate(database, old)
            log.warning("the store %s was copied from %s: %d paths updated", database, old, changed)
        else:
            self._stood_in = old

    def _make_experiment(self, client: MlflowClient) -> Any:
        if not self._create_missing:
            names = ", ".join(e.name for e in client.search_experiments() if e.name != "Default") or "none"
            raise BadInput(
                f"the tracking store {self.shown} has no experiment {self.experiment!r}. Experiments: {names}; "
                "choose one: tracking.experiment=NAME"
            )
        return new_store.make_experiment(client, self.experiment, self.uri, self._config.artifacts)
