"""Reads the header of a GGUF file, and makes the config of its model from the file's keys.

Each key of the architecture is used here, is listed here with the reason why it does not change the numbers, or is a
reason to refuse the file. transformers alone would leave out keys and tensors that it does not know, without a word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.base.errors import BadInput, first_line, shortened_list
from rbptrack.models.checkpoint import local_file
from rbptrack.models.quantised import silence_torchao
from rbptrack.sources import hub
from rbptrack.sources.pin import Pinned

_STRING_LISTS = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
_COUNT_OFFSET = 16  # bytes before the number of keys in a file, an unsigned integer of 8 bytes
_MIN_BITS = 1.5  # of a weight in the smallest quantised format
_MAX_INTEGER = 2**31 - 1
MAX_LAYERS = 10_000  # building more would take hours; some configs hold a list with an entry for each layer
_MAX_NAMES = 4  # the largest number of keys or tensors that an error names
_REMEDY = "give the original model instead of the GGUF file"

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


@dataclass(frozen=True)
class GgufHeader:
    """The header of a GGUF file.

    Attributes:
        path: the file.
        architecture: llama.cpp's name of the architecture, such as `qwen3`.
        values: the value of each key.
        tensors: the names of the tensors.

    """

    path: Path
    architecture: str
    values: dict[str, Any]
    tensors: tuple[str, ...]

    def has_tensor(self, suffix: str) -> bool:
        """Return whether the name of a tensor ends with `suffix`."""
        return any(name.endswith(suffix) for name in self.tensors)

    def refuse(self, fault: str, remedy: str = _REMEDY) -> BadInput:
        """Return an error about a fault that another file of the model may not have."""
        return BadInput(f"{self.path.name}: {fault}: {remedy}")


def gguf_path(pinned: Pinned) -> Path:
    """Return the path of the GGUF file of a pinned model. Downloads it if it is on the Hub and not cached."""
    path = local_file(pinned, pinned.gguf)
    if path is None and pinned.revision is not None:
        from huggingface_hub import hf_hub_download

        def download() -> str:
            return str(hf_hub_download(pinned.location, pinned.gguf, revision=pinned.revision))

        path = Path(hub.call_hub("model", pinned.location, pinned.requested, download))
    if path is None:
        raise BadInput(f"model.gguf={pinned.gguf}: there is no such file in {pinned.location}")
    return path


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file. Raises BadInput if the file is damaged, or does not hold one whole model."""
    if find_spec("gguf") is None:  # transformers reads the header without it, but not the weights
        raise BadInput("model.gguf needs the package gguf: pip install 'rbptrack[gguf]'")
    status = path.stat()
    return _read_header(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)  # the header holds the vocabulary, which takes some 50 MB
def _read_header(path: Path, size: int, mtime_ns: int) -> GgufHeader:
    silence_torchao()
    try:
        from transformers.integrations.gguf.reader import read_gguf_metadata

        values, tensors = read_gguf_metadata(str(path), _STRING_LISTS)
        with path.open("rb") as file:
            file.seek(_COUNT_OFFSET)
            num_keys = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise BadInput(f"model.gguf: {path} cannot be read: {error.strerror}") from error
    except Exception as error:  # the reader raises what the damaged bytes lead to
        raise BadInput(f"model.gguf: {path} is damaged or not a GGUF file ({first_line(error)[:200]})") from error
    header = GgufHeader(path, str(values["general.architecture"]), values, tensors)
    if len(values) != num_keys or len(set(tensors)) != len(tensors):
        raise header.refuse("a key or a tensor appears twice")
    if values.get("general.type", "model") != "model":
        raise BadInput(f"{path.name} holds no model, but a part of one (general.type = {values['general.type']})")
    if values.get("split.count", 0) > 1:
        raise BadInput(
            f"{path.name} is one of {values['split.count']} parts of a model (split.count): join them with "
            "llama-gguf-split --merge"
        )
    return header


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


