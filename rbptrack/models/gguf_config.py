"""Make the transformers config of a model from the keys of its GGUF file.

Each key of the architecture is used here, is listed here with the reason why it does not change the numbers, or is a
reason to refuse the file. transformers alone would leave out keys and tensors that it does not know, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rbptrack.base.errors import first_line
from rbptrack.models.gguf_file import GgufHeader, Keys

MAX_LAYERS = 10_000  # building more would take hours; some configs hold a list with an entry for each layer

_NO_EFFECT = {
    "rope.scaling.finetuned",  # whether the model was trained with the scaling
    "expert_used_count",  # has a meaning only in a model with experts, whose builder takes it
}
"""Keys of every architecture that do not change the numbers, with the reason."""

_ALLOWED_VALUES: dict[str, float] = {
    "attention.causal": True,
    "expert_count": 0,
    "nextn_predict_layers": 0,
    "pooling_type": 0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}
"""Keys that transformers cannot represent, and the value with which each has no effect."""

_LLAMA3_LOW_FACTOR = 1.0
_LLAMA3_HIGH_FACTOR = 4.0
_LLAMA3_ORIGINAL_LENGTH = 8192
"""The settings of Llama 3.1 to 3.3. Files store the factors that follow from them, in the tensor rope_freqs.weight."""


def gguf_config(header: GgufHeader) -> Any:
    """Return the transformers config of the model in a GGUF file.

    Raises BadInput if the architecture is not one that rbptrack reads, a key that the architecture needs is missing,
    or a key has a value or a meaning that the config cannot represent.
    """
    from transformers import AutoConfig

    build = _BUILDERS.get(header.architecture)
    if build is None:
        raise header.refuse(
            f"rbptrack does not read the architecture {header.architecture!r}. It reads {', '.join(_BUILDERS)}"
        )
    keys = Keys(header, f"{header.architecture}.")
    model_type, settings = build(keys)
    keys.check_all_used(_ALLOWED_VALUES, _NO_EFFECT)
    try:
        return AutoConfig.for_model(model_type, **settings)
    except Exception as error:  # the configs of transformers check their values and raise errors of their own
        reason = first_line(error.__cause__ or error)[:200]
        raise header.refuse(f"its keys do not describe a model of {model_type} ({reason})") from error


def _decoder(keys: Keys) -> dict[str, Any]:
    """Return the settings that all architectures have, from their keys."""
    tokens = keys.header.values.get("tokenizer.ggml.tokens", ())
    return {
        "max_position_embeddings": keys.integer("context_length"),
        "hidden_size": keys.integer("embedding_length"),
        "num_hidden_layers": keys.integer("block_count", limit=MAX_LAYERS),
        "num_attention_heads": keys.integer("attention.head_count"),
        "vocab_size": keys.integer("vocab_size", len(tokens)),
        "tie_word_embeddings": "output.weight" not in keys.header.tensors,
    }


def _rotary_decoder(keys: Keys) -> dict[str, Any]:
    """Return the settings of a decoder with rotary positions, without the scaling of positions."""
    settings = _decoder(keys)
    head_dim = settings["hidden_size"] // settings["num_attention_heads"]
    head_dim = keys.integer("attention.key_length", head_dim)
    for name in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(name, head_dim) != head_dim:
            raise keys.wrong(name, f"{head_dim}, the size of a head")
    return settings | {
        "head_dim": head_dim,
        "intermediate_size": keys.integer("feed_forward_length"),
        # transformers needs the number to undo the order of rows in files of llama
        "num_key_value_heads": keys.integer("attention.head_count_kv"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
    }


def _rope(keys: Keys, settings: dict[str, Any], *, kinds: tuple[str, ...] = ("linear", "yarn")) -> dict[str, Any]:
    """Return the rotary positions and their scaling, as `rope_parameters` of a config. `kinds` are those allowed."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base", 10_000.0, above=1)}
    kind = keys.value("rope.scaling.type", "none")
    factor = keys.number("rope.scaling.factor", 1.0 if kind == "none" else None)
    original_length = keys.integer("rope.scaling.original_context_length", settings["max_position_embeddings"])
    has_factors = "rope_freqs.weight" in keys.header.tensors
    if kind == "none" and factor == 1:
        return rope | _rope_of_factors(keys.header, settings, rope["rope_theta"]) if has_factors else rope
    if kind not in kinds:
        raise keys.wrong("rope.scaling.type", f"none{''.join(f' or {name}' for name in kinds)}")
    if has_factors:
        raise keys.header.refuse("it has rope_freqs.weight and rope.scaling, which transformers cannot combine")
    rope |= {"rope_type": kind, "factor": factor}
    return rope | {"original_max_position_embeddings": original_length} if kind == "yarn" else rope


