"""What is known of a model without its weights: folder, tokenizer, config, S, and whether they fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rbptrack.config.schema import Candidates, ModelConfig
from rbptrack.errors import BadInput, first_line
from rbptrack.sources import hub
from rbptrack.sources.pin import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
            raise BadInput(only_pickles(f"model.path={folder}"))
        raise BadInput(f"model.path={folder} has no {what}: expected {' or '.join(patterns)}")


def only_pickles(place: str) -> str:
    """What to say where weights are pickled and that was not allowed."""
    return (
        f"{place} has no safetensors, only pickled weights, which can hold code; model.pickles=true reads them with "
        "torch's weights-only loader"
    )


def load_tokenizer(source: Source) -> PreTrainedTokenizerBase:
    """The fast tokenizer at a pinned source: a model's own, or the one that `model.tokenizer` names.

    Raises:
        BadInput: there is none, it has no fast version, or the hub refuses it.

    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = from_source(source, AutoTokenizer.from_pretrained)
    except (OSError, ValueError, ImportError, KeyError, TypeError) as error:
        raise BadInput(
            f"the tokenizer of {source.location} cannot be loaded: {first_line(error)}; "
            "model.tokenizer=ORG/NAME takes another's"
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # where its files are missing, transformers makes one up
        raise BadInput(f"{source.location} has no tokenizer; model.tokenizer=ORG/NAME takes another's")
    if not tokenizer.is_fast:
        raise BadInput(f"the tokenizer of {source.location} has no fast version, which character offsets need")
    return tokenizer


def load_config(source: Source) -> Any:
    """The model's transformers config.

    Raises:
        BadInput: it is missing, names an architecture that transformers does not have, or the hub refuses it.

    """
    from transformers import AutoConfig

    try:
        return from_source(source, AutoConfig.from_pretrained)
    except (OSError, ValueError) as error:
        raise BadInput(f"the config of {source.location} cannot be loaded: {first_line(error)}") from error


def from_source(source: Source, load: Callable[..., Any], **options: Any) -> Any:
    """Load by a pinned source; the hub's faults become sentences."""
    if source.revision is None:
        return load(source.location, **options)
    revision = source.revision
    return hub.call("model", source.location, source.asked, lambda: load(source.location, revision=revision, **options))


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
