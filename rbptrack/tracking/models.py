"""Create one LoggedModel of MLflow for each measured model. The metrics of its measurements point to it.

`mlflow.search_logged_models` then finds models by their metrics on a dataset. MLflow does not get the weights: the
models are external models. The labels of a model, such as its family, are tags, which can change. Its name cannot: it
is the model's name when it was first measured.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from rbptrack.measurement.columns import DISTINGUISHING_COLUMNS
from rbptrack.measurement.document import PARTS, TAG_PREFIX, Measurement, names_of
from rbptrack.measurement.parts import Label
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel

_OF_MODEL = [name for name, part in PARTS.items() if part.of_model]
_LABELS = [name for name in _OF_MODEL if name in names_of(Label)]
_DISTINGUISHING = [name for name in DISTINGUISHING_COLUMNS if name in _OF_MODEL and name not in _LABELS]
_NOT_IN_NAMES = str.maketrans(dict.fromkeys("/:.%\"'", "_"))  # MLflow refuses names with these characters


class LoggedModels:
    """The LoggedModels of the measurements of one experiment. A caller of its methods must hold the store's lock."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._ids: dict[str, str] = {}  # of the LoggedModels that this process used, by `_model_hash`

    def find_or_create(self, measurement: Measurement, run_id: str) -> str | None:
        """Return the ID of the LoggedModel of a measurement, and create the LoggedModel if it does not exist.

        If an earlier process was interrupted while it created the LoggedModel, this method completes it.

        The measurement's run becomes the source run of a new LoggedModel. The result is None if the server is too old
        for LoggedModels.
        """
        from mlflow.entities import LoggedModelStatus
        from mlflow.exceptions import MlflowException

        key = _model_hash(measurement)
        if key in self._ids:
            return self._ids[key]
        client = self._experiment.connection.client
        with self._experiment.connection.translated_errors():
            try:
                model = self._find(key) or self._create(measurement, run_id, key)
                if model.status != LoggedModelStatus.READY:
                    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
            except MlflowException as error:
                if error.error_code == "ENDPOINT_NOT_FOUND":
                    return None
                raise
        self._ids[key] = str(model.model_id)
        return self._ids[key]

    def relabel(self, measurement: Measurement) -> None:
        """Set the labels of a measurement as tags of its LoggedModel, if it has one."""
        from mlflow.exceptions import MlflowException

        client = self._experiment.connection.client
        try:
            model = self._find(_model_hash(measurement))
        except MlflowException as error:
            if error.error_code == "ENDPOINT_NOT_FOUND":
                return
            raise
        if model is not None:
            tags = _label_tags(measurement)
            client.set_logged_model_tags(model.model_id, tags)
            for tag in [TAG_PREFIX + name for name in _LABELS]:
                if tag in model.tags and tag not in tags:
                    client.delete_logged_model_tag(model.model_id, tag)

    def _find(self, key: str) -> LoggedModel | None:
        """Return the oldest LoggedModel with a key from `_model_hash`."""
        models = self._experiment.connection.client.search_logged_models(
            [self._experiment.find_or_create()],
            filter_string=f"tags.`{Tag.LOGGED_MODEL}` = '{key}'",
            order_by=[{"field_name": "creation_time", "ascending": True}],
            max_results=1,
        )
        return models[0] if models else None

    def _create(self, measurement: Measurement, run_id: str, key: str) -> LoggedModel:
        """Create a LoggedModel with a key from `_model_hash`. Its status is PENDING."""
        from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

        params = measurement.params()
        return self._experiment.connection.client.create_logged_model(
            self._experiment.find_or_create(),
            name=_model_name(measurement),
            source_run_id=run_id,
            tags=_label_tags(measurement) | {Tag.LOGGED_MODEL: key, MLFLOW_MODEL_IS_EXTERNAL: "true"},
            params={name: params[name] for name in _OF_MODEL if name in params},
            model_type="causal language model",
        )


def _label_tags(measurement: Measurement) -> dict[str, str]:
    """Return the labels of the measured model as tags. Unknown labels are left out."""
    tags = measurement.tags()
    return {TAG_PREFIX + name: tags[TAG_PREFIX + name] for name in _LABELS if TAG_PREFIX + name in tags}


def _model_name(measurement: Measurement) -> str:
    """Return a name that MLflow accepts, such as `pythia-1_4b@step1000` or `gemma-270m Q4_K_M`."""
    dtype = measurement.dtype if measurement.dtype != "float32" else ""
    parts = [measurement.model, measurement.weights, dtype]
    return " ".join(filter(None, parts)).translate(_NOT_IN_NAMES)


def _model_hash(measurement: Measurement) -> str:
    """Return a hash of what distinguishes models, such as weights and precision, but no label.

    Imports without a commit are told apart by the names and settings in the imported file.
    """
    values = [getattr(measurement, name) for name in (*_DISTINGUISHING, "imported_as")]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]
