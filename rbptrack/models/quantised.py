"""Quantised models: what they say of themselves, and how their heads multiply."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput


def method_of(config: Any) -> str:
    """The quantisation that a transformers config names: `torchao`, `gptq`, ...; empty without one."""
    settings = _settings(config)
    if not settings:
        return ""
    method = settings.get("quant_method")
    return str(getattr(method, "value", method) or "of no name")


def described(config: Any) -> str:
    """A quantisation in words, such as `torchao, Int8WeightOnlyConfig` or `gptq, 4 bits`; empty without one."""
    settings = _settings(config)
    words = [method_of(config)]
    if "quant_type" in settings:
        words.append(type(settings["quant_type"]).__name__)
    if "bits" in settings:
        words.append(f"{settings['bits']} bits")
    return ", ".join(filter(None, words))


def check_quantisation(name: str, config: Any) -> None:
    """Refuse a quantisation that transformers does not know: it would leave it out, unsaid."""
    method = method_of(config)
    if not method:
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    if method not in KNOWN and method != "bitsandbytes":
        raise BadInput(
            f"{name}: config.json asks for the quantisation {method!r}, which transformers does not know. "
            f"Known: {', '.join(sorted(KNOWN))}"
        )


def silence_torchao() -> None:
    """Silence its warnings of kernels for other devices; transformers imports it where it is installed."""
    for logger in ("torchao", "torch.utils._pytree"):
        logging.getLogger(logger).setLevel(logging.ERROR)


def is_matrix(weight: Tensor | None) -> bool:
    """Whether a head's weight is a matrix of numbers that torch multiplies with, no packed or scaled integers."""
    numbers = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    return (
        weight is not None and type(weight) in (Tensor, nn.Parameter) and weight.ndim == 2 and weight.dtype in numbers
    )


def compute_in(module: nn.Module, dtype: torch.dtype) -> None:
    """Let quantised weights, which compute in the type that their checkpoint was made in, compute in this one.

    Scales of half precision become float32 without loss. Without it, products of some formats fail.
    """
    for layer in module.modules():
        for name, weight in layer.named_parameters(recurse=False):
            if type(weight) is not nn.Parameter and weight.is_floating_point() and weight.dtype != dtype:
                setattr(layer, name, nn.Parameter(weight.detach().to(dtype), requires_grad=False))


def _settings(config: Any) -> dict[str, Any]:
    settings = getattr(config, "quantization_config", None) or {}
    return settings if isinstance(settings, dict) else vars(settings)
