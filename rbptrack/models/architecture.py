"""A model without its weights: folder, tokenizer, config, S, and whether they fit together."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.config.schema import Candidates
from rbptrack.models.checkpoint import check_quantisation, unbuildable
from rbptrack.models.parameters import Parameters
from rbptrack.models.quantised import check_library, quiet
from rbptrack.sources import hub
from rbptrack.sources.pin import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SAID = 300  # characters of another library's error


def load_tokenizer(source: Source) -> PreTrainedTokenizerBase:
    """Return the fast tokenizer at a pinned source: a model's own, or the one that `model.tokenizer` names.

    Raises:
        BadInput: no tokenizer exists, it has no fast version, or the hub refuses it.

    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = from_source(source, AutoTokenizer.from_pretrained, trust_remote_code=False)
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
    """Return the model's transformers config.

    Raises:
        BadInput: it is missing, names an architecture that transformers does not have, or the hub refuses it.

    """
    from transformers import AutoConfig

    if source.gguf:
        quiet()
        check_library(f"{source.location}/{source.gguf}", "gguf")
    try:
        config = from_source(source, AutoConfig.from_pretrained, trust_remote_code=False)
    except RbptrackError:
        raise
    except Exception as error:  # transformers raises what it likes on a config.json that is none
        reason = " ".join(str(error).split())[:_SAID]
        raise BadInput(f"the config of {source.location} cannot be loaded: {type(error).__name__}: {reason}") from error
    check_quantisation(source.location, config)
    return config


def from_source(source: Source, load: Callable[..., Any], **options: Any) -> Any:
    """Load by a pinned source; the hub's faults become sentences."""
    options |= {"gguf_file": source.gguf} if source.gguf else {}
    if source.revision is None:
        return load(source.location, **options)
    revision = source.revision
    return hub.call(
        "model", source.location, source.requested, lambda: load(source.location, revision=revision, **options)
    )


def text_config(config: Any) -> Any:
    """Return the part of a transformers config that describes the text decoder: of a text model, all of it."""
    inner = config.get_text_config(decoder=True)
    return config if type(inner) is type(config) else inner


def vocab_size(config: Any) -> int:
    """Return entries of the vocabulary that a transformers config describes."""
    return int(text_config(config).vocab_size)


def model_class(config: Any) -> Any:
    """Return the class of transformers that builds a causal LM of a config; of a multimodal model, one that holds it.

    The class that the checkpoint was saved from, where it is one of those that generate text; else the first that knows
    the config.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    mappings = (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    names = {name for mapping in mappings for name in mapping._model_mapping.values() if isinstance(name, str)}
    for name in config.architectures or []:
        cls = getattr(transformers, name, None) if name in names else None
        if cls is not None and cls.config_class is type(config):
            return cls
    if type(config) not in mappings[0] and type(config) in mappings[1]:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def count_parameters(architecture: Any) -> Parameters:
    """Count parameters of a transformers config, on the meta device: no weights are needed, no memory is taken.

    Raises:
        BadInput: transformers cannot build a model from the config.

    """
    try:
        with torch.device("meta"):
            kind = model_class(architecture)
            build = getattr(kind, "_from_config", None) or partial(kind.from_config, trust_remote_code=False)
            module = build(architecture)
    except Exception as error:
        raise unbuildable(error, "the model", architecture) from error
    return parameters(module)


def candidates(
    architecture: Any, tokenizer: PreTrainedTokenizerBase, wanted: Candidates
) -> tuple[int, tuple[int, ...]]:
    """Return the number of head rows among which a target is ranked, and which of them are left out.

    All rows; or up to the last that the tokenizer can name, without those between that it cannot.
    """
    rows = vocab_size(architecture)
    if wanted is Candidates.vocabulary:
        return rows, ()
    named = set(tokenizer.get_vocab().values())
    rows = min(rows, 1 + max(named))
    return rows, tuple(sorted(set(range(rows)) - named))


def longest_sequence(config: Any) -> int | None:
    """Return the most tokens of a sequence for which a model's numbers hold; None where nothing limits it.

    Positions of kind "longrope" are numbered otherwise beyond the length of the first training, and then for every
    sequence of a batch: longer ones would change their neighbours' ranks.
    """
    text = text_config(config)
    names = ("max_position_embeddings", "n_positions")
    limits = [getattr(text, name, None) for name in names]
    rope = getattr(text, "rope_parameters", None) or {}
    for rules in (rope, *rope.values()):
        if isinstance(rules, dict) and rules.get("rope_type") == "longrope":
            limits.append(rules.get("original_max_position_embeddings") or text.original_max_position_embeddings)
    return min((int(n) for n in limits if n and int(n) > 0), default=None)


def check_fit(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, seq_len: int) -> None:
    """Raise BadInput where sequences are longer than the model's maximum or the tokenizer has more entries than
    rows.
    """
    longest = longest_sequence(config)
    if longest and seq_len > longest:
        raise BadInput(f"dataset.seq_len must be at most {longest}, the maximum of {name}; got {seq_len}")
    rows = vocab_size(config)
    if len(tokenizer) > rows:
        raise BadInput(
            f"{name}: its tokenizer has {len(tokenizer)} entries, the model only {rows} rows; "
            "the tokenizer is not this model's"
        )
    named = {i: t for t, i in tokenizer.get_vocab().items() if i >= rows}
    if named:
        raise BadInput(
            f"{name}: its tokenizer gives {named[max(named)]!r} the id {max(named)}, the model has {rows} rows only; "
            "the tokenizer is not this model's"
        )


def check_same_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> None:
    """Raise BadInput where a reference's tokenizer has other entries than the model's, or cuts texts otherwise."""
    ids = tokenizer.get_vocab()
    others = other.get_vocab()
    remedy = f"a reference reads the same tokens. reference.tokenizer= names the model's, if {name} was trained with it"
    if ids != others:
        count = len({token for token, _ in ids.items() ^ others.items()})
        raise BadInput(f"reference {name} has another vocabulary ({count:,} tokens differ): {remedy}")
    rules, theirs = (json.loads(loaded.backend_tokenizer.to_str()) for loaded in (tokenizer, other))
    if differing := [part for part in ("normalizer", "pre_tokenizer", "model") if rules[part] != theirs[part]]:
        raise BadInput(f"reference {name} has another tokenizer (its {' and '.join(differing)}): {remedy}")


def parameters(module: Any) -> Parameters:
    """Return S: parameters without token embedding, learned position embedding and output head; tied ones counted once.

    Of a multimodal model, those of its text part.
    """
    outputs = [m.get_output_embeddings() for m in module.modules() if hasattr(m, "get_output_embeddings")]
    head = next((list(output.parameters()) for output in outputs if output is not None), None)
    if head is None:
        raise BadInput(f"{type(module).__name__} has no output embeddings: it predicts no tokens")
    outside: set[int] = {id(p) for m in module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    outside |= {id(p) for p in head}
    every = {id(p): p.numel() for p in module.parameters()}
    text = {id(p) for part in _text_parts(module) for p in part.parameters()} | {id(p) for p in head}
    return Parameters(
        non_embedding=sum(n for p, n in every.items() if p in text and p not in outside),
        total=sum(every.values()),
        head=head[0].numel(),
        other=sum(n for p, n in every.items() if p not in text),
    )


def _text_parts(module: Any) -> list[Any]:
    """Return the modules that are the text decoder: of a text model, all of it."""
    wanted = type(text_config(module.config))
    if wanted is type(module.config):
        return [module]
    return [m for m in module.modules() if type(getattr(m, "config", None)) is wanted] or [module]
