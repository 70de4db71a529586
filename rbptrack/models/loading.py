"""Load a causal language model's weights from the hub or a folder."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rbptrack.config.schema import ModelConfig
from rbptrack.models.architecture import from_source, load_config, model_class
from rbptrack.models.causal import CausalModel, of_module
from rbptrack.models.checkpoint import check_loaded, check_shards, check_stored, explain, notes_of, notes_of_head
from rbptrack.models.device import device_of, place, tf32_notes
from rbptrack.models.quantised import compute_in, dequantising, method_of
from rbptrack.sources.pin import Source

_PIECE_ROWS = 4096  # of a GGUF file's matrix that are dequantised at a time


def load_model(
    config: ModelConfig, source: Source, *, candidates: int | None = None, without: Sequence[int] = ()
) -> CausalModel:
    """Load weights (safetensors only), and check that they are the model's and that backbone and head are the model.

    Args:
        config: which model, and how.
        source: its pinned weights.
        candidates: rank targets among the first so many rows of the head; None: all.
        without: rows that are left out.

    Raises:
        BadInput: the weights cannot be loaded or are not all there, or the model's ranks would be wrong.

    """
    device, placed = place(config)
    module = load_module(config, source, **placed)
    if not placed and (source.gguf or not method_of(module.config)):
        module.to(device)
    model = of_module(module, config.name, candidates=candidates)
    head = model.head.without(without) if without else model.head
    rounded = tf32_notes(module) if config.tf32 and not method_of(module.config) else ()
    notes = (*model.notes, *notes_of(source, module.config), *notes_of_head(module), *rounded)
    return replace(model, head=head, notes=notes)


def load_module(config: ModelConfig, source: Source, **placed: Any) -> Any:
    """Load the transformers module; `placed` goes to `from_pretrained`.

    Raises:
        BadInput: it cannot be loaded, or the weights are not all there or not all the model's.

    """
    _quiet(downloads=source.revision is not None)
    what = f"model {config.name} ({source.location})"
    architecture = load_config(source)
    if source.revision is None and not source.gguf:
        check_shards(Path(source.location))
    quantised = method_of(architecture)
    if source.gguf:
        placed |= dequantising(source.gguf)
    elif quantised and not placed:  # by its own library: some weights cannot be moved once they are made
        placed = {"device_map": {"": device_of(config.device)}}
    try:
        with _without_adapters(), _sparing_memory() if source.gguf else nullcontext():
            module, loading_info = from_source(
                source,
                model_class(architecture).from_pretrained,
                config=architecture,
                dtype=getattr(torch, config.dtype.value),
                attn_implementation=None if config.attention == "auto" else config.attention,
                use_safetensors=None if config.pickles else True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # named below, together with missing weights
                **placed,
            )
    except Exception as error:
        raise explain(error, what, config=architecture, pickles=config.pickles) from error
    check_loaded(loading_info, what)
    check_stored(source, module, what)
    if quantised:
        compute_in(module, getattr(torch, config.dtype.value))
    return module


@contextmanager
def _sparing_memory() -> Iterator[None]:
    """Drop a GGUF file's metadata before its weights are read, and dequantise a few rows of its matrices at a time.

    At |V| = 262,144 the reader's views of the vocabulary take 0.5 GB; whole matrices are in memory several times over.
    """
    import gguf

    library: Any = gguf
    whole = library.dequantize
    reader = library.GGUFReader
    opened = list[Any]()

    def open_file(*arguments: Any, **options: Any) -> Any:
        opened.append(reader(*arguments, **options))
        return opened[-1]

    def dequantize(data: Any, kind: Any) -> Any:
        while opened:  # transformers reads no metadata after the first tensor
            opened.pop().fields.clear()
        if data.ndim != 2 or len(data) <= _PIECE_ROWS:
            return whole(data, kind)
        pieces = (whole(data[low : low + _PIECE_ROWS], kind) for low in range(0, len(data), _PIECE_ROWS))
        first = next(pieces)
        matrix = np.empty((len(data), first.shape[1]), first.dtype)
        matrix[: len(first)] = first
        for number, piece in enumerate(pieces, 1):
            matrix[number * _PIECE_ROWS :][: len(piece)] = piece
        return matrix

    library.dequantize = dequantize
    library.GGUFReader = open_file
    try:
        yield
    finally:
        library.dequantize = whole
        library.GGUFReader = reader


@contextmanager
def _without_adapters() -> Iterator[None]:
    """Load the model that was asked for: where peft is installed, transformers adds an adapter that lies beside it."""
    from transformers.integrations import peft
    from transformers.models.auto import auto_factory

    readers: list[Any] = [peft, auto_factory]
    before = [reader.is_peft_available for reader in readers]
    for reader in readers:
        reader.is_peft_available = lambda: False
    try:
        yield
    finally:
        for reader, kept in zip(readers, before, strict=True):
            reader.is_peft_available = kept


def _quiet(*, downloads: bool) -> None:
    """Silence the progress bars and warnings of transformers; keep the hub's own bars where a person watches a
    download.
    """
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if downloads and sys.stderr.isatty():
        enable_progress_bars()  # weights are gigabytes; the line above switched these bars off too
    logging.getLogger("transformers").setLevel(logging.ERROR)
