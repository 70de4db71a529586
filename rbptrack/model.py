"""Load a causal language model from the hub or a folder, count S, and split backbone from head."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rbptrack.config import ModelConfig
from rbptrack.errors import BadInput
from rbptrack.placement import is_spread, place, resident
from rbptrack.scoring import Head
from rbptrack.source import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head, padding rows included."""
        return self.head.vocab_size

    def activation_bytes(self, length: int) -> int:
        """About how many bytes the backbone's activations take per token, in sequences of a length."""
        width, size = self.head.weight.shape[1], self.head.weight.element_size()
        return int(size * (12 * width + 4 * self.widest + 3 * self.heads * length))


def check_folder(folder: Path) -> None:
    """BadInput unless a local model folder has config, safetensors weights and tokenizer."""
    if not folder.is_dir():
        raise BadInput(f"model.path={folder}: no such folder")
    for what, patterns in {
        "config": ["config.json"],
        "weights": ["*.safetensors"],
        "tokenizer": ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"],
    }.items():
        if not any(any(folder.glob(p)) for p in patterns):
            raise BadInput(f"model.path={folder} has no {what}: expected {' or '.join(patterns)}")


def load_tokenizer(source: Source) -> PreTrainedTokenizerBase:
    """The model's own fast tokenizer."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, revision=source.revision or "main")
    except (OSError, ValueError) as error:
        raise BadInput(f"the tokenizer of {source.location} cannot be loaded: {_first_line(error)}") from error
    if not tokenizer.is_fast:
        raise BadInput(f"the tokenizer of {source.location} has no fast version, which character offsets need")
    return tokenizer


def load_config(source: Source) -> Any:
    """The model's transformers config."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source.location, revision=source.revision or "main")
    except (OSError, ValueError) as error:
        raise BadInput(f"the config of {source.location} cannot be loaded: {_first_line(error)}") from error


def check_fit(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, seq_len: int) -> None:
    """BadInput where sequences are longer than the model's maximum or the tokenizer has more entries than rows."""
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if longest and seq_len > longest:
        raise BadInput(f"dataset.seq_len must be at most {longest}, the maximum of {name}; got {seq_len}")
    if len(tokenizer) > config.vocab_size:
        raise BadInput(
            f"{name}: its tokenizer has {len(tokenizer)} entries, the model only {config.vocab_size} rows; "
            "the tokenizer is not this model's"
        )


def load_model(config: ModelConfig, source: Source) -> CausalModel:
    """Load weights (safetensors only) and check that backbone and head together are the model.

    Raises:
        BadInput: the weights cannot be loaded, or the architecture does something to its logits that the split misses.

    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("transformers").setLevel(logging.ERROR)
    device, placed = place(config)
    try:
        module = AutoModelForCausalLM.from_pretrained(
            source.location,
            revision=source.revision or "main",
            dtype=getattr(torch, config.dtype.value),
            attn_implementation=config.attention,
            use_safetensors=True,
            **placed,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise BadInput(f"model {config.name} cannot be loaded from {source.location}: {_first_line(error)}") from error
    if not placed:
        module.to(device)  # type: ignore[arg-type]
    return of_module(module, config.name)


def of_module(module: Any, name: str) -> CausalModel:
    """A loaded transformers causal LM, in evaluation mode, split where the vocabulary begins.

    Raises:
        BadInput: the architecture does something to its logits that the split misses.

    """
    module.eval()
    model = split(module)
    _verify(model, name)
    return model


def split(module: nn.Module) -> CausalModel:
    """Split a transformers causal LM into backbone and head."""
    output = module.get_output_embeddings()  # type: ignore[operator]
    config: Any = module.config
    base: Any = module.base_model

    def backbone(tokens: Tensor) -> Tensor:
        # No attention mask: batches are padded on the right only, and a causal model never looks there.
        return base(input_ids=tokens, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    weight = resident(output, "weight")
    assert weight is not None  # noqa: S101  an output embedding without weights would be no head
    head = Head(
        weight=weight,
        bias=resident(output, "bias"),
        softcap=getattr(config, "final_logit_softcapping", None),
        scale=float(getattr(config, "logit_scale", 1.0)) / float(getattr(config, "logits_scaling", 1.0)),
    )
    return CausalModel(
        backbone=backbone,
        head=head,
        whole=lambda tokens: module(input_ids=tokens, use_cache=False).logits,
        device=weight.device,
        non_embedding_params=non_embedding_params(module),
        total_params=sum(p.numel() for p in module.parameters()),
        widest=max(p.shape[0] for m in module.modules() for p in m.parameters(False) if _writes(m, output)),
        heads=config.num_attention_heads if config._attn_implementation == "eager" else 0,
        spread=is_spread(module),
    )


def _writes(layer: nn.Module, output: nn.Module) -> bool:
    return layer is not output and not isinstance(layer, nn.Embedding)


def non_embedding_params(module: nn.Module) -> int:
    """S: parameters without token embedding, learned position embedding and output head; tied ones counted once."""
    outside: set[int] = {id(p) for m in module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    outside |= {id(p) for p in module.get_output_embeddings().parameters()}  # type: ignore[operator]
    return sum(p.numel() for p in module.parameters() if id(p) not in outside)


@torch.inference_mode()
def _verify(model: CausalModel, name: str) -> None:
    """A head that caps, scales or projects in a way unknown here would give wrong ranks: refuse it."""
    tokens = torch.arange(1, 1 + _CHECK_TOKENS, device=model.device)[None] % model.vocab_size  # (1, tokens)
    whole = model.whole(tokens)[0].float()
    hidden = model.backbone(tokens)[0].to(model.head.weight.device)
    ours = model.head.logits(hidden)
    tolerance = 1e-3 if model.head.weight.dtype == torch.float32 else 5e-2
    worst = float((ours - whole).abs().max() / whole.abs().max().clamp(min=1e-6))
    if worst > tolerance:
        raise BadInput(
            f"model {name}: its logits are not its hidden states times its head (relative difference {worst:.2g}); "
            "this architecture is not supported, because its ranks would be wrong"
        )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
