"""What a sweep will cost, before it costs anything: no weights are loaded, no text beyond the cached ones is read."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import RbptrackError
from rbptrack.config.schema import CellConfig, DatasetConfig, SequenceRule
from rbptrack.sources import cache, hub
from rbptrack.sources.pin import Source
from rbptrack.sweep.devices import Device
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.resolved import Resolved
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import Metric

if TYPE_CHECKING:
    from rbptrack.models.parameters import Parameters

_BYTES_PER_TOKEN = 4.0  # of text, for corpora that were not tokenised yet: between code and English
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MOST_GPUS = 8  # of one node
_SHARE_OF_MEMORY = 0.75  # of each of several GPUs that weights may take: layers do not divide evenly
_SCORING_BYTES = 150e6  # what ranking takes beyond weights, at most


@dataclass(frozen=True)
class Plan:
    """The cost of one cell. None: not known without asking a hub that cannot be reached."""

    model: str
    dataset: str
    non_embedding_params: int | None = None  # S
    total_params: int | None = None
    documents: int | None = None
    tokens: int | None = None  # scored tokens
    estimated: bool = True  # of documents and tokens: the texts were not tokenised yet
    flops_estimated: bool = True  # the tokens that the model reads are estimated from those that are scored
    flops: float | None = None  # (2 S + 2 d |V|) per token that a model reads
    memory_bytes: float | None = None  # weights, activations of a batch, and scoring
    device_bytes: int | None = None  # memory of the device that has it free
    download_bytes: int | None = None  # weights that are not cached yet
    gpus: int | None = None  # of the device's kind that hold the weights together; None: no number up to 8 does
    seconds: float | None = None  # of its job: several GPUs compute their layers in turn, as fast as one
    status: str = ""  # `to measure`, `measured`, `too large`, or why it cannot be measured


def plan(config: CellConfig, resolver: Resolver, reader: Reader, device: Device, *, elsewhere: bool) -> Plan:
    """Estimate the cost of one cell, and say whether it can and must be measured.

    `elsewhere`: the device is not this machine's own, so that this machine's free memory says nothing.
    """
    try:
        cell = resolver.resolve(config)
        counts = cell.count_parameters()
        run = reader.find_all([cell.fingerprint]).get(cell.fingerprint)
        if run and (stored := _stored_size(run, cell.dataset)):
            cell.note_size(asdict(stored))
        size = size_of(cell)
    except RbptrackError as error:
        return Plan(config.model.name, config.dataset.name, status=str(error))
    from rbptrack.models.device import device_of, free_memory

    free = int(device.memory_bytes) if elsewhere else free_memory(device_of(cell.model.device))
    needed, gpus = memory_and_gpus(cell, free, most=MOST_GPUS if elsewhere else 1)
    flops = operations(cell, size)
    if run:
        status = "measured"
    elif gpus is None and not cell.model.device_map:  # a map spreads over several
        status = "too large"
    else:
        status = "to measure"
    return Plan(
        cell.model.name,
        cell.dataset.name,
        non_embedding_params=counts.non_embedding,
        total_params=counts.total,
        documents=size.documents,
        tokens=size.tokens,
        estimated=size.estimated,
        flops_estimated=size.estimated or size.read_estimated,
        flops=flops,
        memory_bytes=needed,
        device_bytes=free,
        download_bytes=_to_download(cell),
        gpus=gpus,
        seconds=None if flops is None else device.seconds(flops, cell.model),
        status=status,
    )


def operations(cell: Resolved, size: Size) -> float | None:
    """Return (2 S + 2 d |V|) for each token that the model reads; None if their number is unknown."""
    counts = [part.count_parameters() for part in cell.parts]
    if size.read is None:
        return None
    return 2.0 * sum(count.non_embedding + count.head for count in counts) * size.read


def memory_and_gpus(cell: Resolved, memory_bytes: float, *, most: int) -> tuple[float, int | None]:
    """Return bytes that a cell needs, and how many GPUs of so much memory hold that together; None where `most` do
    not.
    """
    needs = [_needed(part, part.count_parameters()) for part in cell.parts]
    weights = sum(own_weights for own_weights, _ in needs)
    beside = max(own_beside for _, own_beside in needs)
    needed = weights + beside
    if needed <= memory_bytes:
        return needed, 1
    if cell.reference:  # both models are whole on one device
        return needed, None
    room = min(_SHARE_OF_MEMORY * memory_bytes, memory_bytes - beside)
    gpus = math.ceil(weights / room) if room > 0 else most + 1
    return needed, gpus if gpus <= most else None


def too_large(model: str, dtype: str, device: str) -> str:
    """Say what to do about a model that no node of a kind of GPU can hold."""
    remedy = "import the ranks of another engine (docs/importing.md)"
    if dtype == "float32":
        remedy = "model.dtype=bfloat16 halves the memory"
    return f"{model} in {dtype} does not fit on {MOST_GPUS} x {device}; {remedy}"


def _needed(cell: Resolved, counts: Parameters) -> tuple[float, float]:
    """Return bytes of the weights, and of one sequence's activations (batches grow as memory allows) and scoring."""
    from rbptrack.models.architecture import text_config, vocab_size

    text = text_config(cell.architecture)
    width = counts.head // vocab_size(text)
    inner = getattr(text, "intermediate_size", None) or getattr(text, "ffn_dim", None) or 4 * width
    inner = max(inner) if isinstance(inner, list) else int(inner)
    heads = int(getattr(text, "num_attention_heads", None) or 0)
    length = cell.dataset.seq_len
    item_bytes = _DTYPE_BYTES[cell.model.dtype.value]
    activations = length * item_bytes * (12 * width + 4 * inner + 3 * heads * length)
    return counts.total * item_bytes, activations + _SCORING_BYTES


