"""Find the sizes of texts and the bytes to download, without downloading them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rbptrack.config.schema import DatasetConfig, ModelConfig
from rbptrack.sources import hub
from rbptrack.sources.pin import Pinned, file_ending


def size_of_local_texts(texts: Pinned) -> float:
    """Return the bytes of local texts. Return infinity if the texts are in a repository of the Hub."""
    if texts.revision is not None:
        return math.inf
    return sum(file.size for file in texts.files)


def read_documents_and_bytes(dataset: DatasetConfig, texts: Pinned) -> tuple[float, float]:
    """Return the number of documents of a split, and the mean bytes of a document. They are NaN if unknown."""
    if texts.files:
        documents = sum(_count_documents(file.path) for file in texts.files)
        return documents, size_of_local_texts(texts) / max(1, documents)
    if not hub.is_online():
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

    A text file is one document. Parquet has one document per row, JSON lines and CSV have about one per line. For other
    files the result is NaN: a JSON array may be one line, and a compressed file would have to be unpacked.
    """
    ending = file_ending(path)
    if ending == ".txt":
        return 1
    if ending == ".parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    if ending not in (".jsonl", ".csv"):
        return math.nan
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def bytes_to_download(model: ModelConfig, weights: Pinned) -> float:
    """Return the bytes of a model's weights that are not in the Hub's cache, or NaN if they are unknown."""
    if weights.revision is None:
        return 0
    folder = hub.find_snapshot("model", weights.location, weights.revision)
    if not hub.is_online():
        return 0 if folder and any(folder.glob(weights.gguf or "*.safetensors")) else math.nan
    from huggingface_hub import HfApi

    def read_model_info() -> Any:
        return HfApi().model_info(weights.location, revision=weights.revision, files_metadata=True)

    files = hub.call_hub("model", weights.location, weights.requested, read_model_info).siblings or []
    sizes = {file.rfilename: file.size or 0 for file in files if "/" not in file.rfilename}
    names = [weights.gguf] if weights.gguf else _weight_files(sizes, pickles=model.pickles)
    if not names:
        return math.nan
    return sum(sizes.get(name, 0) for name in names if folder is None or not (folder / name).exists())


def _weight_files(names: Iterable[str], *, pickles: bool) -> list[str]:
    """Return the files that transformers loads: safetensors or, if there are none and pickles are allowed, pickles.

    Other files are left out, such as variants of the weights and consolidated.safetensors.
    """
    safetensors = [name for name in names if re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors", name)]
    if safetensors or not pickles:
        return safetensors
    return [name for name in names if re.fullmatch(r"pytorch_model(-\d+-of-\d+)?\.bin", name)]
