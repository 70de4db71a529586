"""Estimate time, memory and downloads of a sweep. No weights are loaded and no texts are downloaded."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.config.schema import Config, DatasetConfig, Dtype, ModelConfig, SequenceRule
from rbptrack.console.progress import spinner
from rbptrack.sources import hub
from rbptrack.sources.pin import Pinned, file_kind
from rbptrack.sweep.cells import Cell, Resolver
from rbptrack.tracking import Store

if TYPE_CHECKING:
    from rbptrack.sweep.load import Loader

COLUMNS = [
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
FREE = dict.fromkeys(("FLOPs", "weights", "download", "seconds"), 0.0)

_SMALL_TEXTS = 50_000_000  # local texts of up to this many bytes are tokenised to count their tokens exactly
_BYTES_PER_TOKEN = 4.0  # to estimate the tokens of other texts: a value between those of code and English
_ITEM_BYTES = {Dtype.float32: 4, Dtype.bfloat16: 2, Dtype.float16: 2}


def plan(configs: Sequence[Config]) -> pd.DataFrame:
    """Estimate what each cell of a sweep costs.

    Returns:
        One row for each cell; a number is NaN if it is unknown. A cell that is already measured costs nothing, and its
        S, parameters and tokens are those of its measurement. The columns are:

        - `model`, `dataset`: names.
        - `S`, `parameters`: counted from the model's config.
        - `tokens`: the number of scored tokens; exact for local texts of at most 50 MB, otherwise estimated from bytes.
        - `FLOPs`: 2 (S + head) for each token that the model reads.
        - `weights`: the bytes of the weights in memory.
        - `download`: the bytes of weights that are not cached.
        - `seconds`: FLOPs divided by the speed of a matrix product that is measured on this device.
        - `status`: `to measure`, `measured`, `not cached` or `impossible`.
        - `error`: the RbptrackError that says why a cell cannot be measured.

    """
    resolver = Resolver()
    planner = _Planner()
    with spinner("looking up models and datasets"):
        cells = [_resolved(resolver, config) for config in configs]
        measured = _measured(configs[0], [cell.fingerprint for cell in cells if isinstance(cell, Cell)])
        rows = []
        for config, cell in zip(configs, cells, strict=True):
            names = {"model": config.model.name, "dataset": config.dataset.name}
            rows.append(names | _cost_and_status(cell, measured, planner))
    return pd.DataFrame(rows, columns=COLUMNS)


def _resolved(resolver: Resolver, config: Config) -> Cell | RbptrackError:
    """Return the cell of a configuration, or the error if it cannot be resolved."""
    try:
        return resolver.resolve(config)
    except RbptrackError as error:
        return error


def _measured(settings: Config, fingerprints: Sequence[str]) -> dict[str, dict[str, Any]]:
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


def _cost_and_status(
    cell: Cell | RbptrackError, measured: Mapping[str, dict[str, Any]], planner: _Planner
) -> dict[str, Any]:
    """Return a row of the plan without the names of model and dataset."""
    if isinstance(cell, RbptrackError):
        return _impossible(cell)
    if cell.fingerprint in measured:
        return FREE | measured[cell.fingerprint] | {"status": "measured"}
    try:
        return planner.cost(cell) | {"status": "to measure"}
    except RbptrackError as error:
        return _impossible(error)


def _impossible(error: RbptrackError) -> dict[str, Any]:
    return {"status": "not cached" if isinstance(error, hub.NotCached) else "impossible", "error": error}


@dataclass
class _Planner:
    """Estimates the costs of cells. Facts that several cells share are determined once."""

    rates: dict[str, float] = field(default_factory=dict)  # FLOPs per second, by device and precision
    extents: dict[str, tuple[float, float]] = field(default_factory=dict)  # documents and bytes of one, by dataset

    @cached_property
    def loader(self) -> Loader:
        from rbptrack.sweep.load import Loader  # imports torch, which is not needed if all cells are measured

        return Loader()

    def cost(self, cell: Cell) -> dict[str, float]:
        self.loader.check(cell)
        models = [(cell.config.model, cell.weights)]
        if cell.config.reference is not None and cell.reference is not None:
            models.append((cell.config.reference, cell.reference))
        own = self.loader.parameters(cell.weights)
        scored, read = self._tokens(cell)
        cost = FREE | {"S": own.non_embedding, "parameters": own.total, "tokens": scored}
        for model, source in models:
            count = self.loader.parameters(source)
            flops = 2.0 * (count.non_embedding + count.head) * read
            cost["FLOPs"] += flops
            cost["weights"] += count.total * _ITEM_BYTES[model.dtype]
            cost["download"] += _to_download(model, source)
            cost["seconds"] += flops / self._rate(model)
        return cost

    def _tokens(self, cell: Cell) -> tuple[float, float]:
        """Return the numbers of tokens that are scored and that the model reads; NaN if the length is unknown."""
        if _local_bytes(cell.texts) <= _SMALL_TEXTS:
            return self.loader.tokens(cell)
        dataset = cell.config.dataset
        key = repr((cell.texts.identity, dataset.config, dataset.split))
        if key not in self.extents:
            self.extents[key] = _documents_and_bytes(dataset, cell.texts)
        documents, size = self.extents[key]
        for limit in (dataset.head, dataset.documents):
            documents = min(documents, limit or math.inf)
        tokens = max(2.0, size / _BYTES_PER_TOKEN)
        if dataset.sequence is SequenceRule.truncate:
            tokens = min(tokens, dataset.seq_len)
        read = tokens
        if dataset.sequence is SequenceRule.slide and tokens > dataset.seq_len:
            read *= dataset.seq_len / (dataset.seq_len - dataset.context)
        return documents * (tokens - 1), documents * read

    def _rate(self, model: ModelConfig) -> float:
        """Return the floating-point operations per second of a matrix product on the model's device."""
        from rbptrack.models.device import torch_device

        device = torch_device(model.device)
        key = f"{device} {model.dtype.value}"
        if key not in self.rates:
            self.rates[key] = _measured_rate(device, model.dtype.value)
        return self.rates[key]


