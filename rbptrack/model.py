"""Load a causal language model from the hub or a folder, count S, and split backbone from head."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rbptrack import hub
from rbptrack.config import Candidates, ModelConfig
from rbptrack.errors import BadInput
from rbptrack.placement import is_spread, place, resident
from rbptrack.scoring import Head
from rbptrack.source import Source, of_tokenizer

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


_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth")


@dataclass(frozen=True)
class Parameters:
    """Counts of a model's parameters, tied ones once.

    Attributes:
        non_embedding: S.
        total: all.
        head: rows times columns of the output head.

    """

    non_embedding: int
    total: int
    head: int


def check_folder(config: ModelConfig) -> None:
    """BadInput unless a local model folder has config, weights (safetensors, or pickles if allowed) and tokenizer."""
    folder = Path(config.path).expanduser()
    if not folder.is_dir():
        raise BadInput(f"model.path={folder}: no such folder")
    needed = {
        "config": ["config.json"],
        "weights": ["*.safetensors", *(_PICKLES if config.pickles else ())],
        "tokenizer": ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"],
    }
    if config.tokenizer:
        del needed["tokenizer"]
    for what, patterns in needed.items():
        if any(any(folder.glob(p)) for p in patterns):
            continue
        if what == "weights" and any(any(folder.glob(p)) for p in _PICKLES):
            raise BadInput(_only_pickles(f"model.path={folder}"))
        raise BadInput(f"model.path={folder} has no {what}: expected {' or '.join(patterns)}")


def _only_pickles(place: str) -> str:
    return (
        f"{place} has no safetensors, only pickled weights, which can hold code; model.pickles=true reads them with "
        "torch's weights-only loader"
    )


def load_tokenizer(config: ModelConfig, model: Source) -> PreTrainedTokenizerBase:
    """The model's own fast tokenizer, or the one that `model.tokenizer` names.

    Raises:
        BadInput: there is none, it has no fast version, or the hub refuses it.

    """
    from transformers import AutoTokenizer

    source = of_tokenizer(config, model)
    try:
        tokenizer: PreTrainedTokenizerBase = _from(source, config, AutoTokenizer.from_pretrained)
    except (OSError, ValueError, ImportError, KeyError, TypeError) as error:
        raise BadInput(
            f"the tokenizer of {source.location} cannot be loaded: {_first_line(error)}; "
            "model.tokenizer=ORG/NAME takes another's"
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # where its files are missing, transformers makes one up
        raise BadInput(f"{source.location} has no tokenizer; model.tokenizer=ORG/NAME takes another's")
    if not tokenizer.is_fast:
        raise BadInput(f"the tokenizer of {source.location} has no fast version, which character offsets need")
    return tokenizer


def load_config(config: ModelConfig, source: Source) -> Any:
    """The model's transformers config.

    Raises:
        BadInput: it is missing, names an architecture that transformers does not have, or the hub refuses it.

    """
    from transformers import AutoConfig

    try:
        return _from(source, config, AutoConfig.from_pretrained)
    except (OSError, ValueError) as error:
        raise BadInput(f"the config of {source.location} cannot be loaded: {_first_line(error)}") from error


def _from(source: Source, config: ModelConfig, load: Callable[..., Any], **options: Any) -> Any:
    """Load by a pinned source; the hub's faults become sentences."""
    if source.revision is None:
        return load(source.location, **options)
    revision = source.revision
    return hub.call(
        "model", source.location, config.revision, lambda: load(source.location, revision=revision, **options)
    )


def count_parameters(architecture: Any) -> Parameters:
    """Count parameters of a transformers config, on the meta device: no weights are needed, no memory is taken."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return parameters(AutoModelForCausalLM.from_config(architecture))  # type: ignore[no-untyped-call]


def num_candidates(architecture: Any, tokenizer: PreTrainedTokenizerBase, wanted: Candidates) -> int:
    """How many rows of the head a target is ranked among: all, or those that the tokenizer can name."""
    if wanted is Candidates.vocabulary:
        return int(architecture.vocab_size)
    return 1 + max(tokenizer.get_vocab().values())


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


def load_model(config: ModelConfig, source: Source, *, candidates: int | None = None) -> CausalModel:
    """Load weights (safetensors only) and check that backbone and head together are the model.

    Args:
        config: which model, and how.
        source: its pinned weights.
        candidates: rank targets among the first so many rows of the head; None: all.

    Raises:
        BadInput: the weights cannot be loaded, or the architecture does something to its logits that the split misses.

    """
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if source.revision is not None and sys.stderr.isatty():
        enable_progress_bars()  # weights are gigabytes: the hub's own bars, which the line above switched off too
    logging.getLogger("transformers").setLevel(logging.ERROR)
    device, placed = place(config)
    try:
        module = _from(
            source,
            config,
            AutoModelForCausalLM.from_pretrained,
            dtype=getattr(torch, config.dtype.value),
            attn_implementation=None if config.attention == "auto" else config.attention,
            use_safetensors=None if config.pickles else True,
            **placed,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        if not config.pickles and "safetensors" in str(error):
            raise BadInput(_only_pickles(f"model {config.name} ({source.location})")) from error
        raise BadInput(f"model {config.name} cannot be loaded from {source.location}: {_first_line(error)}") from error
    if not placed:
        module.to(device)
    return of_module(module, config.name, candidates=candidates)


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


def parameters(module: nn.Module) -> Parameters:
    """S: parameters without token embedding, learned position embedding and output head; tied ones counted once."""
    head = list(module.get_output_embeddings().parameters())  # type: ignore[operator]
    outside: set[int] = {id(p) for m in module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    outside |= {id(p) for p in head}
    every = {id(p): p.numel() for p in module.parameters()}
    return Parameters(
        non_embedding=sum(n for p, n in every.items() if p not in outside),
        total=sum(every.values()),
        head=head[0].numel(),
    )


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


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
