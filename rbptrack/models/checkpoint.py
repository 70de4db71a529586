"""A model's files: whether a folder is complete, and whether the loaded weights are the model's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rbptrack.base.errors import BadInput, RbptrackError, causes, first_line, shortened
from rbptrack.base.user_paths import user_path
from rbptrack.config.schema import ModelConfig
from rbptrack.models.device import out_of_memory
from rbptrack.models.quantised import check_library, described, is_matrix, method_of, quiet
from rbptrack.sources.pin import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth")
_INDEX = "model.safetensors.index.json"
# What older versions of transformers stored beside the weights and newer ones compute: masks and position numbers.
_NO_WEIGHTS = re.compile(r"(^|\.)(inv_freq|masked_bias|causal_mask|position_ids|(attn|attention)\.bias)$")
_SHOWN = 5  # names of tensors in an error
_ORDINARY = 1  # in a GGUF file, the type of a token that is neither special nor a byte
_SPELLED_OTHERWISE = 0.01  # share of ordinary tokens that another converter may spell in its own way


def check_folder(config: ModelConfig) -> None:
    """Raise BadInput unless a local model folder has config, weights (safetensors, or pickles if allowed) and
    tokenizer.
    """
    folder = user_path(config.path)
    if not folder.is_dir():
        raise BadInput(f"model.path={folder}: no such folder")
    if config.gguf:  # one file holds all
        return
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
    check_shards(folder)


def check_shards(folder: Path) -> None:
    """Raise BadInput where the index of a sharded checkpoint names files that are not there."""
    index = folder / _INDEX
    if not index.is_file():
        return
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{index} is not an index of shards ({first_line(error)}): copy or download it again") from error
    if missing := sorted(str(name) for name in names if not (folder / str(name)).is_file()):
        raise BadInput(
            f"{folder} lacks {shortened(missing, most=_SHOWN)}, which {_INDEX} names: copy or download it again"
        )


def only_pickles(place: str) -> str:
    """Return the message for pickled weights that the user did not allow."""
    return (
        f"{place} has no safetensors, only pickled weights, which can hold code; model.pickles=true reads them with "
        "torch's weights-only loader"
    )


def check_loaded(info: Mapping[str, Any], what: str) -> None:
    """Raise BadInput unless every tensor of the model was in the checkpoint, and every tensor of the checkpoint in the
    model.

    transformers fills missing weights with random numbers and leaves out unknown ones, both with a warning.

    Args:
        info: transformers' loading info.
        what: the model, in words.

    """
    unexpected = [key for key in info["unexpected_keys"] if not _NO_WEIGHTS.search(key)]
    mismatched = [f"{key} {tuple(stored)} instead of {tuple(built)}" for key, stored, built in info["mismatched_keys"]]
    faults = {
        "lacks tensors that its config.json asks for": info["missing_keys"],
        "holds tensors that its config.json does not know": unexpected,
        "holds tensors of other shapes than its config.json asks for": mismatched,
        "cannot be read": info["error_msgs"],
    }
    words = [f"{fault}: {shortened(sorted(map(str, names)), most=_SHOWN)}" for fault, names in faults.items() if names]
    if words:
        raise BadInput(
            f"the checkpoint of {what} {'; it '.join(words)}. Its numbers would be another model's: config.json and "
            "weights must be of one model, and complete"
        )


def check_quantisation(name: str, config: Any) -> None:
    """Raise BadInput where a config names a quantisation that transformers does not know, or whose library is not
    there.

    transformers would leave an unknown one out, unsaid.
    """
    method = method_of(config)
    quiet()
    if not method:
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    if method not in {*KNOWN, "bitsandbytes"}:
        raise BadInput(
            f"{name}: config.json asks for the quantisation {method!r}, which transformers does not know. "
            f"Known: {', '.join(sorted(KNOWN))}"
        )
    check_library(name, method)


def check_stored(source: Source, module: Any, what: str) -> None:
    """Raise BadInput where stored tensors are not the numbers that a model computes with, though they load without a
    word.

    Integers and booleans become weights of that value unless a quantisation says what they stand for.
    """
    if source.gguf or getattr(module.config, "quantization_config", None):
        return
    buffers = {name.rpartition(".")[2] for name, _ in module.named_buffers()}
    whole = [
        name
        for name, kind in _stored_types(source)
        if kind.startswith(("I", "U", "BOOL")) and name.rpartition(".")[2] not in buffers
    ]
    if whole := sorted(name for name in whole if not _NO_WEIGHTS.search(name)):
        raise BadInput(
            f"the checkpoint of {what} holds weights as integers or booleans, and its config.json no quantisation "
            f"that says what they stand for: {shortened(whole, most=_SHOWN)}"
        )


def notes_of_head(module: Any) -> tuple[str, ...]:
    """Return a sentence where a model has a head of its own though its config says that the head is the embedding."""
    tied = getattr(module.config.get_text_config(decoder=True), "tie_word_embeddings", False)
    ends = (module.get_input_embeddings(), module.get_output_embeddings())
    embedding, head = (getattr(end, "weight", None) for end in ends)
    if not tied or embedding is None or head is None or embedding is head:
        return ()
    elsewhere = any(w.device.type == "meta" or hasattr(w, "placements") or not is_matrix(w) for w in (embedding, head))
    if elsewhere or torch.equal(embedding, head):  # spread, split, or behind a quantisation
        return ()
    return (
        "its config.json says that the head is the embedding (tie_word_embeddings), but its checkpoint holds another "
        "head: that one is measured, as transformers loads it",
    )


def check_own_tokens(name: str, source: Source, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BadInput where another tokenizer gives the ids of a GGUF file to other tokens than the file's own list.

    Special tokens may have other names. A few ordinary ones may, too: converters spell them in their own ways.
    """
    from transformers import modeling_gguf_pytorch_utils

    read: Any = modeling_gguf_pytorch_utils.load_gguf_checkpoint
    path = file_of(source, source.gguf)
    own = read(str(path), return_tensors=False)["tokenizer"] if path else {}
    tokens = list(own.get("tokens", ()))
    kinds = list(own.get("token_type", ())) or [_ORDINARY] * len(tokens)
    ordinary = [number for number, kind in enumerate(kinds) if kind == _ORDINARY]
    names = {number: token.replace("▁", " ") for token, number in tokenizer.get_vocab().items()}
    different = sum(names.get(number) != tokens[number].replace("▁", " ") for number in ordinary)
    if different > _SPELLED_OTHERWISE * len(ordinary):
        raise BadInput(
            f"{name}: {tokenizer.name_or_path or 'the tokenizer'} names {different} of the {len(ordinary)} tokens of "
            f"{source.gguf} otherwise: it is not this model's. Leave out model.tokenizer= to take the file's own"
        )


