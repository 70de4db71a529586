"""Link measurements with the MLflow run that trains the model."""

from __future__ import annotations

import mlflow

from rbptrack.tracking.names import Tag
from rbptrack.tracking.store import Store

_MAX_IDS = 240  # the newest. MLflow keeps 8,000 characters of a tag, and an ID with its comma has 33


def active_run_id() -> str:
    """Return the ID of the MLflow run that is active in this process, or an empty text if there is none."""
    run = mlflow.active_run()
    return run.info.run_id if run else ""


def link_training_run(store: Store, run_id: str, training_run_id: str) -> None:
    """Tag a measurement with the run that trains the model, and this run with the measurement.

    Args:
        store: the store of the measurement.
        run_id: the ID of the measurement.
        training_run_id: the ID of the run that trains the model, in the store that `mlflow.get_tracking_uri` names.

    """
    with store.connection.translated_errors():
        client = mlflow.MlflowClient()
        earlier = client.get_run(training_run_id).data.tags.get(Tag.MEASUREMENTS, "")
        ids = [run_id, *(each for each in earlier.split(",") if each and each != run_id)]
        client.set_tag(training_run_id, Tag.MEASUREMENTS, ",".join(ids[:_MAX_IDS]))
        store.connection.client.set_tag(run_id, Tag.TRAINING_RUN, training_run_id)
