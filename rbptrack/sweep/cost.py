"""Estimate the time, memory and downloads of a sweep without loading weights or downloading texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.config.schema import Config, Dtype, ModelConfig, SequenceRule
from rbptrack.console.progress import spinner
from rbptrack.sources import hub
from rbptrack.sources.pin import Pinned
from rbptrack.sweep import lookups
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.resolver import Resolver
from rbptrack.sweep.sizes import bytes_to_download, read_documents_and_bytes, size_of_local_texts
from rbptrack.sweep.speed import Speed, measure_speed
from rbptrack.tracking import Store

if TYPE_CHECKING:
    from rbptrack.sweep.load import Loader


_COLUMNS = [
    "model",
    "dataset",
    "S",
    "parameters",
    "tokens",
    "FLOPs",
    "weights",
    "download",
    "seconds",
    "status",
    "error",
]
_NO_COST = dict.fromkeys(("FLOPs", "weights", "download", "seconds"), 0.0)

_MAX_BYTES_TO_TOKENISE = 50_000_000  # the tokens of larger texts are not counted but estimated
_BYTES_PER_TOKEN = 4.0  # for this estimate; code has fewer bytes per token, and English has more
# Elements that are read or written apart from matrix products, for each token that a model reads.
_PASSES_OVER_LOGITS = 3  # they are written, compared with the target's, and summed
_PASSES_OVER_STATES = 30  # in each layer: norms, activations of the MLP (4 times as wide), attention, residuals
_BYTES_PER_PARAMETER = {Dtype.float32: 4, Dtype.bfloat16: 2, Dtype.float16: 2}


def plan(configs: Sequence[Config]) -> pd.DataFrame:
    """Estimate what each cell of a sweep costs.

    Returns:
        One row for each cell; a number is NaN if it is unknown. A cell that is already measured costs nothing; its S,
        parameters and tokens are read from the store. The columns are:

        - `model`, `dataset`: names.
        - `S`, `parameters`: counted from the model's config.
        - `tokens`: the number of scored tokens; exact for local texts of at most 50 MB, otherwise estimated from bytes.
        - `FLOPs`: 2 (S + parameters of the output head) for each token that the model reads.
        - `weights`: the bytes of the weights in memory, the reference included.
        - `download`: the bytes of weights that are not cached.
        - `seconds`: FLOPs divided by the FLOPs per second of a matrix product, plus elements divided by the elements
          per second of an exponential. Both are timed on the device. Small models spend most time on the elements.
          NaN for a model on a server.
        - `status`: `to measure`, `measured`, `not cached` or `impossible`.
        - `error`: the RbptrackError that says why a cell cannot be measured.

    """
    resolver = Resolver()
    planner = Planner()
    with spinner("looking up models and datasets"):
        cells = [_resolve_or_error(resolver, config) for config in configs]
        measured_numbers = _read_measured_numbers(
            configs[0], [cell.fingerprint for cell in cells if isinstance(cell, Cell)]
        )
        rows = []
        for config, cell in zip(configs, cells, strict=True):
            names = {"model": config.model.name, "dataset": config.dataset.name}
            rows.append(names | _plan_row(cell, measured_numbers, planner))
    return pd.DataFrame(rows, columns=_COLUMNS)


def _resolve_or_error(resolver: Resolver, config: Config) -> Cell | RbptrackError:
    try:
        return resolver.resolve(config)
    except RbptrackError as error:
        return error


def _read_measured_numbers(settings: Config, fingerprints: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return S, parameters and tokens of the cells that are already measured, by fingerprint."""
    if settings.force:
        return {}
    store = Store(settings.tracking.uri, settings.tracking.experiment)
    try:
        run_ids = store.find_all(set(fingerprints))
        if not run_ids:
            return {}
        frame = store.runs(run_ids=list(run_ids.values())).frame
    except StoreAway:
        return {}
    numbers = frame[["non_embedding_params", "total_params", "num_tokens"]].set_axis(
        ["S", "parameters", "tokens"], axis=1
    )
    return dict(zip(frame["fingerprint"], numbers.to_dict("records"), strict=True))


def _plan_row(
    cell: Cell | RbptrackError, measured_numbers: Mapping[str, dict[str, Any]], planner: Planner
) -> dict[str, Any]:
    """Return the row of a cell in the plan, without the names of model and dataset."""
    if isinstance(cell, RbptrackError):
        return _failed_row(cell)
    if cell.fingerprint in measured_numbers:
        return _NO_COST | measured_numbers[cell.fingerprint] | {"status": "measured"}
    try:
        return planner.cost(cell) | {"status": "to measure"}
    except RbptrackError as error:
        return _failed_row(error)


