"""What a sweep would cost, before it costs anything: no weights are loaded, no text is fetched."""

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

COLUMNS = ["model", "dataset", "S", "parameters", "tokens", "FLOPs", "memory", "download", "seconds", "status", "error"]
FREE = dict.fromkeys(("FLOPs", "memory", "download", "seconds"), 0.0)

_SMALL_TEXTS = 50_000_000  # bytes of local texts that are read and tokenised for an exact number of tokens
_BYTES_PER_TOKEN = 4.0  # of text, elsewhere: between code and English
_ITEM_BYTES = {Dtype.float32: 4, Dtype.bfloat16: 2, Dtype.float16: 2}


def plan(configs: Sequence[Config]) -> pd.DataFrame:
    """A row of `COLUMNS` per cell; NaN where a number is not known.

    S and parameters are counted from the model's config. tokens are those that are scored: exact for local texts of at
    most 50 MB, else estimated from bytes. FLOPs: 2 (S + head) for each token that is read. memory: the bytes of the
    weights. download: the bytes of weights that are not cached. seconds: by a product measured on this device. status:
    `to measure`, `measured`, `not cached` or `impossible`; error: why a cell cannot be measured, an RbptrackError. A
    measured cell costs nothing, and its other numbers are those of its measurement.
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
    """A cell, or the reason why it cannot be resolved."""
    try:
        return resolver.resolve(config)
    except RbptrackError as error:
        return error


def _measured(settings: Config, fingerprints: Sequence[str]) -> dict[str, dict[str, Any]]:
    """S, parameters and tokens of the cells that need not be measured, by fingerprint."""
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
    """A row of the plan without its names."""
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
    """Costs of cells; what several of them share is found out once."""

    rates: dict[str, float] = field(default_factory=dict)  # FLOPs per second, by device and precision
    extents: dict[str, tuple[float, float]] = field(default_factory=dict)  # of `_documents_and_bytes`, by dataset

    @cached_property
    def loader(self) -> Loader:
        from rbptrack.sweep.load import Loader  # torch: only where a cell is to be measured

        return Loader()

    def cost(self, cell: Cell) -> dict[str, float]:
        self.loader.fit(cell)
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
            cost["memory"] += count.total * _ITEM_BYTES[model.dtype]
            cost["download"] += _to_download(model, source)
            cost["seconds"] += flops / self._rate(model)
        return cost

    def _tokens(self, cell: Cell) -> tuple[float, float]:
        """Tokens that are scored, and that the model reads; NaN where nothing says how long the texts are."""
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
        """Floating-point operations per second of products of a layer's size, of this precision on this device."""
        from rbptrack.models.device import device_of

        device = device_of(model.device)
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
    for _ in range(4):  # the first warms up
        began = time.perf_counter()
        float((factor @ weight.T)[0, 0])  # waits for the device
        seconds.append(time.perf_counter() - began)
    return 2.0 * rows * width * 4 * width / min(seconds[1:])


def _local_bytes(texts: Pinned) -> float:
    """Bytes of local texts; infinite for a repository of the hub."""
    if texts.files:
        return sum(path.stat().st_size for path in texts.files)
    if texts.revision is not None:
        return math.inf
    return sum(path.stat().st_size for path in Path(texts.location).rglob("*") if path.is_file())


def _documents_and_bytes(dataset: DatasetConfig, texts: Pinned) -> tuple[float, float]:
    """The number of a split's documents, and the bytes of one; NaN where nothing says so."""
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
    """Documents of a local file: one of a text file, else a line each; of Parquet its rows; NaN where lines are none.

    A compressed file's length says little of its texts', and JSON may be one array.
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
    """Bytes of a model's weights that the hub's cache lacks; NaN where the hub cannot be asked."""
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
    """The files that are loaded: safetensors, or pickles where there are none and they are asked for.

    Others lie beside them: variants, and the same weights once more as consolidated.safetensors.
    """
    safe = [name for name in names if re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors", name)]
    if safe or not pickles:
        return safe
    return [name for name in names if re.fullmatch(r"pytorch_model(-\d+-of-\d+)?\.bin", name)]
