"""Tensor parallelism: which models can be split over processes, and over how many."""

from __future__ import annotations

from typing import Any

import torch

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Dtype, ModelConfig, Parallel
from rbptrack.models.architecture import count_parameters
from rbptrack.models.quantised import method_of

_BYTES = {Dtype.float32: 4, Dtype.bfloat16: 2, Dtype.float16: 2}
_SHARE_OF_DEVICE = 0.75  # of a GPU's memory that weights may take; the rest is for activations and logits


def processes(config: ModelConfig, architecture: Any) -> int:
    """Over how many processes a model is split; 1 for none.

    Args:
        config: `parallel` and `processes` in it say what is wanted.
        architecture: the model's transformers config.

    Raises:
        BadInput: it cannot be split as wanted, or not here.

    """
    if config.parallel is Parallel.none:
        return 1
    check(config, architecture)
    devices = torch.cuda.device_count() if config.device != "cpu" else 0
    if config.parallel is Parallel.auto:
        splits = devices > 1 and has_plan(architecture) and not config.gguf
        return _fewest(config, architecture, devices) if splits else 1
    wanted = config.processes or devices
    if wanted < 2:
        raise BadInput(
            f"model.parallel=tensor needs at least two GPUs, found {devices}; on a CPU, say model.processes=2"
        )
    if devices and wanted > devices:
        raise BadInput(f"model.processes={wanted}, but there are {devices} GPUs here")
    _check_even(config.name, architecture, wanted)
    return wanted


def check(config: ModelConfig, architecture: Any) -> None:
    """BadInput where a model cannot be split as wanted, whatever devices there are: known before anything is loaded."""
    if config.parallel is Parallel.none:
        if config.processes:
            raise BadInput(
                f"model.processes={config.processes} says over how many to split: give model.parallel=tensor"
            )
        return
    if config.device_map:
        raise BadInput("give model.parallel or model.device_map, not both: each spreads the weights in its own way")
    if config.parallel is Parallel.tensor:
        if method_of(architecture) or config.gguf:
            raise BadInput(
                f"model {config.name} is quantised, and model.parallel splits plain matrices only; "
                "model.device_map=auto spreads its layers over the GPUs"
            )
        check_plan(config.name, architecture)
        if config.processes:
            _check_even(config.name, architecture, config.processes)


def _check_even(name: str, architecture: Any, count: int) -> None:
    if not _divides(count, architecture):
        options = ", ".join(map(str, _options(architecture))) or "none"
        raise BadInput(
            f"model {name} has {_heads(architecture)} attention heads (of keys), which {count} processes cannot share "
            f"evenly; model.processes may be {options}"
        )


def has_plan(architecture: Any) -> bool:
    """Whether transformers knows how to split this architecture, head included."""
    from transformers import AutoModelForCausalLM

    if method_of(architecture):
        return False
    causal = AutoModelForCausalLM._model_mapping.get(type(architecture), None)
    plan = getattr(causal, "_tp_plan", None) or {}
    return bool(getattr(architecture, "base_model_tp_plan", None)) and any(
        "colwise" in style for style in plan.values()
    )


def check_plan(name: str, architecture: Any) -> None:
    """BadInput where there is no plan, with what to do instead."""
    if not has_plan(architecture):
        kind = (getattr(architecture, "architectures", None) or [type(architecture).__name__])[0]
        raise BadInput(
            f"model {name}: transformers has no tensor-parallel plan for {kind}; model.device_map=auto instead of "
            "model.parallel spreads its layers over the GPUs"
        )


def _heads(architecture: Any) -> int:
    text = architecture.get_text_config()
    return int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)


def _options(architecture: Any) -> list[int]:
    return [n for n in range(2, _heads(architecture) + 1) if _divides(n, architecture)]


def _divides(count: int, architecture: Any) -> bool:
    heads = int(architecture.get_text_config().num_attention_heads)
    return _heads(architecture) % count == 0 and heads % count == 0


def _fewest(config: ModelConfig, architecture: Any, devices: int) -> int:
    """The fewest processes whose GPUs hold the weights; 1 where one does, or where even all do not."""
    memory = torch.cuda.get_device_properties(0).total_memory
    return fewest(config, architecture, memory, most=devices) or 1


def fewest(
    config: ModelConfig, architecture: Any, memory_bytes: float, *, most: int, beside: float = 0.0
) -> int | None:
    """The fewest GPUs of so much memory each, at most so many, that hold a model; None where none do.

    Args:
        config: the precision of the weights.
        architecture: the model's transformers config.
        memory_bytes: of each GPU.
        most: how many there are.
        beside: bytes that each needs beside its share of the weights.

    """
    weights = count_parameters(architecture).total * _BYTES[config.dtype]
    options = [1, *(_options(architecture) if has_plan(architecture) else [])]
    room = min(_SHARE_OF_DEVICE * memory_bytes, memory_bytes - beside)
    fitting = [n for n in options if n <= most and weights / n <= room]
    return fitting[0] if fitting else None
