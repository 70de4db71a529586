"""What a model's config says without its weights: its parameters, its vocabulary and which tokenizers fit."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rbptrack.base.errors import BadInput, RbptrackError, first_line, is_panic
from rbptrack.config.schema import Candidates
from rbptrack.models.checkpoint import damaged_file
from rbptrack.models.quantised import check_quantisation, silence_torchao
from rbptrack.sources import hub
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MAX_LAYERS = 10_000
_MAX_REASON_LENGTH = 300  # characters of another library's error


@dataclass(frozen=True)
class Parameters:
    """Counts of a model's parameters, tied ones once.

    Attributes:
        non_embedding: S.
        total: all.
        head: rows times columns of the output head.
        other: those of towers that read no text (images, audio), which S leaves out; 0 for a text model.

    """

    non_embedding: int
    total: int
    head: int
    other: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What to say of how S was counted; nothing for a text model."""
        if not self.other:
            return ()
        return (
            f"S counts the text part of a multimodal model: {self.other:,} of {self.total:,} parameters are not its",
        )


def load_config(source: Pinned) -> Any:
    """The model's transformers config.

    Raises:
        BadInput: it is missing, names an architecture that transformers does not have, or the hub refuses it.

    """
    from transformers import AutoConfig

    config = loaded("config", source, AutoConfig.from_pretrained)
    check_quantisation(source.location, config)
    layers = getattr(text_config(config), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > _MAX_LAYERS:  # building them would take hours
        raise BadInput(f"{source.location}: config.json asks for {layers:,} layers; at most {_MAX_LAYERS:,} are built")
    return config


def loaded(what: str, source: Pinned, load: Callable[..., Any], remedy: str = "") -> Any:
    """Load a part of a model from a pinned source with a `from_pretrained` function.

    Args:
        what: the name of the part that is loaded, for the message.
        source: where it is.
        load: a `from_pretrained`.
        remedy: ends the message.

    Raises:
        BadInput: it cannot be loaded, or the hub refuses it.

    """
    try:
        return from_source(source, load, trust_remote_code=False)
    except RbptrackError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(f"the {what} of {source.location} cannot be loaded: {reason(error, source)}{remedy}") from error


def reason(error: BaseException, source: Pinned) -> str:
    """Say why the files of a model cannot be loaded: a damaged file, else what transformers says."""
    damaged = damaged_file(source)
    if damaged:
        return damaged
    said = " ".join(str(error).split())[:_MAX_REASON_LENGTH]
    if isinstance(error, KeyError):
        return f"{said} is missing in its files, or unknown to transformers"
    if type(error) is Exception or is_panic(error):  # of Rust
        return f"tokenizers cannot read its files ({said})"
    if isinstance(error, AttributeError | TypeError | ArithmeticError):
        return f"its files hold a value that transformers does not expect ({said})"
    return said


def from_source(source: Pinned, load: Callable[..., Any], **options: Any) -> Any:
    """Call a `from_pretrained` with a pinned source. Errors of the hub are raised as BadInput or RbptrackError."""
    silence_torchao()
    _quiet(downloads=source.revision is not None)
    if source.gguf:
        options["gguf_file"] = source.gguf
    if source.revision is None:
        return load(source.location, **options)
    options["revision"] = source.revision
    return hub.call("model", source.location, source.requested, lambda: load(source.location, **options))


def _quiet(*, downloads: bool) -> None:
    """Silence bars and warnings of transformers. If a terminal shows a download, keep the hub's own bars."""
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if downloads and sys.stderr.isatty():
        enable_progress_bars()  # weights are gigabytes; the line above switched these bars off too
    logging.getLogger("transformers").setLevel(logging.ERROR)


def text_config(config: Any) -> Any:
    """The part of a transformers config that describes the text decoder: of a text model, all of it."""
    inner = config.get_text_config(decoder=True)
    return config if type(inner) is type(config) else inner


def vocab_size(config: Any) -> int:
    """Entries of the vocabulary that a transformers config describes."""
    return int(text_config(config).vocab_size)


def model_class(config: Any) -> Any:
    """Return the class of transformers that builds a causal LM, or a multimodal model with one, from a config.

    This is the class that the checkpoint was saved from, if that class generates text. Otherwise it is the auto class
    of transformers that supports the config.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    text = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    images = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    names = [*text._model_mapping.values(), *images._model_mapping.values()]
    for name in config.architectures or []:
        cls = getattr(transformers, name, None)
        if name in names and cls is not None and cls.config_class is type(config):
            return cls
    if type(config) not in text and type(config) in images:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def count_parameters(architecture: Any) -> Parameters:
    """Count parameters of a transformers config, on the meta device: no weights are needed, no memory is taken.

    Raises:
        BadInput: transformers cannot build a model from the config.

    """
    try:
        with torch.device("meta"):
            cls = model_class(architecture)
            build = getattr(cls, "_from_config", None) or partial(cls.from_config, trust_remote_code=False)
            module = build(architecture)
    except Exception as error:
        raise BadInput(
            "config.json does not describe a model that transformers can build "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    return parameters(module)


def parameters(module: Any) -> Parameters:
    """Count a module's parameters; S leaves out token embedding, learned position embedding and output head.

    Of a multimodal model, S counts those of its text part.
    """
    outputs = [part.get_output_embeddings() for part in module.modules() if hasattr(part, "get_output_embeddings")]
    head = next((output for output in outputs if output is not None), None)
    if head is None:
        raise BadInput(f"{type(module).__name__} has no output embeddings: it predicts no tokens")
    embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    outside = _parameters_of(head, *embeddings)
    text = _parameters_of(head, *_text_parts(module))
    inside = text.keys() - outside.keys()
    total = sum(_parameters_of(module).values())
    return Parameters(
        non_embedding=sum(text[p] for p in inside),
        total=total,
        head=next(head.parameters()).numel(),
        other=total - sum(text.values()),
    )


def _parameters_of(*modules: nn.Module) -> dict[int, int]:
    """The number of entries of each parameter, by its identity: tied ones stand once."""
    return {id(p): p.numel() for module in modules for p in module.parameters()}


def _text_parts(module: Any) -> list[Any]:
    """The modules that are the text decoder: of a text model, all of it."""
    wanted = type(text_config(module.config))
    if wanted is type(module.config):
        return [module]
    return [part for part in module.modules() if type(getattr(part, "config", None)) is wanted] or [module]


def candidates(
    architecture: Any, tokenizer: PreTrainedTokenizerBase, wanted: Candidates
) -> tuple[int, tuple[int, ...]]:
    """Return the number of head rows among which a target is ranked, and the ids of the rows that are left out.

    With `Candidates.vocabulary` these are all rows. Otherwise they are the rows up to the last id of the tokenizer, and
    ids that the tokenizer does not have are left out.
    """
    rows = vocab_size(architecture)
    if wanted is Candidates.vocabulary:
        return rows, ()
    named = set(tokenizer.get_vocab().values())
    rows = min(rows, 1 + max(named))
    return rows, tuple(sorted(set(range(rows)) - named))


def longest_sequence(config: Any) -> int | None:
    """Return the maximum length of a sequence in tokens; None if the config sets no limit.

    With "longrope", one sequence longer than the original training length changes the positions of the whole batch. Its
    neighbours' ranks would change, too. The limit is therefore the original training length.
    """
    text = text_config(config)
    limits = [getattr(text, name, None) for name in ("max_position_embeddings", "n_positions")]
    rope = getattr(text, "rope_parameters", None) or {}
    for rules in (rope, *rope.values()):
        if isinstance(rules, dict) and rules.get("rope_type") == "longrope":
            limits.append(rules.get("original_max_position_embeddings") or text.original_max_position_embeddings)
    return min((int(limit) for limit in limits if limit and int(limit) > 0), default=None)


def check_fit(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, seq_len: int) -> None:
    """Raise BadInput if sequences exceed the model's maximum, or if the tokenizer has ids beyond the model's rows."""
    longest = longest_sequence(config)
    if longest and seq_len > longest:
        raise BadInput(f"dataset.seq_len must be at most {longest}, the maximum of {name}; got {seq_len}")
    rows = vocab_size(config)
    too_large = {number: token for token, number in tokenizer.get_vocab().items() if number >= rows}
    if too_large:
        number = max(too_large)
        raise BadInput(
            f"{name}: its tokenizer gives {too_large[number]!r} the id {number}, the model has {rows} rows only; "
            "the tokenizer is not this model's"
        )


def check_same_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> None:
    """Raise BadInput if a reference's tokenizer differs from the model's in its entries or its rules."""
    ids = tokenizer.get_vocab()
    others = other.get_vocab()
    remedy = f"a reference reads the same tokens. reference.tokenizer= names the model's, if {name} was trained with it"
    if ids != others:
        count = len({token for token, _ in ids.items() ^ others.items()})
        raise BadInput(f"reference {name} has another vocabulary ({count:,} tokens differ): {remedy}")
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    other_rules = json.loads(other.backend_tokenizer.to_str())
    differing = [part for part in ("normalizer", "pre_tokenizer", "model") if rules[part] != other_rules[part]]
    if differing:
        raise BadInput(f"reference {name} has another tokenizer (its {' and '.join(differing)}): {remedy}")