@dataclass(frozen=True)
class Size:
    """The size of the work; None if unknown."""

    documents: int | None
    tokens: int | None
    read: int | None  # tokens that a model reads: with overlap and special tokens more than are scored
    estimated: bool
    read_estimated: bool = False  # although documents and tokens are exact


def _stored_size(run: LoggedRun, dataset: DatasetConfig) -> Size | None:
    """Return the documents and tokens that a measurement of these texts logged; None where it logged none."""
    documents = MeasurementParams.read(run.params).num_documents
    tokens = run.metrics.get(Metric.NUM_TOKENS)
    if documents is None or tokens is None:
        return None
    read = int(tokens * _overlap(dataset, tokens / documents))
    return Size(documents, int(tokens), read, estimated=False, read_estimated=True)


def _overlap(dataset: DatasetConfig, tokens: float) -> float:
    """Return how many tokens a model reads for each token of documents of such a length."""
    if dataset.sequence is SequenceRule.slide and tokens > dataset.seq_len:
        return dataset.seq_len / (dataset.seq_len - dataset.context)
    return 1.0


def size_of(cell: Resolved) -> Size:
    """Return exact where the texts were tokenised before, else estimated from what the hub or the files say of their
    size.
    """
    exact = cell.remembered_size(lambda: _exact_size(cell))
    return Size(**exact) if exact else _estimate(cell.dataset, *_extent(cell.dataset, cell.texts))


def _exact_size(cell: Resolved) -> dict[str, Any] | None:
    from rbptrack.corpus.tokens import tokens_name

    if not (cache.folder() / tokens_name(cell.dataset, cell.texts, cell.tokenizer)).exists():
        return None
    corpus = cell.load_corpus()
    return asdict(Size(len(corpus.document_ids), corpus.num_targets, int(corpus.lengths.sum()), estimated=False))


def _estimate(dataset: DatasetConfig, documents: int | None, text_bytes: float | None) -> Size:
    """Estimate the tokens of so many documents of so many bytes each."""
    if dataset.documents:
        documents = dataset.documents if documents is None else min(dataset.documents, documents)
    if documents is None or text_bytes is None:
        return Size(documents, None, None, estimated=True)
    tokens = max(2.0, text_bytes / _BYTES_PER_TOKEN)
    if dataset.sequence is SequenceRule.truncate:
        read = min(tokens, dataset.seq_len)
    else:
        read = tokens * _overlap(dataset, tokens)
    scored = min(tokens, dataset.seq_len) if dataset.sequence is SequenceRule.truncate else tokens
    return Size(documents, int(documents * (scored - 1)), int(documents * read), estimated=True)


def _extent(config: DatasetConfig, source: Source) -> tuple[int | None, float | None]:
    """Return documents, and text bytes of each; None where nothing says so.

    Columns that are not read count too, so that a dataset of several columns is estimated too large rather than too
    small.
    """
    rows, size = _described(source.location, source.revision, config.config, config.split)
    if rows is None and source.files:
        size = float(sum(p.stat().st_size for p in source.files))
        rows = sum(_lines(p) for p in source.files)
    elif rows is None and source.revision is None and source.location:
        rows, size = _parquet(Path(source.location), config)
    if rows and config.head:
        rows = min(rows, config.head)
    return rows, None if not rows or size is None else size / rows


@lru_cache(maxsize=64)
def _described(location: str, revision: str | None, name: str, split: str) -> tuple[int | None, float | None]:
    if revision is None or not hub.online():
        return None, None
    import datasets

    try:
        info = datasets.load_dataset_builder(location, name or None, revision=revision).info
        split_info = (info.splits or {}).get(split)
        return (
            (split_info.num_examples, float(split_info.num_bytes))
            if split_info and split_info.num_examples
            else (None, None)
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError):
        return None, None


def _parquet(folder: Path, config: DatasetConfig) -> tuple[int | None, float | None]:
    import pyarrow.parquet as pq

    rows = 0
    size = 0.0
    for path in folder.rglob(f"*{config.split}*.parquet"):
        metadata = pq.read_metadata(path)
        rows += metadata.num_rows
        for group in range(metadata.num_row_groups):
            columns = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
            size += sum(c.total_uncompressed_size for c in columns if c.path_in_schema in config.fields)
    return (rows, size) if rows else (None, None)


def _lines(path: Path) -> int:
    """Return documents of a local file: rows of Parquet, lines of text formats; one for .txt."""
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    if path.suffix == ".txt":
        return 1
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


@lru_cache(maxsize=256)
def _weights(repo: str, revision: str, gguf: str, pickles: bool) -> tuple[tuple[str, int], ...]:
    from huggingface_hub import HfApi

    info = hub.call("model", repo, revision, lambda: HfApi().model_info(repo, revision=revision, files_metadata=True))
    sizes = {s.rfilename: int(s.size or 0) for s in info.siblings or []}
    if gguf:
        return ((gguf, sizes.get(gguf, 0)),)
    weights = {name: size for name, size in sizes.items() if name.endswith(".safetensors") and "/" not in name}
    if not weights and pickles:
        weights = {name: size for name, size in sizes.items() if name.endswith(".bin") and "/" not in name}
    return tuple(weights.items())


def _to_download(cell: Resolved) -> int | None:
    source = cell.weights
    if source.revision is None:
        return 0
    folder = hub.snapshot("model", source.location, source.revision)
    if not hub.online():
        return 0 if folder and any(folder.glob(source.gguf or "*.safetensors")) else None
    files = _weights(source.location, source.revision, source.gguf, cell.model.pickles)
    return sum(size for name, size in files if folder is None or not (folder / name).exists())