def _failed_row(error: RbptrackError) -> dict[str, Any]:
    return {"status": "not cached" if isinstance(error, hub.NotCached) else "impossible", "error": error}


class Planner:
    """Estimates the costs of cells. Speeds and the sizes of datasets are determined once for all cells.

    Args:
        speed: the speed of the device that will measure the cells; None to time the device of this process.

    """

    def __init__(self, speed: Speed | None = None) -> None:
        self._speed = speed
        self._documents_and_bytes: dict[str, tuple[float, float]] = {}  # documents, bytes per document

    @cached_property
    def loader(self) -> Loader:
        from rbptrack.sweep.load import Loader  # imports torch, which a plan of measured cells does not need

        return Loader()

    def cost(self, cell: Cell) -> dict[str, float]:
        """Return the numbers of a cell in the plan.

        Raises:
            BadInput: the cell cannot be measured.

        """
        self.loader.check(cell)
        model_parameters = lookups.parameters(cell.weights)
        if size_of_local_texts(cell.texts) <= _MAX_BYTES_TO_TOKENISE:
            scored_tokens, read_tokens = map(float, self.loader.count_tokens(cell))
        else:
            scored_tokens, read_tokens = self._estimate_tokens(cell)
        cost = _NO_COST | {"S": model_parameters.non_embedding, "parameters": model_parameters.total}
        cost["tokens"] = scored_tokens
        if cell.served is not None:  # nothing is loaded here, and the speed of the server is unknown
            flops = self._flops_per_token(cell.weights) * read_tokens
            return cost | {"FLOPs": flops, "seconds": math.nan}
        for model, weights in _models(cell):
            parameters = lookups.parameters(weights)
            cost["FLOPs"] += self._flops_per_token(weights) * read_tokens
            cost["weights"] += parameters.total * _BYTES_PER_PARAMETER[model.dtype]
            cost["download"] += bytes_to_download(model, weights)
            cost["seconds"] += self._seconds_per_token(model, weights) * read_tokens
        return cost

    def seconds(self, cell: Cell) -> float:
        """Estimate the seconds of a cell without reading its texts.

        The result is NaN if the size of the texts or the speed of the model's server is unknown.

        Raises BadInput if a model cannot be read.
        """
        if cell.served is not None:
            return math.nan
        _, read_tokens = self._estimate_tokens(cell)
        return read_tokens * sum(self._seconds_per_token(model, weights) for model, weights in _models(cell))

    def _flops_per_token(self, weights: Pinned) -> float:
        parameters = lookups.parameters(weights)
        return 2.0 * (parameters.non_embedding + parameters.head)

    def _seconds_per_token(self, model: ModelConfig, weights: Pinned) -> float:
        from rbptrack.models.architecture import text_config, vocab_size
        from rbptrack.models.device import torch_device

        architecture = text_config(lookups.architecture(weights))
        states = getattr(architecture, "num_hidden_layers", 0) * getattr(architecture, "hidden_size", 0)
        elements = _PASSES_OVER_LOGITS * vocab_size(architecture) + _PASSES_OVER_STATES * states
        speed = self._speed or measure_speed(torch_device(model.device), model.dtype.value)
        return self._flops_per_token(weights) / speed.flops + elements / speed.elements

    def _estimate_tokens(self, cell: Cell) -> tuple[float, float]:
        """Estimate the tokens that are scored, and the tokens that the model reads, from the bytes of the texts.

        The numbers are NaN if the size of the texts is unknown.
        """
        dataset = cell.config.dataset
        key = repr((cell.texts.identity, dataset.config, dataset.split))
        if key not in self._documents_and_bytes:
            self._documents_and_bytes[key] = read_documents_and_bytes(dataset, cell.texts)
        documents, bytes_per_document = self._documents_and_bytes[key]
        for limit in (dataset.head, dataset.documents):
            documents = min(documents, limit or math.inf)
        tokens = max(2.0, bytes_per_document / _BYTES_PER_TOKEN)  # tokens per document; with one, nothing is scored
        if dataset.sequence is SequenceRule.truncate:
            tokens = min(tokens, dataset.seq_len)
        read_tokens = tokens
        # A sequence repeats `context` tokens of the previous one.
        if dataset.sequence is SequenceRule.slide and tokens > dataset.seq_len:
            read_tokens *= dataset.seq_len / (dataset.seq_len - dataset.context)
        return documents * (tokens - 1), documents * read_tokens


def _models(cell: Cell) -> list[tuple[ModelConfig, Pinned]]:
    """Return the model of a cell and, if it has one, its reference."""
    models = [(cell.config.model, cell.weights)]
    if cell.config.reference is not None and cell.reference is not None:
        models.append((cell.config.reference, cell.reference))
    return models