def check_gguf_size(header: GgufHeader, num_parameters: int) -> None:
    """Raise BadInput if a file is too small for the number of parameters that its keys ask for."""
    if num_parameters * _MIN_BITS > 8 * header.path.stat().st_size:
        raise BadInput(
            f"{header.path.name} is damaged: its keys ask for {num_parameters:,} parameters, but it holds less"
        )


def check_gguf_tensors(header: GgufHeader, module: Any) -> None:
    """Check that transformers loads each tensor of a GGUF file into `module`. Raises BadInput if it leaves out one."""
    from transformers import modeling_gguf_pytorch_utils as loader

    processor = loader.TENSOR_PROCESSORS.get(header.architecture, loader.TensorProcessor)(config={})
    names: Any = loader.get_gguf_hf_weights_map(module, processor)
    unused = [name for name in header.tensors if name not in names and name.removesuffix(".weight") not in names]
    unused = [name for name in unused if name != "rope_freqs.weight"]  # `_rope_of_factors` has used it
    if unused:
        listed = shortened_list(sorted(unused), limit=_MAX_NAMES)
        raise header.refuse(f"transformers does not use {len(unused)} of its tensors ({listed})")


def gguf_type(header: GgufHeader) -> str:
    """Return the quantisation of a GGUF file, such as `Q4_K_M`, from its header.

    If the header does not name it, the function returns the type that most of the weights have.
    """
    from gguf import GGUFReader, LlamaFileType

    with suppress(KeyError, ValueError):  # not in the header, or not known to the installed version of gguf
        return LlamaFileType(header.values["general.file_type"]).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    sizes: Counter[str] = Counter()
    for tensor in GGUFReader(header.path).tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_elements)
    return sizes.most_common(1)[0][0]


class Keys:
    """The keys of a file that have one prefix. Each method takes a key, and remembers that it was used.

    Args:
        header: the header of the file.
        prefix: the prefix, such as `llama.`, which is left out of the names of keys.
        remedy: what to do if a key has a wrong value.

    """

    def __init__(self, header: GgufHeader, prefix: str, remedy: str = _REMEDY) -> None:
        self.header = header
        self._prefix = prefix
        self._remedy = remedy
        self._used: set[str] = set()

    def value(self, name: str, default: Any = None) -> Any:
        self._used.add(self._prefix + name)
        return self.header.values.get(self._prefix + name, default)

    def integer(self, name: str, default: int | None = None, *, limit: int = _MAX_INTEGER) -> int:
        """Return a whole number from 1 to `limit`. Raises BadInput if it is none, or is missing without a default."""
        value = self.value(name, default)
        if type(value) is not int or not 1 <= value <= limit:
            raise self.wrong(name, f"one whole number from 1 to {limit:,}")
        return value

    def number(self, name: str, default: float | None = None, *, above: float = 0) -> float:
        """Return a number above `above`. Raises BadInput if it is missing without a default, or of another kind."""
        value = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < math.inf:
            raise self.wrong(name, f"a number above {above:g}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def wrong(self, name: str, expected: str) -> BadInput:
        """Return the error for a key with a wrong value, or without a value."""
        value = self.header.values.get(self._prefix + name)
        found = "is missing" if value is None else f"is {str(value)[:60]}"
        return self.refuse(f"{self._prefix}{name} {found}, expected {expected}")

    def refuse(self, fault: str) -> BadInput:
        return self.header.refuse(fault, self._remedy)

    def check_all_used(self, allowed_values: Mapping[str, object], no_effect: Collection[str]) -> None:
        """Raise BadInput if a key was not taken and may change the numbers.

        Args:
            allowed_values: keys that are not supported, and the value with which each has no effect.
            no_effect: keys that change nothing.

        """
        for name, allowed in allowed_values.items():
            if self._prefix + name not in self._used and self.value(name, allowed) != allowed:
                raise self.wrong(name, f"no such key, or {allowed}")
        known = self._used | {self._prefix + name for name in no_effect}
        left_over = [name for name in self.header.values if name.startswith(self._prefix) and name not in known]
        if left_over:
            listed = shortened_list(sorted(left_over), limit=_MAX_NAMES)
            raise self.refuse(f"rbptrack does not know the meaning of {listed}")


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
