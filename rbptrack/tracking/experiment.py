"""Find and create one MLflow experiment, and search its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rbptrack.base.errors import BadInput, StoreAway
from rbptrack.base.escape import file_part
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import Experiment as MlflowExperiment
    from mlflow.entities import Run

_KIND_TAG = "mlflow.experimentKind"
_TRAINING = "custom_model_development"  # without this value, MLflow shows its page for LLM applications
_MAX_RUNS_PER_PAGE = 1000  # largest number of runs in one answer of the store
_SPECIAL_IN_ADDRESSES = set("?#%")


class Experiment:
    """One MLflow experiment and its runs. The experiment is created when something is logged.

    Args:
        connection: the connection to the store.
        name: the name of the experiment.
        description: Markdown for the experiment's page, if it has no description yet.

    Attributes:
        tags: the tags of the experiment. They are read when the experiment is first found.

    """

    def __init__(self, connection: Connection, name: str, description: str) -> None:
        self.connection = connection
        self.name = name
        self.tags: dict[str, str] = {}
        self._description = description
        self._id: str | None = None

    def find(self) -> str | None:
        """Return the ID of the experiment, or None if it does not exist. Raises BadInput if it was deleted."""
        if self._id is None and self.connection.exists:
            experiment = self._fetch_experiment()
            if experiment is not None:
                self._id = str(experiment.experiment_id)
                self.tags = dict(experiment.tags)
        return self._id

    def find_or_create(self) -> str:
        """Return the ID of the experiment, and create it if it does not exist. Raises BadInput if it was deleted."""
        client = self.connection.client  # creates a missing SQLite file
        if self.find() is None:
            from mlflow.exceptions import MlflowException

            tags = {_KIND_TAG: _TRAINING, Tag.NOTE: self._description}
            with self.connection.translated_errors():
                try:
                    self._id = client.create_experiment(self.name, self._artifact_location(), tags)
                    self.tags = tags
                except MlflowException:
                    if self.find() is None:  # if it is found, another process created it at the same time
                        raise
        return str(self._id)

    def describe(self) -> None:
        """Create the experiment with its description, or set the description again. Both need write access."""
        self.find_or_create()
        self.set_tag(Tag.NOTE, self.tags.get(Tag.NOTE, self._description), always=True)

    def set_tag(self, name: str, value: str, *, always: bool = False) -> None:
        """Set a tag of the experiment. If it has this value already, set it only with `always`."""
        experiment_id = self.find_or_create()
        if always or self.tags.get(name) != value:
            with self.connection.translated_errors():
                self.connection.client.set_experiment_tag(experiment_id, name, value)
            self.tags[name] = value

    def search(self, condition: str, *, max_runs: int = 0) -> Iterator[Run]:
        """Yield runs that are not deleted, the newest first. Yield none if the store or experiment does not exist yet.

        Args:
            condition: a filter in MLflow's language, such as `attributes.status = 'FINISHED'`; empty for all runs.
            max_runs: the largest number of runs; 0 for all.

        """
        experiment_id = self.find()
        page_token = None
        while experiment_id is not None:
            client = self.connection.client
            with self.connection.translated_errors():
                page = client.search_runs(
                    [experiment_id],
                    condition,
                    max_results=max_runs or _MAX_RUNS_PER_PAGE,
                    order_by=["attributes.start_time DESC"],
                    page_token=page_token,
                )
            yield from page
            if max_runs or not page.token:
                return
            if page.token == page_token:
                raise StoreAway(f"the tracking store {self.connection.shown_address} sends one page of runs for ever")
            page_token = page.token

    def run_address(self, run_id: str) -> str:
        """Return the address of a run's page. It is empty if the store is not a server, or is Databricks."""
        page = self.connection.page_address
        if not page:
            return ""
        return f"{page}/#/experiments/{self.find()}/runs/{run_id}?workflowType=machine_learning"

    def _fetch_experiment(self) -> MlflowExperiment | None:
        client = self.connection.client
        with self.connection.translated_errors():
            experiment: MlflowExperiment | None = client.get_experiment_by_name(self.name)
        if experiment is not None and experiment.lifecycle_stage == "deleted":
            raise BadInput(
                f"the experiment {experiment.name} was deleted. Restore it (mlflow experiments restore -x "
                f"{experiment.experiment_id}), or name another one "
                "(tracking.experiment=NAME; --experiment NAME for other commands)"
            )
        return experiment

    def _artifact_location(self) -> str | None:
        """Return the address of the folder for artifacts. None means MLflow's default, which is ./mlruns/<id>.

        The default is used if the SQLite file is in the working folder, unless MLflow would misread the folder's path
        as an address.
        """
        database = self.connection.database
        if database is None or (database.parent == Path.cwd() and not _SPECIAL_IN_ADDRESSES & set(str(database))):
            return None
        return (database.parent / "mlruns" / file_part(self.name)).as_uri()
