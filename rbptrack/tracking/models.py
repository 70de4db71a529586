"""Create one LoggedModel of MLflow for each measured model. The metrics of its measurements point to it.

The Models tab of MLflow and `mlflow.search_logged_models` then show each model with its metrics on all datasets. MLflow
does not get the weights: the models are registered as external models.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rbptrack.measurement.columns import DISTINGUISHING_COLUMNS
from rbptrack.measurement.document import PARTS, TAG_PREFIX, Measurement
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

_DISTINGUISHING = [name for name in DISTINGUISHING_COLUMNS if PARTS[name].of_model] + ["imported_as"]
_NOT_IN_NAMES = str.maketrans(dict.fromkeys("/:.%\"'", "_"))  # MLflow refuses names with these characters


def find_or_create_logged_model(experiment: Experiment, measurement: Measurement, run_id: str) -> str | None:
    """Return the ID of the LoggedModel of a measurement, and create the LoggedModel if it does not exist.

    The caller must hold the store's lock. If an earlier process was interrupted while it created the LoggedModel, this
    function completes it. The source run of such a LoggedModel is the unfinished run of that process, which was
    deleted.

    The measurement's run becomes the source run of a new LoggedModel. Returns None if the server is too old for
    LoggedModels.
    """
    from mlflow.entities import LoggedModelStatus
    from mlflow.exceptions import MlflowException

    client = experiment.connection.client
    with experiment.connection.translated_errors():
        try:
            models = client.search_logged_models(
                [experiment.find_or_create()],
                filter_string=f"tags.`{Tag.LOGGED_MODEL}` = '{_model_hash(measurement)}'",
                order_by=[{"field_name": "creation_time", "ascending": True}],
                max_results=1,
            )
            model = models[0] if models else _create_logged_model(experiment, measurement, run_id)
            if model.status != LoggedModelStatus.READY:
                _complete_logged_model(client, model)
        except MlflowException as error:
            if error.error_code == "ENDPOINT_NOT_FOUND":
                return None
            raise
    return str(model.model_id)


def _create_logged_model(experiment: Experiment, measurement: Measurement, run_id: str) -> LoggedModel:
    """Create a LoggedModel without the file that describes it. Its status is PENDING."""
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

    names = [name for name, part in PARTS.items() if part.of_model]
    run_tags = measurement.tags()
    tags = {TAG_PREFIX + name: run_tags[TAG_PREFIX + name] for name in names if TAG_PREFIX + name in run_tags}
    params = measurement.params()
    return experiment.connection.client.create_logged_model(
        experiment.find_or_create(),
        name=_model_name(measurement),
        source_run_id=run_id,
        tags=tags | {Tag.LOGGED_MODEL: _model_hash(measurement), MLFLOW_MODEL_IS_EXTERNAL: "true"},
        params={name: params[name] for name in names if name in params},
        model_type="causal language model",
    )


def _complete_logged_model(client: MlflowClient, model: LoggedModel) -> None:
    """Write the file that describes a LoggedModel, which MLflow needs to register it, and set its status to READY.

    This function uses private functions of MLflow, because the public `mlflow.create_external_model` cannot complete
    an existing model, and writes to the process's default store instead of this one.
    """
    from mlflow.entities import LoggedModelStatus
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.models.utils import get_external_mlflow_model_spec

    with tempfile.TemporaryDirectory() as folder:
        get_external_mlflow_model_spec(model).save(Path(folder, MLMODEL_FILE_NAME))
        client.log_model_artifacts(model.model_id, folder)
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def _model_name(measurement: Measurement) -> str:
    """Return a name that MLflow accepts, such as `pythia-1_4b@step1000` or `gemma-270m Q4_K_M`."""
    dtype = measurement.dtype if measurement.dtype != "float32" else ""
    parts = [measurement.model, measurement.weights, dtype]
    return " ".join(filter(None, parts)).translate(_NOT_IN_NAMES)


def _model_hash(measurement: Measurement) -> str:
    """Return a hash of the fields that distinguish models, such as names, weights and precision."""
    values = [getattr(measurement, name) for name in _DISTINGUISHING]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]
