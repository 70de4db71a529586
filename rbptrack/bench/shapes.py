"""Models of published shapes with random weights, and random documents: benches need neither network nor downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # the names of the shapes are shown without loading torch
    import torch

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel


def _shape(kind: str, vocabulary: int, width: int, layers: int, heads: int, inner: int, **more: Any) -> dict[str, Any]:
    return more | {
        "model_type": kind,
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
    }


def _pythia(width: int, layers: int, heads: int, vocabulary: int = 50304) -> dict[str, Any]:
    return _shape("gpt_neox", vocabulary, width, layers, heads, 4 * width, max_position_embeddings=4096)


SHAPES: dict[str, dict[str, Any]] = {
    "pythia-14m": _pythia(128, 6, 4),
    "pythia-31m": _pythia(256, 6, 8),
    "pythia-70m": _pythia(512, 6, 8),
    "pythia-160m": _pythia(768, 12, 12),
    "pythia-410m": _pythia(1024, 24, 16),
    "pythia-1b": _pythia(2048, 16, 8),
    "pythia-1.4b": _pythia(2048, 24, 16),
    "pythia-2.8b": _pythia(2560, 32, 32),
    "pythia-6.9b": _pythia(4096, 32, 32, 50432),
    "pythia-12b": _pythia(5120, 36, 40, 50688),
    "gpt2": {"model_type": "gpt2"},
    "qwen2.5-0.5b": _shape("qwen2", 151936, 896, 24, 14, 4864, num_key_value_heads=2, tie_word_embeddings=True),
    "llama-3.1-8b": _shape("llama", 128256, 4096, 32, 32, 14336, num_key_value_heads=8),
}


def random_model(shape: str, *, device: torch.device, dtype: torch.dtype, vocabulary: int = 0) -> CausalModel:
    """Return a model of a named shape with random weights.

    Args:
        shape: one of `SHAPES`.
        device: where it is made.
        dtype: of its weights.
        vocabulary: instead of the shape's own |V|; 0: the shape's own.

    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from rbptrack.models.causal import split
    from rbptrack.models.quantised import quiet

    quiet()
    config = AutoConfig.for_model(**SHAPES[shape])
    config.vocab_size = vocabulary or config.vocab_size
    torch.manual_seed(0)
    with device:
        module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=dtype, attn_implementation="sdpa"
        )
    return split(module.eval())


def random_corpus(*, tokens: int, seq_len: int, vocab_size: int, seed: int = 0) -> Corpus:
    """Return documents of 16 to `seq_len` random tokens (uniform lengths), `tokens` in all or a few more."""
    from rbptrack.corpus.sequences import Corpus

    draw = np.random.default_rng(seed)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(int(draw.integers(min(16, seq_len), seq_len + 1)))
    total = sum(lengths)
    stop = np.cumsum(lengths)
    start = stop - lengths
    return Corpus(
        token=draw.integers(vocab_size, size=total, dtype=np.int32),
        document=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        position=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        field=np.zeros(total, dtype=np.int8),
        num_bytes=np.ones(total, dtype=np.int32),
        scorable=np.ones(total, dtype=np.bool_),
        start=start,
        stop=stop,
        first=start + 1,
        prefix=np.zeros(0, dtype=np.int32),
        document_ids=tuple(map(str, range(len(lengths)))),
        texts_hash="random",
    )
