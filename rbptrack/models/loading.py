"""Load a causal language model from the hub or a folder, and split backbone from head."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.config.schema import ModelConfig, Parallel
from rbptrack.errors import BadInput, first_line
from rbptrack.models.architecture import from_source, load_config, only_pickles, parameters
from rbptrack.models.device import is_spread, place, resident
from rbptrack.models.group import Group, stand_in
from rbptrack.scoring.parallel import Shard
from rbptrack.scoring.scorer import Head
from rbptrack.sources.pin import Source

_CHECK_TOKENS = 8


@dataclass(frozen=True)
class CausalModel:
    """A loaded model, split where the vocabulary begins.

    Attributes:
        backbone: token ids (batch, length) to hidden states (batch, length, width).
        head: hidden states to logits.
        whole: token ids to full logits (batch, length, vocabulary), as the model itself does it, for checks.
        device: where both live.
        non_embedding_params: S.
        total_params: every parameter, tied ones once.
        widest: the largest number of features that one of the backbone's layers writes.
        heads: attention heads whose weights are all in memory at once (attention=eager); 0 otherwise.
        spread: whether accelerate moves weights or activations between devices while it runs.
        shard: which rows of the head this process holds, where several processes hold the model together.
        group: those processes, where this one only sends them batches; backbone and head are then stand-ins.

    """

    backbone: Callable[[Tensor], Tensor]
    head: Head
    whole: Callable[[Tensor], Tensor]
    device: torch.device
    non_embedding_params: int
    total_params: int
    widest: int
    heads: int
    spread: bool
    shard: Shard | None = None
    group: Group | None = None

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head, padding rows included."""
        return self.head.vocab_size

    def activation_bytes(self, length: int) -> int:
        """About how many bytes the backbone's activations take per token, in sequences of a length."""
        width, size = self.head.weight.shape[1], self.head.weight.element_size()
        return int(size * (12 * width + 4 * self.widest + 3 * self.heads * length))


def load_model(config: ModelConfig, source: Source, *, candidates: int | None = None) -> CausalModel:
    """Load weights (safetensors only) and check that backbone and head together are the model.

    Args:
        config: which model, and how.
        source: its pinned weights.
        candidates: rank targets among the first so many rows of the head; None: all.

    Raises:
        BadInput: the weights cannot be loaded, or the architecture does something to its logits that the split misses.

    """
    from rbptrack.models import tensor_parallel

    if config.parallel is not Parallel.none:
        count = tensor_parallel.processes(config, load_config(source))
        if count > 1:
            return _of_group(Group(config, source, count, candidates=candidates))
    device, placed = place(config)
    module = load_module(config, source, **placed)
    if not placed:
        module.to(device)
    return of_module(module, config.name, candidates=candidates)


def _of_group(group: Group) -> CausalModel:
    """A model whose weights other processes hold."""

    def elsewhere(tokens: Tensor) -> Tensor:
        raise NotImplementedError("the weights are in other processes: Group.scores")

    loaded = group.loaded
    return CausalModel(
        backbone=elsewhere,
        head=stand_in(loaded),
        whole=elsewhere,
        device=torch.device("cpu"),
        non_embedding_params=loaded.non_embedding_params,
        total_params=loaded.total_params,
        widest=loaded.widest,
        heads=loaded.heads,
        spread=False,
        group=group,
    )


def load_module(config: ModelConfig, source: Source, **placed: Any) -> Any:
    """The transformers module, its weights placed as `from_pretrained` is told; BadInput where it cannot be loaded."""
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if source.revision is not None and sys.stderr.isatty():
        enable_progress_bars()  # weights are gigabytes: the hub's own bars, which the line above switched off too
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        return from_source(
            source,
            AutoModelForCausalLM.from_pretrained,
            dtype=getattr(torch, config.dtype.value),
            attn_implementation=None if config.attention == "auto" else config.attention,
            use_safetensors=None if config.pickles else True,
            **placed,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        if not config.pickles and "safetensors" in str(error):
            raise BadInput(only_pickles(f"model {config.name} ({source.location})")) from error
        raise BadInput(f"model {config.name} cannot be loaded from {source.location}: {first_line(error)}") from error


def of_module(module: Any, name: str, *, candidates: int | None = None) -> CausalModel:
    """A loaded transformers causal LM, in evaluation mode, split where the vocabulary begins.

    Raises:
        BadInput: the architecture does something to its logits that the split misses.

    """
    module.eval()
    model = split(module, candidates=candidates)
    _verify(model, name)
    return model


def split(module: nn.Module, *, candidates: int | None = None) -> CausalModel:
    """Split a transformers causal LM into backbone and head, the head cut to its first `candidates` rows."""
    output = module.get_output_embeddings()  # type: ignore[operator]
    config: Any = module.config
    base: Any = module.base_model

    def backbone(tokens: Tensor) -> Tensor:
        # No attention mask: batches are padded on the right only, and a causal model never looks there.
        return base(input_ids=tokens, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    weight, bias = resident(output, "weight"), resident(output, "bias")
    assert weight is not None  # noqa: S101  an output embedding without weights would be no head
    head = Head(
        weight=weight[:candidates],
        bias=None if bias is None else bias[:candidates],
        softcap=getattr(config, "final_logit_softcapping", None),
        scale=float(getattr(config, "logit_scale", 1.0)) / float(getattr(config, "logits_scaling", 1.0)),
    )
    counts = parameters(_counted(module))
    return CausalModel(
        backbone=backbone,
        head=head,
        whole=lambda tokens: module(input_ids=tokens, use_cache=False).logits,
        device=weight.device,
        non_embedding_params=counts.non_embedding,
        total_params=counts.total,
        widest=max(p.shape[0] for m in module.modules() for p in m.parameters(False) if _writes(m, output)),
        heads=getattr(config, "num_attention_heads", 0) if config._attn_implementation == "eager" else 0,
        spread=is_spread(module),
    )


def _counted(module: nn.Module) -> nn.Module:
    """What to count parameters of: where accelerate holds them, it takes tied ones apart, so a copy without weights."""
    if not is_spread(module):
        return module
    with torch.device("meta"):
        return type(module)(module.config)


def _writes(layer: nn.Module, output: nn.Module) -> bool:
    return layer is not output and not isinstance(layer, nn.Embedding)


@torch.inference_mode()
def _verify(model: CausalModel, name: str) -> None:
    """A head that caps, scales or projects in a way unknown here would give wrong ranks: refuse it."""
    tokens = torch.arange(1, 1 + _CHECK_TOKENS, device=model.device)[None] % model.vocab_size  # (1, tokens)
    whole = model.whole(tokens)[0, :, : model.vocab_size].float()
    hidden = model.backbone(tokens)[0].to(model.head.weight.device)
    ours = model.head.logits(hidden)
    tolerance = 1e-3 if model.head.weight.dtype == torch.float32 else 5e-2
    worst = float((ours - whole).abs().max() / whole.abs().max().clamp(min=1e-6))
    if worst > tolerance:
        raise BadInput(
            f"model {name}: its logits are not its hidden states times its head (relative difference {worst:.2g}); "
            "this architecture is not supported, because its ranks would be wrong"
        )
