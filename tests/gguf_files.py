"""Write GGUF files of small models, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from tests.tiny_models import byte_level

F32 = gguf.GGMLQuantizationType.F32
Q8_0 = gguf.GGMLQuantizationType.Q8_0
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>"]
SHAPE: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 7,  # Gemma 3 has one layer of each kind among six
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
FLOAT_KEYS = ("epsilon", "freq_base", "factor", "softcapping")
ARCHITECTURES = {
    "llama": ("llama", {"head_dim": 16}),
    "qwen2": ("qwen2", {"tie_word_embeddings": False}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3moe": (
        "qwen3_moe",
        {
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
        },
    ),
    "gemma2": ("gemma2", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16}),
    "gemma3": ("gemma3_text", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16}),
    "gpt2": ("gpt2", {"n_inner": 192}),
}
"""By architecture in GGUF files: the model type of transformers, and settings of its config."""


def random_model(architecture: str, **settings: Any) -> Any:
    """Make a model with random weights, whose next tokens are far from equally probable."""
    torch.manual_seed(0)
    model_type, own = ARCHITECTURES[architecture]
    shape = dict(SHAPE)
    if architecture == "gpt2":
        del shape["num_key_value_heads"], shape["intermediate_size"]
    config = transformers.CONFIG_MAPPING[model_type](**{**shape, **own, **settings})
    causal: Any = transformers.AutoModelForCausalLM
    model = causal.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.15 if parameter.ndim > 1 else 0.1))
            if parameter.ndim == 1 and "bias" not in name and "gemma" not in architecture:
                parameter.add_(1)
    return model


def model_keys(architecture: str, config: Any) -> dict[str, Any]:
    """Return the keys `<architecture>.*` that the converter writes for a config."""
    keys: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "attention.head_count": config.num_attention_heads,
    }
    if architecture == "gpt2":
        keys |= {"feed_forward_length": config.n_inner, "attention.layer_norm_epsilon": config.layer_norm_epsilon}
        return {f"{architecture}.{name}": value for name, value in keys.items()}
    rope = config.rope_parameters
    keys |= {
        "feed_forward_length": config.intermediate_size,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope.get("full_attention", rope)["rope_theta"]),
    }
    if architecture == "llama":
        keys |= {"rope.dimension_count": config.head_dim, "vocab_size": config.vocab_size}
    elif architecture != "qwen2":
        keys |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    if "gemma" in architecture:
        keys["attention.sliding_window"] = config.sliding_window
    if architecture == "gemma2":
        keys["attn_logit_softcapping"] = config.attn_logit_softcapping
        keys["final_logit_softcapping"] = config.final_logit_softcapping
    if architecture == "qwen3moe":
        keys["expert_count"] = config.num_experts
        keys["expert_used_count"] = config.num_experts_per_tok
        keys["expert_feed_forward_length"] = config.moe_intermediate_size
    return {f"{architecture}.{name}": value for name, value in keys.items()}


def model_tensors(architecture: str, model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the tensors that the converter writes for a model: with other names, orders of rows and values."""
    config = model.config
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    tensors = {}
    for key, weight in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.numpy()
        if ".mlp.experts." in key:  # transformers holds the experts of a layer in one tensor
            layer = key.split(".")[2]
            parts = np.split(values, 2, axis=1) if "gate_up" in key else [values]
            for part, name in zip(parts, ("gate", "up") if len(parts) == 2 else ("down",), strict=True):
                tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = part
            continue
        if architecture == "llama" and ("q_proj" in key or "k_proj" in key):
            heads = config.num_attention_heads if "q_proj" in key else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if "gemma" in architecture and key.endswith("norm.weight"):
            values = values + 1
        if architecture == "gpt2" and key.endswith(("attn.weight", "proj.weight", "fc.weight")):
            values = values.T
        tensors[str(names.get_name(key, try_suffixes=(".weight", ".bias")))] = np.ascontiguousarray(values)
    return tensors


def byte_level_keys(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """Return the keys of a byte-level tokenizer of 400 tokens. A change to None leaves a key out."""
    model = json.loads(byte_level(SPECIAL_TOKENS).to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    keys: dict[str, Any] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    keys |= changes
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items() if value is not None}


def write_keys(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray[Any, Any]],
    matrices: gguf.GGMLQuantizationType = F32,
) -> None:
    """Write a GGUF file with keys and tensors. Python's types decide the types of the values.

    `matrices` is the type of matrices. All other tensors are float32.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in keys.items():
        if name == "general.architecture":
            continue
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, int):
            (writer.add_uint32 if value >= 0 else writer.add_int32)(name, value)
        else:
            writer.add_array(name, value)
    for name, values in tensors.items():
        kind = matrices if values.ndim == 2 else F32
        writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(
    path: Path,
    architecture: str,
    model: Any,
    *,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> None:
    """Write a model with a small tokenizer. `keys` and `tensors` are added; a value of None leaves a key out."""
    all_keys = {**model_keys(architecture, model.config), **byte_level_keys(), **(keys or {})}
    all_keys = {name: value for name, value in all_keys.items() if value is not None}
    write_keys(path, architecture, all_keys, model_tensors(architecture, model) | dict(tensors or {}))


def write_quantised(path: Path) -> Any:
    """Write a Qwen 2 with matrices in Q8_0. Returns the model with the dequantised weights of the file."""
    model = random_model("qwen2")
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                packed = gguf.quants.quantize(weight.numpy(), Q8_0)
                weight.copy_(torch.from_numpy(gguf.quants.dequantize(packed, Q8_0)))
    keys = {**model_keys("qwen2", model.config), **byte_level_keys("qwen2")}
    write_keys(path, "qwen2", keys, model_tensors("qwen2", model), Q8_0)
    return model
