"""Reads a model's config, and computes what follows from it without weights: its size, vocabulary and limits."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rbptrack.base.errors import BadInput, RbptrackError, first_line, is_panic
from rbptrack.config.schema import Candidates
from rbptrack.models.checkpoint import describe_unreadable_file
from rbptrack.models.config_file import check_settings
from rbptrack.models.gguf_file import MAX_LAYERS, gguf_config, gguf_path, read_gguf
from rbptrack.models.quantised import check_quantisation, silence_torchao
from rbptrack.sources import hub
from rbptrack.sources.manifest import linked_folder, reading
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MAX_REASON_LENGTH = 300  # characters of another library's error


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of a model's parameters. Tied parameters count once.

    Attributes:
        non_embedding: S, the number of parameters of the text part without embeddings and output head.
        total: the number of all parameters of the model.
        head: the number of parameters of the output head's weight (rows times columns).
        non_text: the number of parameters in parts that read images or audio. S leaves them out. 0 for a text model.

    """

    non_embedding: int
    total: int
    head: int
    non_text: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on how S was counted. Empty for a text model."""
        if not self.non_text:
            return ()
        return (
            "the model is multimodal and S counts its text part only: "
            f"{self.non_text:,} of {self.total:,} parameters are in other parts",
        )


def load_config(pinned: Pinned) -> Any:
    """Load the transformers config of a model.

    Raises:
        BadInput: the config is missing, the Hub refuses access to it, transformers does not have the architecture or
            the quantisation that the config names, the config asks for more than 10,000 layers, or a GGUF file has
            another architecture or key than those that rbptrack reads. Or settings of config.json that change the
            numbers contradict each other, or are not used.

    """
    from transformers import AutoConfig

    if pinned.gguf:
        with reading(pinned.files):
            config = gguf_config(read_gguf(gguf_path(pinned)))
    else:
        config = load_part("config", pinned, AutoConfig.from_pretrained)
        check_settings(pinned, text_config(config), _code_of(config))
    check_quantisation(pinned.location, config)
    layers = getattr(text_config(config), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > MAX_LAYERS:  # building them would take hours
        raise BadInput(
            f"{pinned.location}: config.json asks for {layers:,} layers; at most {MAX_LAYERS:,} can be built"
        )
    return config


def load_part(part: str, pinned: Pinned, load: Callable[..., Any], remedy: str = "") -> Any:
    """Load the config or the tokenizer of a model with one of transformers' `from_pretrained` functions.

    Args:
        part: "config" or "tokenizer", for the error message.
        pinned: the pinned model or tokenizer.
        load: the `from_pretrained` function.
        remedy: a text that is added to the end of the error message.

    Raises:
        BadInput: the part cannot be loaded, or the Hub refuses access to it.

    """
    with explained_errors(part, pinned, remedy):
        return call_from_pretrained(pinned, load, trust_remote_code=False)


@contextmanager
def explained_errors(part: str, pinned: Pinned, remedy: str) -> Iterator[None]:
    """While a block runs, turn errors of libraries into BadInput with one line. The arguments are those of `load_part`.

    The libraries raise exceptions of many types.
    """
    try:
        yield
    except RbptrackError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise BadInput(
            f"the {part} of {pinned.location} cannot be loaded: {failure_reason(error, pinned)}{remedy}"
        ) from error


def failure_reason(error: BaseException, pinned: Pinned) -> str:
    """Explain in one line why the files of a model cannot be loaded.

    If a JSON file cannot be read or is damaged, the line names it. Otherwise it quotes the library's error.
    """
    unreadable_file = describe_unreadable_file(pinned)
    if unreadable_file:
        return unreadable_file
    message = " ".join(str(error).split())
    if pinned.files:
        message = message.replace(str(linked_folder(pinned.files)), pinned.location)
    message = message[:_MAX_REASON_LENGTH]
    if isinstance(error, KeyError):
        return f"{message} is missing in its files, or transformers does not know it"
    if type(error) is Exception or is_panic(error):  # the Rust library `tokenizers` raises a plain Exception
        return f"tokenizers cannot read its files ({message})"
    if isinstance(error, AttributeError | TypeError | ArithmeticError):
        return f"its files hold a value that transformers does not expect ({message})"
    return message


def call_from_pretrained(pinned: Pinned, load: Callable[..., Any], **options: Any) -> Any:
    """Call `load`, one of transformers' `from_pretrained` functions, for a pinned model or tokenizer.

    Raises:
        BadInput: local files have changed since they were hashed, the Hub refuses access, or the files are not cached
            while the Hub cannot be reached.
        RbptrackError: the Hub is busy, or the connection to it broke.

    """
    silence_torchao()
    _silence_transformers(downloads=pinned.revision is not None)
    if pinned.gguf:
        options["gguf_file"] = pinned.gguf
    if pinned.revision is None:
        with reading(pinned.files):
            return load(str(linked_folder(pinned.files)), **options)
    options["revision"] = pinned.revision
    return hub.call_hub("model", pinned.location, pinned.requested, lambda: load(pinned.location, **options))


def _silence_transformers(*, downloads: bool) -> None:
    """Silence transformers' progress bars and warnings. A download in a terminal keeps the Hub's progress bars."""
    from huggingface_hub.utils.tqdm import enable_progress_bars
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    if downloads and sys.stderr.isatty():
        enable_progress_bars()  # weights are gigabytes; `disable_progress_bar` above switched the Hub's bars off too
    logging.getLogger("transformers").setLevel(logging.ERROR)


def text_config(config: Any) -> Any:
    """Return the part of a transformers config that describes the text decoder. For a text model, return all of it."""
    text_part = config.get_text_config(decoder=True)
    return config if type(text_part) is type(config) else text_part


def vocab_size(config: Any) -> int:
    """Return the number of entries of a model's vocabulary, from its transformers config."""
    return int(text_config(config).vocab_size)


