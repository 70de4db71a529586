"""Tensor parallelism: which models can be split over processes, over how many, and one process's share of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rbptrack.config.schema import Dtype, ModelConfig, Parallel
from rbptrack.errors import BadInput
from rbptrack.models.architecture import count_parameters
from rbptrack.models.device import set_precision
from rbptrack.models.loading import CausalModel, load_module, probe_tokens, split
from rbptrack.models.probe import check_states
from rbptrack.scoring.parallel import Shard
from rbptrack.sources.pin import Source

_BYTES = {Dtype.float32: 4, Dtype.bfloat16: 2, Dtype.float16: 2}
_SHARE_OF_DEVICE = 0.75  # of a GPU's memory that weights may take; the rest is for activations and logits
_CHECK_TOKENS = 8


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
        return _fewest(config, architecture, devices) if devices > 1 and has_plan(architecture) else 1
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


def load_share(
    config: ModelConfig, source: Source, device: torch.device, *, candidates: int | None
) -> tuple[CausalModel, float]:
    """Load this process's share of a model; every process of the default group calls it.

    Returns:
        The model, whose head has this process's rows, and the largest difference between its logits and those of the
        model's own forward pass, relative to the largest logit.

    Raises:
        BadInput: it cannot be loaded, is not causal, or does something to its logits that the split misses.

    """
    from transformers.distributed.configuration_utils import DistributedConfig

    set_precision(config.tf32)
    module = load_module(config, source, distributed_config=DistributedConfig(tp_size=dist.get_world_size()))
    module.eval()
    _let_go_of_a_whole_head(module)
    model = split(module)
    if model.head.then is not None:
        raise BadInput(f"model {config.name} does more to its logits than a split head can; use model.device_map=auto")
    weight, first = _own_rows(model.head.weight)
    bias = None if model.head.bias is None else _own_rows(model.head.bias)[0]
    total = model.vocab_size if candidates is None else min(candidates, model.vocab_size)
    kept = max(0, min(weight.shape[0], total - first))
    head = replace(model.head, weight=weight[:kept], bias=None if bias is None else bias[:kept])
    model = replace(model, head=head, device=device, shard=Shard(first, total))
    _check_causal(model, config.name, iter(probe_tokens(module)))
    return model, _verified(model, config.name)


def _let_go_of_a_whole_head(module: Any) -> None:
    """Where the head is whole, transformers must not gather its logits as if each process had some of them.

    So it is with GPT-NeoX whose head is its embedding: the plan names the head alone, and the embedding stays whole.
    """
    from torch.distributed.tensor import DTensor

    head = module.get_output_embeddings()
    if head is not None and not isinstance(head.weight, DTensor):
        vars(head).pop("forward", None)  # what transformers put there; the class's own is below it


@torch.inference_mode()
def _check_causal(model: CausalModel, name: str, draws: Iterator[Tensor]) -> None:
    """BadInput where states depend on later tokens, as for a model in one process; every process comes to the same."""

    def agreed(tokens: Tensor) -> Tensor:
        states = model.backbone(tokens).contiguous()
        dist.broadcast(states, src=0)  # else a rounding error could send the processes on different ways
        return states

    check_states(name, agreed, draws)


@torch.inference_mode()
def _verified(model: CausalModel, name: str) -> float:
    """How far the shares' logits are from the model's own; BadInput where ranks would be wrong."""
    assert model.shard is not None  # noqa: S101
    tokens = torch.arange(1, 1 + _CHECK_TOKENS, device=model.device)[None] % model.shard.vocab_size
    whole = model.whole(tokens)[0].float()  # (tokens, vocabulary), gathered by transformers
    mine = whole[:, model.shard.first : model.shard.first + model.head.vocab_size]
    ours = model.head.logits(model.backbone(tokens)[0])
    worst = (ours - mine).abs().amax() if mine.numel() else torch.zeros((), device=model.device)
    worst = worst / whole.abs().amax().clamp(min=1e-6)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if not float(worst) <= (1e-3 if model.head.weight.dtype == torch.float32 else 5e-2):
        raise BadInput(
            f"model {name}: its logits are not its hidden states times its head (relative difference "
            f"{float(worst):.2g}) when it is split; model.device_map=auto spreads its layers instead"
        )
    return float(worst)


def _own_rows(parameter: Tensor) -> tuple[Tensor, int]:
    """The rows that this process holds of a parameter, and the first of them."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as ByRows
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(parameter, DTensor):  # a plan that leaves the head whole: every process takes its part of it
        each = -(-parameter.shape[0] // dist.get_world_size())
        first = min(dist.get_rank() * each, parameter.shape[0])
        return parameter[first : first + each], first
    if list(parameter.placements) != [ByRows(0)]:
        raise BadInput(f"the model's head is split as {parameter.placements}, expected by rows of the vocabulary")
    _, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return parameter.to_local(), int(offset[0])


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
