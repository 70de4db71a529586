"""Quantised models: which libraries load them, and how their heads and scales are taken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput

_LIBRARIES = {  # what pip installs for each way of quantising; the module's name, where it is another
    "torchao": ("torchao",),
    "bitsandbytes": ("bitsandbytes",),
    "gptq": ("gptqmodel", "optimum"),
    "awq": ("gptqmodel",),
    "compressed-tensors": ("compressed-tensors",),
    "quanto": ("optimum-quanto",),
    "hqq": ("hqq",),
    "gguf": ("gguf",),
}
_MODULES = {"compressed-tensors": "compressed_tensors", "optimum-quanto": "optimum.quanto"}
_EXTRAS = ("torchao", "gguf")  # of pyproject.toml


def method_of(config: Any) -> str:
    """Return the quantisation method named in a transformers config: `torchao`, `gptq`, ...; empty without one."""
    held = _settings(config)
    if not held:
        return ""
    method = held.get("quant_method")
    if not method and (held.get("load_in_8bit") or held.get("load_in_4bit")):
        return "bitsandbytes"
    return str(getattr(method, "value", method) or "of no name")


def described(config: Any) -> str:
    """Return a quantisation in words, such as `torchao, Int8WeightOnlyConfig` or `gptq, 4 bits`; empty if it has
    none.
    """
    held = _settings(config)
    kind = type(held["quant_type"]).__name__ if "quant_type" in held else ""
    bits = f"{held['bits']} bits" if "bits" in held else ""
    return ", ".join(filter(None, (method_of(config), kind, bits)))


def _settings(config: Any) -> dict[str, Any]:
    settings = getattr(config, "quantization_config", None) or {}
    return settings if isinstance(settings, dict) else vars(settings)


def check_library(name: str, method: str) -> None:
    """Raise BadInput where the library that a quantisation needs is not installed, in a line that names it."""
    missing = [library for library in _LIBRARIES.get(method, ()) if not _there(_MODULES.get(library, library))]
    if missing:
        wanted = [f"'rbptrack[{library}]'" if library in _EXTRAS else library for library in missing]
        raise BadInput(
            f"{name} is quantised with {method}, which needs {' and '.join(missing)}: pip install {' '.join(wanted)}"
        )


def quiet() -> None:
    """Silence torchao's warnings about kernels for other devices; transformers imports it where it is installed."""
    for logger in ("torchao", "torch.utils._pytree"):
        logging.getLogger(logger).setLevel(logging.ERROR)


def dequantising(file: str) -> dict[str, Any]:
    """Return the further arguments of `from_pretrained` for a GGUF file: dequantise on every device, without a bar."""
    import transformers
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = reader.tqdm  # type: ignore[attr-defined]
    reader.tqdm = bar if isinstance(bar, partial) else partial(bar, disable=True)  # type: ignore[attr-defined]
    config = getattr(transformers, "GgufConfig", None)  # before it was there, all were dequantised
    return {} if config is None else {"quantization_config": config(gguf_file=file, dequantize=True)}


def is_matrix(weight: Tensor | None) -> bool:
    """Return whether a head's weight is a matrix of numbers that torch multiplies with, no packed or scaled
    integers.
    """
    if weight is None or weight.ndim != 2 or weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return weight is not None and weight.dtype == torch.float64 and weight.ndim == 2
    return type(weight) in (Tensor, nn.Parameter)


def multiplier(output: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a quantised head as a product: hidden states (tokens, width) to (tokens, vocabulary), float32."""

    def product(hidden: Tensor) -> Tensor:
        made: Tensor = output(hidden)
        return made.float()

    return product


def compute_in(module: nn.Module, dtype: torch.dtype) -> None:
    """Let quantised weights, which compute in the type that their checkpoint was made in, compute in this one.

    Scales of half precision become float32 without loss. Without it, products of some formats fail.
    """
    for layer in module.modules():
        for name, weight in layer.named_parameters(recurse=False):
            if type(weight) is not nn.Parameter and weight.is_floating_point() and weight.dtype != dtype:
                setattr(layer, name, nn.Parameter(weight.detach().to(dtype), requires_grad=False))


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # optimum.quanto without optimum
        return False