def _rope_of_factors(header: GgufHeader, settings: dict[str, Any], theta: float) -> dict[str, Any]:
    """Return the rope parameters of Llama 3.1 to 3.3, if the factors in `rope_freqs.weight` follow from them.

    If all factors are 1, return no parameters. Raises BadInput if the factors are others.
    """
    from gguf import GGUFReader

    tensors = {tensor.name: tensor for tensor in GGUFReader(header.path).tensors}
    factors = np.asarray(tensors["rope_freqs.weight"].data, np.float64).ravel()
    if np.all(factors == 1):
        return {}
    largest = float(factors.max(initial=1.0))
    wavelengths = 2 * np.pi * theta ** (np.arange(0, settings["head_dim"], 2) / settings["head_dim"])
    # between the two lengths, 1 / factor is linear in the number of periods; see transformers' "llama3"
    periods = _LLAMA3_ORIGINAL_LENGTH / wavelengths
    share = np.clip((periods - _LLAMA3_LOW_FACTOR) / (_LLAMA3_HIGH_FACTOR - _LLAMA3_LOW_FACTOR), 0, 1)
    expected = 1 / ((1 - share) / largest + share)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise header.refuse("the factors in rope_freqs.weight are not those of Llama 3.1 to 3.3")
    return {
        "rope_type": "llama3",
        "factor": largest,
        "low_freq_factor": _LLAMA3_LOW_FACTOR,
        "high_freq_factor": _LLAMA3_HIGH_FACTOR,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL_LENGTH,
    }


def _llama(keys: Keys) -> tuple[str, dict[str, Any]]:
    settings = _rotary_decoder(keys)
    if keys.value("tensor_data_layout", "Meta AI original pth") != "Meta AI original pth":
        raise keys.wrong("tensor_data_layout", "Meta AI original pth")
    biases = {
        "attention_bias": keys.header.has_tensor(".attn_q.bias"),
        "mlp_bias": keys.header.has_tensor(".ffn_down.bias"),
    }
    return "llama", settings | biases | {"rope_parameters": _rope(keys, settings)}


def _qwen2(keys: Keys) -> tuple[str, dict[str, Any]]:
    settings = _rotary_decoder(keys)
    settings["rope_parameters"] = _rope(keys, settings)
    if settings.pop("head_dim") * settings["num_attention_heads"] != settings["hidden_size"]:
        raise keys.wrong("attention.key_length", "the size of a state divided by the number of heads")
    return "qwen2", settings


def _qwen3(keys: Keys) -> tuple[str, dict[str, Any]]:
    settings = _rotary_decoder(keys)
    return "qwen3", settings | {"rope_parameters": _rope(keys, settings)}


def _qwen3_moe(keys: Keys) -> tuple[str, dict[str, Any]]:
    _, settings = _qwen3(keys)
    experts = {
        "num_experts": keys.integer("expert_count"),
        "num_experts_per_tok": keys.integer("expert_used_count"),
        "moe_intermediate_size": keys.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,  # llama.cpp does so for this architecture
    }
    return "qwen3_moe", settings | experts


def _gemma2(keys: Keys) -> tuple[str, dict[str, Any]]:
    settings = _rotary_decoder(keys)
    own = {
        "sliding_window": keys.integer("attention.sliding_window"),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping"),
        "final_logit_softcapping": keys.number("final_logit_softcapping"),
        "query_pre_attn_scalar": _gemma_scale(settings, layers_of_27b=46),
    }
    return "gemma2", settings | own | {"rope_parameters": _rope(keys, settings, kinds=())}


def _gemma3(keys: Keys) -> tuple[str, dict[str, Any]]:
    settings = _rotary_decoder(keys)
    own = {
        "sliding_window": keys.integer("attention.sliding_window"),
        "query_pre_attn_scalar": _gemma_scale(settings, layers_of_27b=62),
    }
    if keys.integer("attention.sliding_window_pattern", 6) != 6:
        raise keys.wrong("attention.sliding_window_pattern", "6")
    local = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", 10_000.0, above=1)}
    rope = {"full_attention": _rope(keys, settings, kinds=("linear",)), "sliding_attention": local}
    return "gemma3_text", settings | own | {"rope_parameters": rope}


def _gemma_scale(settings: dict[str, Any], *, layers_of_27b: int) -> int:
    """Return the number whose inverse root scales the attention. No key holds it: llama.cpp chooses it by size."""
    if settings["num_hidden_layers"] == layers_of_27b:
        return int(settings["hidden_size"] // settings["num_attention_heads"])
    return int(settings["head_dim"])


def _gpt2(keys: Keys) -> tuple[str, dict[str, Any]]:
    settings = _decoder(keys)
    own = {
        "n_inner": keys.integer("feed_forward_length"),
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
    }
    if keys.integer("attention.head_count_kv", settings["num_attention_heads"]) != settings["num_attention_heads"]:
        raise keys.wrong("attention.head_count_kv", "the number of heads")
    return "gpt2", settings | own


_BUILDERS: dict[str, Callable[[Keys], tuple[str, dict[str, Any]]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3_moe,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt2": _gpt2,
}
"""By llama.cpp's name of an architecture: the function that returns the model type and the settings of the config.

Each was compared with llama.cpp's logits. `tests/models/test_gguf.py` compares each with the model before conversion.
"""
