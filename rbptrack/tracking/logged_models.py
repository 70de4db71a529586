"""The measured models as MLflow 3 lists them: a LoggedModel each, to which the metrics of its measurements point.

MLflow's Models tab then compares models and datasets, and `mlflow.search_logged_models` answers. The weights stay where
they are: to MLflow these are external models.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelInput, LoggedModelStatus, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.models.model import MLMODEL_FILE_NAME
from mlflow.models.utils import get_external_mlflow_model_spec
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

from rbptrack.tracking.client import is_unknown_endpoint
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.local import alone
from rbptrack.tracking.params import MeasurementParams, param_names
from rbptrack.tracking.record import Record
from rbptrack.tracking.schema import CURVES, NOT_OF_THE_RECORD, Tag

_UNKNOWN = "unknown"  # the digest of texts that an import did not say; MLflow takes no name without a digest
_KIND = "causal language model"
_NOT_IN_NAMES = str.maketrans(dict.fromkeys("/:.%\"'", "_"))  # MLflow refuses these
_PARAMS = ("repo", "revision", "commit", "dtype", "tf32", "training_tokens", "non_embedding_params", "total_params",
           "vocab_size")  # fmt: skip


@dataclass(frozen=True)
class Pointer:
    """What a measurement's metrics point to."""

    model_id: str
    dataset: str
    digest: str

    def metric(self, name: str, value: float, milliseconds: int, step: int) -> Metric:
        """Return a metric of the measurement that is one of its model, too."""
        return Metric(name, value, milliseconds, step, self.model_id, self.dataset, self.digest)


class LoggedModels:
    """Finds and creates the LoggedModels of one experiment."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ids: dict[str, str] = {}  # by identity
        self._created = set[str]()
        self._supported = True

    def of(self, record: Record) -> Pointer | None:
        """Return the pointer for a measurement's metrics, its model created if it is new; None where MLflow is too
        old.
        """
        identity = _identity(record)
        if self._supported and identity not in self._ids:
            client = self._connection.open()
            with self._connection.explained():
                try:
                    with self._alone():
                        self._ids[identity] = self._find(client, identity) or self._create(client, identity, record)
                except MlflowException as error:
                    if not is_unknown_endpoint(error):
                        raise
                    self._supported = False
        if not self._supported:
            return None
        return Pointer(self._ids[identity], record.tags[Tag.DATASET], record.dataset.get("digest") or _UNKNOWN)

    def link(self, run_id: str) -> None:
        """Let the metrics of a finished measurement, which has none, point to its model."""
        client = self._connection.open()
        with self._connection.explained():
            run = client.get_run(run_id)
        datasets = run.inputs.dataset_inputs if run.inputs else []
        dataset = {"digest": datasets[0].dataset.digest} if datasets else {}
        pointer = self.of(Record(run.info.run_name or "", run.data.tags, run.data.params, dataset=dataset))
        if pointer is None:
            return
        logged = [
            m for m in run.data.to_proto().metrics if m.key not in CURVES and not m.key.startswith(NOT_OF_THE_RECORD)
        ]
        with self._connection.explained():
            client.log_batch(run_id, [pointer.metric(m.key, m.value, m.timestamp, m.step) for m in logged])
            client.log_inputs(run_id, models=[LoggedModelInput(pointer.model_id)])

    def take_back(self) -> None:
        """Delete the models that this process created."""
        client = self._connection.open()
        self._ids.clear()
        with self._connection.explained():
            while self._created:
                client.delete_logged_model(self._created.pop())

    def _alone(self) -> AbstractContextManager[None]:
        """Hold a local store's lock: two processes that begin to measure one model would create it twice."""
        database = self._connection.database
        return nullcontext() if database is None else alone(database)

    def _find(self, client: MlflowClient, identity: str) -> str:
        oldest_first = [{"field_name": "creation_time", "ascending": True}]
        models = client.search_logged_models(
            [self._connection.experiment_id],
            filter_string=f"tags.`{Tag.WEIGHTS}` = '{identity}'",
            order_by=oldest_first,
            max_results=1,
        )
        return str(models[0].model_id) if models else ""

    def _create(self, client: MlflowClient, identity: str, record: Record) -> str:
        params = {name: text for name in map(param_names().get, _PARAMS) if name and (text := record.params.get(name))}
        tags = {tag: record.tags[tag] for tag in (Tag.FAMILY, Tag.SIZE, Tag.MODEL) if record.tags.get(tag)}
        model = client.create_logged_model(
            self._connection.experiment_id,
            name=_name(record),
            tags=tags | {Tag.WEIGHTS: identity, MLFLOW_MODEL_IS_EXTERNAL: "true"},
            params=params,
            model_type=_KIND,
        )
        _add_file(client, model)
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        self._created.add(str(model.model_id))
        if self._connection.database is not None:
            return str(model.model_id)
        # On a server nothing keeps two processes from creating one model at once: all take the older one.
        model_id = self._find(client, identity) or str(model.model_id)
        if model_id != model.model_id:
            self._created.remove(str(model.model_id))
            client.delete_logged_model(model.model_id)
        return model_id


def pointer_of_run(run: Run) -> Pointer | None:
    """Return the logged model that a measurement's metrics point to; None if its run names no model."""
    if run.inputs is None or not run.inputs.model_inputs:
        return None
    datasets = run.inputs.dataset_inputs
    digest = datasets[0].dataset.digest if datasets else _UNKNOWN
    return Pointer(run.inputs.model_inputs[0].model_id, run.data.tags.get(Tag.DATASET, ""), digest)


def _name(record: Record) -> str:
    """Return the name of its model, as MLflow takes it: `pythia-1_4b@step1000`, `opt-6_7b bfloat16`."""
    params = MeasurementParams.read(record.params)
    revision = params.revision or "main"
    name = record.tags[Tag.MODEL]
    if revision != "main" and not name.endswith(f"@{revision}"):
        name += f"@{revision}"
    precision = "tf32" if params.tf32 else params.dtype or "float32"
    return (name if precision == "float32" else f"{name} {precision}").translate(_NOT_IN_NAMES)


def _identity(record: Record) -> str:
    """Return the identity of a model: its name and revision, the commit or hash of its weights, its precision.

    A model in memory has no commit: there the name and revision that the caller gave tell it from others.
    """
    params = MeasurementParams.read(record.params)
    parts = [_name(record), params.repo, params.commit, record.params.get("model.tokenizer", "")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _add_file(client: MlflowClient, model: LoggedModel) -> None:
    """Add the description of an external model without which MLflow registers none."""
    with tempfile.TemporaryDirectory() as folder:
        get_external_mlflow_model_spec(model).save(Path(folder, MLMODEL_FILE_NAME))
        client.log_model_artifacts(model.model_id, folder)
