"""Read which quantisation a model has, and convert quantised weights to the type of the computation."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.base.errors import BadInput


def quantisation_method(config: Any) -> str:
    """Return the quantisation that a transformers config names, such as `torchao` or `gptq`. Empty if there is none."""
    settings = _quantisation_settings(config)
    if not settings:
        return ""
    method = settings.get("quant_method")
    return str(getattr(method, "value", method) or "of no name")


def describe_quantisation(config: Any) -> str:
    """Describe the quantisation that a transformers config names, such as `int4 group 128 gptq`.

    Return an empty text if the model is not quantised.
    """
    method = quantisation_method(config)
    if not method:
        return ""
    settings = _quantisation_settings(config)
    torchao_type = settings.get("quant_type")
    granularity = getattr(torchao_type, "granularity", None)
    group = settings.get("group_size") or getattr(torchao_type, "group_size", None)
    group = group or getattr(granularity, "group_size", 0)
    words = [_number_type(settings), f"group {group}" if group and group > 0 else "", method]
    return " ".join(filter(None, words))


def _number_type(settings: dict[str, Any]) -> str:
    """Return the number type of quantised weights, such as `int8` or `nf4`. Empty if the settings do not name it."""
    if settings.get("bits"):
        return f"int{settings['bits']}"
    if settings.get("load_in_8bit"):
        return "int8"
    if settings.get("load_in_4bit"):
        return str(settings.get("bnb_4bit_quant_type", "fp4"))
    torchao_type = settings.get("quant_type")
    if torchao_type is None:
        return ""
    name = type(torchao_type).__name__.removesuffix("Config")
    if hasattr(torchao_type, "weight_dtype"):
        return f"{str(torchao_type.weight_dtype).removeprefix('torch.')}{name.removeprefix('IntxWeightOnly')}"
    return name.removesuffix("WeightOnly").lower() if name.endswith("WeightOnly") else name


def check_quantisation(name: str, config: Any) -> None:
    """Raise BadInput if a config names a quantisation that transformers does not know and would silently ignore."""
    method = quantisation_method(config)
    if not method:
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    if method not in KNOWN and method != "bitsandbytes":
        raise BadInput(
            f"{name}: config.json asks for the quantisation {method!r}, which transformers does not know. "
            f"Known: {', '.join(sorted(KNOWN))}"
        )


def silence_torchao() -> None:
    """Silence torchao's warnings about kernels for other devices. transformers imports torchao if it is installed."""
    for logger in ("torchao", "torch.utils._pytree"):
        logging.getLogger(logger).setLevel(logging.ERROR)


def is_matrix(weight: Tensor | None) -> bool:
    """Return whether a head's weight is a plain matrix of floats, and not of packed or scaled integers."""
    if weight is None or type(weight) not in (Tensor, nn.Parameter):
        return False
    return weight.ndim == 2 and weight.dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def convert_quantised(module: nn.Module, dtype: torch.dtype) -> None:
    """Make the quantised weights of a module compute in `dtype`. The module is changed in place.

    A quantised weight computes in the type in which its checkpoint was saved. Products of some formats fail if this
    type differs from that of the states. The conversion of scales from half precision to float32 loses nothing.
    """
    for layer in module.modules():
        for name, weight in layer.named_parameters(recurse=False):
            if type(weight) is not nn.Parameter and weight.is_floating_point() and weight.dtype != dtype:
                setattr(layer, name, nn.Parameter(weight.detach().to(dtype), requires_grad=False))


def _quantisation_settings(config: Any) -> dict[str, Any]:
    settings = getattr(config, "quantization_config", None) or {}
    return settings if isinstance(settings, dict) else vars(settings)