def model_class(config: Any) -> Any:
    """Return the transformers class that builds the model of a config: a causal or a multimodal language model.

    If the config names the class from which the checkpoint was saved, and this class generates text, it is returned.
    Otherwise the function returns the auto class of transformers that supports the config.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    text_models = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    image_models = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    class_names = [*text_models._model_mapping.values(), *image_models._model_mapping.values()]
    for name in config.architectures or []:
        cls = getattr(transformers, name, None)
        if name in class_names and cls is not None and cls.config_class is type(config):
            return cls
    if type(config) not in text_models and type(config) in image_models:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def _code_of(config: Any) -> list[type]:
    """Return the classes of transformers that build the model of a config and its text decoder."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    mappings: tuple[Any, ...] = (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    kinds = {type(config), type(text_config(config))}
    return [mapping[kind] for mapping in mappings for kind in kinds if kind in mapping]


def count_parameters(config: Any) -> ParameterCounts:
    """Count the parameters of the model that a transformers config describes.

    The model is built on torch's meta device. This needs no weights and almost no memory. Raises BadInput if
    transformers cannot build a model from the config.
    """
    try:
        with torch.device("meta"):
            cls = model_class(config)
            build = getattr(cls, "_from_config", None) or partial(cls.from_config, trust_remote_code=False)
            module = build(config)
    except Exception as error:
        raise BadInput(
            "config.json does not describe a model that transformers can build "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    return count_module_parameters(module)


def count_module_parameters(module: Any) -> ParameterCounts:
    """Count the parameters of a module of transformers.

    S leaves out the token embedding, learned position embeddings, the output head and adapters of peft, so that a model
    has the same S before and after its adapter is merged. Adapters that are not in use are not counted at all. For a
    multimodal model, S counts its text part only. Raises BadInput if the module has no output embeddings.
    """
    outputs = [part.get_output_embeddings() for part in module.modules() if hasattr(part, "get_output_embeddings")]
    head = next((output for output in outputs if output is not None), None)
    if head is None:
        raise BadInput(f"{type(module).__name__} has no output embeddings, so it cannot predict tokens")
    embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    embedding_sizes = _parameter_sizes(head, *embeddings)
    text_sizes = _parameter_sizes(head, *_text_parts(module))
    adapters, unused = _adapter_parameters(module)
    text_sizes = {parameter: size for parameter, size in text_sizes.items() if parameter not in unused}
    total = sum(size for parameter, size in _parameter_sizes(module).items() if parameter not in unused)
    not_counted = {*embedding_sizes, *adapters}
    return ParameterCounts(
        non_embedding=sum(size for parameter, size in text_sizes.items() if parameter not in not_counted),
        total=total,
        head=next(head.parameters()).numel(),
        non_text=total - sum(text_sizes.values()),
    )


def _parameter_sizes(*modules: nn.Module) -> dict[int, int]:
    """Return the number of elements of each parameter by its Python id. A tied parameter appears once."""
    return {id(parameter): parameter.numel() for module in modules for parameter in module.parameters()}


def _adapter_parameters(module: nn.Module) -> tuple[set[int], set[int]]:
    """Return the Python ids of the parameters of peft's adapters, and of all parameters that adapters leave unused."""
    adapters: set[int] = set()
    unused: set[int] = set()
    part: Any
    for part in module.modules():
        holders = [getattr(part, name, None) for name in getattr(part, "adapter_layer_names", ())]
        is_copy = hasattr(part, "modules_to_save") and hasattr(part, "original_module")  # of a module trained in full
        if not is_copy and not holders:
            continue
        in_use: set[str] = set()
        if not part.disable_adapters:
            in_use = {*part.active_adapters} - {*getattr(part, "merged_adapters", ())}
        for holder in [part.modules_to_save] if is_copy else holders:
            for name, item in getattr(holder, "items", dict)():
                parameters = {*map(id, item.parameters() if isinstance(item, nn.Module) else [item])}
                if not is_copy:
                    adapters |= parameters
                if name not in in_use:
                    unused |= parameters
        if is_copy and in_use & {*part.modules_to_save}:
            unused |= {*map(id, part.original_module.parameters())}
    return adapters, unused


def _text_parts(module: Any) -> list[Any]:
    """Return the modules of the text decoder. For a text model, return the whole module."""
    text_class = type(text_config(module.config))
    if text_class is type(module.config):
        return [module]
    return [part for part in module.modules() if type(getattr(part, "config", None)) is text_class] or [module]


def choose_candidates(
    config: Any, tokenizer: PreTrainedTokenizerBase, requested: Candidates
) -> tuple[int, tuple[int, ...]]:
    """Return the number of head rows that are scored, and the ids among them that are excluded from the ranking.

    With `Candidates.vocabulary`, a target is ranked among all rows. Otherwise it is ranked among the rows up to the
    tokenizer's largest id, and ids that the tokenizer does not have are excluded.
    """
    rows = vocab_size(config)
    if requested is Candidates.vocabulary:
        return rows, ()
    tokenizer_ids = set(tokenizer.get_vocab().values())
    num_candidates = min(rows, 1 + max(tokenizer_ids))
    return num_candidates, tuple(sorted(set(range(num_candidates)) - tokenizer_ids))


def max_sequence_length(config: Any) -> int | None:
    """Return the maximum length of a sequence in tokens. Return None if the config sets no limit.

    For a model with "longrope" positions, the limit is the sequence length of the original training. One longer
    sequence would change the position encoding, and so the ranks, of all sequences in its batch.
    """
    text = text_config(config)
    limits = [getattr(text, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len")]
    rope = getattr(text, "rope_parameters", None) or {}
    for rules in (rope, *rope.values()):  # some configs have rules for each type of layer
        if isinstance(rules, dict) and rules.get("rope_type") == "longrope":
            limits.append(rules.get("original_max_position_embeddings") or text.original_max_position_embeddings)
    return min((int(limit) for limit in limits if limit and int(limit) > 0), default=None)


def check_compatible(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, seq_len: int) -> None:
    """Raise BadInput if sequences exceed the model's maximum, or if the tokenizer belongs to another model.

    Tokens that were added to a tokenizer may have ids beyond the model's rows, as in Gemma 3 without images.
    `check_token_ids` then checks the texts.
    """
    max_length = max_sequence_length(config)
    if max_length and seq_len > max_length:
        raise BadInput(f"dataset.seq_len must be at most {max_length}, the maximum of {name}; got {seq_len}")
    rows = vocab_size(config)
    added = tokenizer.get_added_vocab()
    ordinary = [(token_id, token) for token, token_id in tokenizer.get_vocab().items() if token not in added]
    largest_id, token = max(ordinary, default=(0, ""))
    if largest_id >= rows:
        raise BadInput(
            f"{name}: its tokenizer gives {token!r} the id {largest_id}, but the model has {rows} rows only. "
            "The tokenizer belongs to another model"
        )


def check_token_ids(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, largest_id: int) -> None:
    """Raise BadInput if the largest token id of some texts has no row in the model."""
    rows = vocab_size(config)
    if largest_id >= rows:
        token = tokenizer.convert_ids_to_tokens(largest_id)
        raise BadInput(
            f"{name}: a text holds the token {token!r} with the id {largest_id}, but the model has {rows} rows only. "
            "Leave out texts with this token"
        )


def check_same_tokenizer(
    name: str, tokenizer: PreTrainedTokenizerBase, reference_tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise BadInput if the tokenizer of a reference has other tokens or rules than the measured model's tokenizer."""
    ids = tokenizer.get_vocab()
    reference_ids = reference_tokenizer.get_vocab()
    remedy = (
        f"a reference must read the same tokens. If {name} was trained with the model's tokenizer, give that tokenizer "
        "as reference.tokenizer="
    )
    if ids != reference_ids:
        count = len({token for token, _ in ids.items() ^ reference_ids.items()})
        raise BadInput(f"reference {name} has another vocabulary ({count:,} tokens differ): {remedy}")
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    reference_rules = json.loads(reference_tokenizer.backend_tokenizer.to_str())
    parts = ("normalizer", "pre_tokenizer", "model")
    differing = [part for part in parts if rules[part] != reference_rules[part]]
    if differing:
        raise BadInput(f"reference {name} has another tokenizer (its {' and '.join(differing)}): {remedy}")