def _measured_rate(device: Any, dtype: str) -> float:
    import torch

    rows = 512
    width = 1024
    factor = torch.ones(rows, width, device=device, dtype=getattr(torch, dtype))
    weight = torch.ones(4 * width, width, device=device, dtype=getattr(torch, dtype))
    seconds = []
    for _ in range(4):  # the first time is not used, because it includes initialisation
        began = time.perf_counter()
        float((factor @ weight.T)[0, 0])  # reading a number waits until the device has finished
        seconds.append(time.perf_counter() - began)
    return 2.0 * rows * width * 4 * width / min(seconds[1:])


def _local_bytes(texts: Pinned) -> float:
    """Return the bytes of local texts; infinity if the texts are a repository of the hub."""
    if texts.files:
        return sum(path.stat().st_size for path in texts.files)
    if texts.revision is not None:
        return math.inf
    return sum(path.stat().st_size for path in Path(texts.location).rglob("*") if path.is_file())


def _documents_and_bytes(dataset: DatasetConfig, texts: Pinned) -> tuple[float, float]:
    """Return the number of documents of a split, and the mean bytes of a document; NaN if they are unknown."""
    if texts.files:
        documents = sum(_count_documents(path) for path in texts.files)
        return documents, _local_bytes(texts) / max(1, documents)
    if texts.revision is None or not hub.online():
        return math.nan, math.nan
    import datasets

    try:
        builder = datasets.load_dataset_builder(texts.location, dataset.config or None, revision=texts.revision)
        split = (builder.info.splits or {}).get(dataset.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError):
        return math.nan, math.nan
    if split is None or not split.num_examples:
        return math.nan, math.nan
    return split.num_examples, split.num_bytes / split.num_examples


def _count_documents(path: Path) -> float:
    """Count the documents of a local file without parsing them.

    A text file is one document, Parquet has one per row, JSON lines and CSV have about one per line. Other files give
    NaN: a JSON array may be one line, and the lines of a compressed file are not known before it is unpacked.
    """
    kind = file_kind(path)
    if kind == ".txt":
        return 1
    if kind == ".parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    if kind not in (".jsonl", ".csv"):
        return math.nan
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def _to_download(model: ModelConfig, source: Pinned) -> float:
    """Return the bytes of a model's weights that are not in the hub's cache; NaN if the hub cannot be asked."""
    if source.revision is None:
        return 0
    folder = hub.snapshot("model", source.location, source.revision)
    if not hub.online():
        return 0 if folder and any(folder.glob(source.gguf or "*.safetensors")) else math.nan
    from huggingface_hub import HfApi

    def describe() -> Any:
        return HfApi().model_info(source.location, revision=source.revision, files_metadata=True)

    files = hub.call("model", source.location, source.requested, describe).siblings or []
    sizes = {file.rfilename: file.size or 0 for file in files if "/" not in file.rfilename}
    wanted = [source.gguf] if source.gguf else _weight_files(sizes, pickles=model.pickles)
    if not wanted:
        return math.nan
    return sum(sizes.get(name, 0) for name in wanted if folder is None or not (folder / name).exists())


def _weight_files(names: Iterable[str], *, pickles: bool) -> list[str]:
    """Return the files of a repository that transformers loads: safetensors, or else pickles if they are allowed.

    Repositories also hold files that are not loaded, such as variants of the weights and consolidated.safetensors.
    """
    safe = [name for name in names if re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors", name)]
    if safe or not pickles:
        return safe
    return [name for name in names if re.fullmatch(r"pytorch_model(-\d+-of-\d+)?\.bin", name)]