def notes_of(source: Source, config: Any) -> tuple[str, ...]:
    """Describe a model's weights, and the files beside them that are not measured, in words."""
    notes = [f"its weights are quantised ({words})"] if (words := described(config)) and not source.gguf else []
    notes += [f"its weights are those of {source.gguf}, dequantised"] if source.gguf else []
    if file_of(source, "adapter_config.json") is not None:
        notes.append("an adapter lies beside its weights (adapter_config.json): the model is measured without it")
    if getattr(config, "auto_map", None):
        kind = config.model_type
        notes.append(f"its own code (auto_map in config.json) is not run: transformers' {kind} is measured")
    return tuple(notes)


def file_of(source: Source, name: str) -> Path | None:
    """Return a file of a pinned model, where it is on this machine."""
    from huggingface_hub import try_to_load_from_cache

    if source.revision is None:
        path = Path(source.location) / name
        return path if path.is_file() else None
    cached_file = try_to_load_from_cache(source.location, name, revision=source.revision)
    return Path(cached_file) if isinstance(cached_file, str) else None


def _stored_types(source: Source) -> Iterator[tuple[str, str]]:
    """Yield names and types (`F32`, `I64`, `BOOL`) of every tensor in a checkpoint's safetensors."""
    from safetensors import safe_open

    index = file_of(source, _INDEX)
    whole = {"model.safetensors"} if index is None else set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    for file in sorted(whole):
        if (path := file_of(source, file)) is not None:
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  no mapping
                    yield name, tensors.get_slice(name).get_dtype()


def explain(error: Exception, what: str, *, config: Any, pickles: bool) -> RbptrackError:
    """Explain an error raised while a model was loaded.

    Args:
        error: as raised.
        what: the model, in words.
        config: its transformers config.
        pickles: whether pickled weights were allowed.

    """
    if isinstance(error, RbptrackError):
        return error
    every = list(causes(error))
    if any(type(cause).__name__ == "SafetensorError" for cause in every if not out_of_memory(cause)):
        return BadInput(
            f"the weights of {what} are damaged or cut short ({first_line(error)}): copy or download them again"
        )
    if not pickles and isinstance(error, OSError) and "model.safetensors" in str(error):
        return BadInput(only_pickles(what))
    if isinstance(error, OSError | ImportError) and not any(map(out_of_memory, every)):
        return BadInput(f"{what} cannot be loaded: {first_line(error)}")
    return unbuildable(error, what, config)


def unbuildable(error: Exception, what: str, config: Any) -> BadInput:
    """Explain an error raised while transformers built a model from a config."""
    if any(map(out_of_memory, causes(error))):
        return BadInput(f"{what} does not fit into memory; model.dtype=bfloat16 or model.device_map=auto may help")
    from transformers.activations import ACT2FN

    named = error.args[0] if isinstance(error, KeyError) and error.args else None
    for key, value in _values(config.to_dict()):
        if named is not None and value == named and "act" in key:
            return BadInput(
                f"{what}: config.json asks for {key}={value!r}, which transformers does not have. "
                f"Activations: {', '.join(sorted(ACT2FN))}"
            )
    words = f"{type(error).__name__}: {first_line(error)}"
    return BadInput(f"{what}: config.json does not describe a model that transformers can build ({words})")


def _values(values: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every named value of a config, its sections' too."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _values(value)
        else:
            yield str(key), value
