"""Tensor parallelism: one process's share of a model (`split_plan` says which models, and over how many)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import ModelConfig
from rbptrack.models.causal import CausalModel, probe_tokens, split
from rbptrack.models.device import set_precision
from rbptrack.models.loading import load_module
from rbptrack.models.probe import check_states, largest_difference
from rbptrack.scoring.parallel import HeadRows
from rbptrack.sources.pin import Source

_CHECK_TOKENS = 8


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
    _add_in_float32(module)
    model = split(module)
    if model.head.then is not None:
        raise BadInput(f"model {config.name} does more to its logits than a split head can; use model.device_map=auto")
    weight, first = _own_rows(model.head.weight)
    bias = None if model.head.bias is None else _own_rows(model.head.bias)[0]
    total = model.vocab_size if candidates is None else min(candidates, model.vocab_size)
    kept = max(0, min(weight.shape[0], total - first))
    head = replace(model.head, weight=weight[:kept], bias=None if bias is None else bias[:kept])
    model = replace(model, head=head, device=device, shard=HeadRows(first, total))
    _check_causal(model, config.name, iter(probe_tokens(module)))
    return model, _verified(model, config.name)


def _add_in_float32(module: Any) -> None:
    """Let layers of half precision that are split by columns add the processes' shares before they round.

    As a whole layer does, whose products are summed in float32 and rounded once; transformers rounds every share.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as ByFeatures

    def forward_of(layer: nn.Linear, before: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def forward(states: Tensor) -> Tensor:
            weight: Any = layer.weight
            mine = weight.to_local()
            if isinstance(states, DTensor) or states.shape[-1] != mine.shape[1]:
                return before(states)
            total: Tensor = states.float() @ mine.float().T
            dist.all_reduce(total)
            bias: Any = layer.bias
            if bias is not None:
                total += (bias.to_local() if isinstance(bias, DTensor) else bias).float()
            return total.to(states.dtype)

        return forward

    for layer in module.modules():
        if isinstance(layer, nn.Linear) and isinstance(layer.weight, DTensor) and layer.weight.element_size() == 2:
            if list(layer.weight.placements) == [ByFeatures(1)]:
                layer.forward = forward_of(layer, layer.forward)  # type: ignore[method-assign]


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
    if not float(worst) <= largest_difference(model.head.weight.dtype):
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
