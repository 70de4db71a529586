"""Fixtures of tests that need a store and finished cells, and the runs that MLflow itself finds in a store."""

from __future__ import annotations

from mlflow import MlflowClient
from mlflow.entities import Run

from rbptrack.tracking import Store
from tests.store_fixtures import store, write_cell

__all__ = ["runs_in", "store", "write_cell"]


def runs_in(store: Store, experiment: str = "rbptrack") -> list[Run]:
    """Return all runs of an experiment, as MLflow's own client finds them."""
    client = MlflowClient(store.uri)
    entity = client.get_experiment_by_name(experiment)
    return list(client.search_runs([entity.experiment_id])) if entity else []
