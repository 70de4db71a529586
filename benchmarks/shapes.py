"""Make models with published shapes and random weights, and random documents. Nothing is downloaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rbptrack.corpus.sequences import Corpus


def _pythia(width: int, layers: int, heads: int) -> dict[str, Any]:
    """Return the settings of a Pythia model for `AutoConfig.for_model`."""
    return {
        "model_type": "gpt_neox",
        "vocab_size": 50_304,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 2048,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "pythia-14m": _pythia(128, 6, 4),
    "pythia-70m": _pythia(512, 6, 8),
    "pythia-410m": _pythia(1024, 24, 16),
    "pythia-1.4b": _pythia(2048, 24, 16),
    "llama-3.1-8b": {
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
    },
}


def random_module(shape: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32, vocab_size: int = 0) -> Any:
    """Make a causal language model of transformers with random weights. `shape` is a key of `SHAPES`.

    With vocab_size=0, the vocabulary has the size of the shape.
    """
    config = AutoConfig.for_model(**SHAPES[shape])
    config.vocab_size = vocab_size or config.vocab_size
    torch.manual_seed(0)
    with torch.device(device):
        module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return module.eval()


def random_corpus(tokens: int, *, vocab_size: int, seq_len: int = 512, shortest: int = 16) -> Corpus:
    """Make a corpus of random documents with at least `tokens` tokens. Each document is one sequence.

    All lengths from `shortest` to `seq_len` tokens are equally likely.
    """
    lengths = np.random.default_rng(0).integers(shortest, seq_len + 1, size=tokens // shortest + 1)
    number = int(np.searchsorted(np.cumsum(lengths), tokens)) + 1
    return corpus_of_lengths(lengths[:number], vocab_size=vocab_size)


def corpus_of_lengths(lengths: npt.ArrayLike, *, vocab_size: int) -> Corpus:
    """Make a corpus of random documents with given numbers of tokens, (documents,). Each document is one sequence."""
    lengths = np.asarray(lengths)
    total = int(lengths.sum())
    stop = np.cumsum(lengths)
    start = stop - lengths
    return Corpus(
        token=np.random.default_rng(1).integers(vocab_size, size=total, dtype=np.int32),
        document_lengths=lengths,
        field=np.zeros(total, dtype=np.int8),
        num_bytes=np.ones(total, dtype=np.int32),
        scorable=np.ones(total, dtype=np.bool_),
        start=start,
        stop=stop,
        first=start + 1,
        prefix=np.zeros(0, dtype=np.int32),
        document_ids=tuple(map(str, range(len(lengths)))),
        groups=("",) * len(lengths),
        texts_hash="random",
    )
