"""Check a model's files, and check that the loaded weights are the weights in the files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput, shortened_list
from rbptrack.base.files import open_regular
from rbptrack.models.quantised import describe_quantisation
from rbptrack.sources.model_files import INDEX, read_json_object, unread_weights
from rbptrack.sources.pin import Pinned

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

_TOKENIZER_FILES = (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, "special_tokens_map.json", "added_tokens.json")
_JSON_FILES = ("config.json", "generation_config.json", INDEX, *_TOKENIZER_FILES)
"""Files of a model folder that must hold a JSON object."""

# Masks and position numbers. Older versions of transformers stored them with the weights, newer ones compute them.
_NOT_A_WEIGHT = re.compile(r"(^|\.)(inv_freq|masked_bias|causal_mask|position_ids|(attn|attention)\.bias)$")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_FLOAT_TYPES = ("F64", "F32", "F16", "BF16")  # names in safetensors of the types in which weights may be stored
_MAX_TENSORS = 3  # the largest number of tensors that an error names
_MAX_FILES = 5  # the largest number of files that a note names


def describe_unreadable_file(pinned: Pinned) -> str:
    """Describe in a clause the first JSON file of a model that cannot be read or is damaged; empty if there is none."""
    if pinned.gguf:
        return ""
    for name in _JSON_FILES:
        path = local_file(pinned, name)
        try:
            if path is not None:
                read_json_object(path)
        except BadInput as error:
            return str(error)
    return ""


def check_loaded(info: Mapping[str, Any], name: str) -> None:
    """Check that a model and its checkpoint have the same tensors.

    transformers only warns if they differ. It fills missing weights with random numbers and leaves out unknown ones.
    `info` is the loading info that `from_pretrained` returned. Raises BadInput if tensors are missing, unknown, of
    another shape, or cannot be read.
    """
    unexpected = [key for key in info["unexpected_keys"] if not _NOT_A_WEIGHT.search(key)]
    mtp_layers = _mtp_layers(unexpected)
    unexpected = [key for key in unexpected if _layer(key) not in mtp_layers]
    mismatched = [f"{key} {tuple(stored)} instead of {tuple(built)}" for key, stored, built in info["mismatched_keys"]]
    faults = {
        "does not have tensors that its config asks for": info["missing_keys"],
        "holds tensors that its config does not know": unexpected,
        "holds tensors of other shapes than its config asks for": mismatched,
        "cannot be read": info["error_msgs"],
    }
    clauses = []
    for fault, tensors in faults.items():
        if tensors:
            clauses.append(f"{fault}: {shortened_list(sorted(map(str, tensors)), limit=_MAX_TENSORS)}")
    if clauses:
        raise BadInput(
            f"the checkpoint of {name} {'; it '.join(clauses)}. The measured numbers would be wrong: config and "
            "weights must be complete and belong to the same model"
        )


def check_stored_types(pinned: Pinned, module: Any, name: str) -> None:
    """Check that a checkpoint stores its weights as floating-point numbers of at least 16 bits.

    transformers loads other types without a warning. If the config names no quantisation, integers, booleans and
    numbers of 8 bits become weights with these values. Complex numbers lose their imaginary part. Raises BadInput if a
    weight has another type, and the config names no quantisation.
    """
    if pinned.gguf or getattr(module.config, "quantization_config", None):
        return
    buffer_names = {key.rpartition(".")[2] for key, _ in module.named_buffers()}
    not_floats = [key for key, stored_type in _stored_types(pinned) if not stored_type.startswith(_FLOAT_TYPES)]
    possible_weights = [key for key in not_floats if not _NOT_A_WEIGHT.search(key)]
    weights = [key for key in possible_weights if key.rpartition(".")[2] not in buffer_names]
    if weights:
        raise BadInput(
            f"the checkpoint of {name} holds weights as integers, booleans, numbers of 8 bits or complex numbers, but "
            f"its config.json does not name a quantisation: {shortened_list(sorted(weights), limit=_MAX_TENSORS)}"
        )


def model_notes(pinned: Pinned, module: Any) -> tuple[str, ...]:
    """Return notes for the user: how the weights are quantised, and which files of the folder are not used."""
    notes = []
    quantisation = describe_quantisation(module.config)
    if pinned.gguf:
        notes.append(f"its weights are read from {pinned.gguf} and dequantised")
    elif quantisation:
        notes.append(f"its weights are quantised ({quantisation})")
    if pinned.revision is None and not pinned.gguf:
        unread = unread_weights(Path(pinned.location), [file.name for file in pinned.files])
        if unread:
            files = shortened_list(unread, limit=_MAX_FILES)
            notes.append(f"its folder also holds weights that are not read: {files}")
    if getattr(module.config, "auto_map", None):
        model_type = module.config.model_type
        notes.append(
            f"its own code (auto_map in config.json) is not run: transformers' {model_type} is measured instead"
        )
    return tuple(notes)


def local_file(pinned: Pinned, name: str) -> Path | None:
    """Return the path of a file of a pinned model on this machine, or None if the model does not have the file here."""
    from huggingface_hub import try_to_load_from_cache

    if pinned.revision is None:
        return pinned.path(name)
    cached_file = try_to_load_from_cache(pinned.location, name, revision=pinned.revision)
    return Path(cached_file) if isinstance(cached_file, str) else None


def check_layers(pinned: Pinned, module: Any, name: str) -> None:
    """Check that a checkpoint has the layers that its config asks for, and in addition only layers of MTP.

    Layers for multi-token prediction follow the layers of the model. transformers ignores layers with fixed numbers,
    such as layer 61 of all models with DeepSeek-V3's code, whatever they hold. Raises BadInput if the config counts a
    layer of MTP as one of the model, or if an ignored layer does not belong to MTP.
    """
    if pinned.gguf:
        return
    count = getattr(module.config.get_text_config(decoder=True), "num_hidden_layers", None)
    if not isinstance(count, int):
        return
    keys = [key for key, _ in _stored_types(pinned)]
    mtp_layers = _mtp_layers(keys)
    patterns = [text for text in getattr(module, "_keys_to_ignore_on_load_unexpected", None) or () if "layers" in text]
    ignored = {_layer(key) for key in keys if any(re.search(pattern, key) for pattern in patterns)} - mtp_layers
    wrong = [layer for layer in mtp_layers if layer < count] + [layer for layer in ignored if layer >= count]
    if wrong:
        raise BadInput(
            f"the checkpoint of {name} does not fit num_hidden_layers={count} in its config.json: it holds a layer "
            f"{min(wrong)} that transformers would use wrongly or ignore"
        )


def _mtp_layers(keys: Iterable[str]) -> set[int]:
    """Return the numbers of layers that predict further tokens. They combine two streams by a tensor `eh_proj`."""
    return {_layer(key) for key in keys if ".eh_proj." in key}


def _layer(key: str) -> int:
    """Return the number of the layer to which a tensor belongs, or -1."""
    match = _LAYER.search(key)
    return int(match[1]) if match else -1


def _stored_types(pinned: Pinned) -> Iterator[tuple[str, str]]:
    """Yield the name and the type (such as `F32`, `I64`, `BOOL`) of each tensor in a model's safetensors files.

    A file begins with the length of a JSON object, in 8 bytes, and the object. It describes the tensors.
    """
    index = local_file(pinned, INDEX)
    files = {"model.safetensors"} if index is None else set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    for file in sorted(files):
        path = local_file(pinned, file)
        if path is None:
            continue
        with open_regular(path) as data:  # safetensors would wait for ever if the file became a FIFO
            tensors = json.loads(data.read(int.from_bytes(data.read(8), "little")))
        for name, tensor in tensors.items():
            if name != "__metadata__":
                yield name, tensor["dtype"]
