"""Decide which files of a local model folder are loaded. No other file of the folder is opened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput, first_line, shortened_list
from rbptrack.base.files import check_regular_file, open_regular
from rbptrack.sources.manifest import check_inside

INDEX = "model.safetensors.index.json"
"""The name of the file that says which safetensors file holds which tensor."""

_TEMPLATES = "additional_chat_templates"

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.*.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "*vocab*.json",
    "*vocab*.txt",
    "merges.txt",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "*.tokenizer",
    "tekken.json",
    "bpe.codes",
    "byte_maps.json",
    "dict.txt",
    "emoji.json",
    "normalizer.json",
    "word_*.json",
    "chat_template.jinja",
    f"{_TEMPLATES}/*.jinja",
)
"""Patterns of the files from which the tokenizers of transformers are loaded."""

_CONFIG_FILES = ("config.json", "generation_config.json")
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json")
_WEIGHTS = (("model.safetensors", INDEX), ("pytorch_model.bin", "pytorch_model.bin.index.json"))
"""The names of unsplit weights and of the index of split weights, for safetensors and for pickles."""

_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.gguf")
_NOT_WEIGHTS = ("optimizer*", "scheduler*", "scaler*", "rng_state*", "training_args*")  # what a Trainer saves, too
_MAX_FILES = 5  # the largest number of files that a message names
_MAX_INDEX_BYTES = 256 * 2**20


def model_file_names(folder: Path, *, pickles: bool, own_tokenizer: bool = True) -> list[str]:
    """Return the names of the files that loading a model and its tokenizer opens, in order.

    Args:
        folder: the model's folder.
        pickles: whether pickled weights may be read if there are no safetensors.
        own_tokenizer: whether the model's own tokenizer is used.

    Raises:
        BadInput: the config, the weights or the tokenizer is missing, a file is not a regular file, or it is not clear
            which weights are the model's.

    """
    names = _matching_names(folder, (*_CONFIG_FILES, *TOKENIZER_FILES))
    if "config.json" not in names:
        raise BadInput(f"model.path={folder} has no config: expected config.json")
    _check_named_files(folder, names)
    weights = _weight_names(folder, pickles=pickles)
    if own_tokenizer:
        _require_tokenizer(folder, names)
    return sorted({*names, *weights})


def tokenizer_file_names(folder: Path) -> list[str]:
    """Return the names of the files that loading a tokenizer opens, in order. Raises BadInput if there is none."""
    names = _matching_names(folder, ("config.json", *TOKENIZER_FILES))
    _check_named_files(folder, names)
    _require_tokenizer(folder, names)
    return names


def unread_weights(folder: Path, names: Iterable[str]) -> list[str]:
    """Return the files with weights in a model's folder that are not among its loaded files."""
    present = {path.name for path in folder.iterdir() if _matches(path.name, _WEIGHT_FILES)}
    return sorted(name for name in present - set(names) if not _matches(name, _NOT_WEIGHTS))


def only_pickles_message(name: str) -> str:
    """Return the error message for a model with pickled weights only, if the user did not allow pickles."""
    return (
        f"{name} has only pickled weights and no safetensors. Pickles can hold code. model.pickles=true reads them "
        "with torch's weights-only loader"
    )


def _matching_names(folder: Path, patterns: Iterable[str]) -> list[str]:
    """Return the names of a folder's files that match patterns. Raises BadInput if one is not a regular file."""
    present = [path.name for path in folder.iterdir()]
    if (folder / _TEMPLATES).is_dir():
        present += [f"{_TEMPLATES}/{path.name}" for path in (folder / _TEMPLATES).iterdir()]
    names = sorted(name for name in present if _matches(name, patterns) and not name.startswith("."))
    for name in names:
        _check_file(folder, name)
    return names


def _weight_names(folder: Path, *, pickles: bool) -> set[str]:
    """Return the names of the files that hold a model's weights, and of their index.

    Raises BadInput if there are none, or if an index and a file without index hold two sets of weights.
    """
    for single, index in _WEIGHTS if pickles else _WEIGHTS[:1]:
        has_single = _exists(folder, single)
        shards = _read_index(folder, index) if _exists(folder, index) else set()
        if has_single and shards - {single}:
            raise BadInput(
                f"model.path={folder} holds two sets of weights: {single}, and {len(shards)} files that {index} names. "
                "Remove the set that is out of date"
            )
        if has_single or shards:
            return {single, *shards} if has_single else {index, *shards}
    if not pickles and any(_exists(folder, name) for name in _WEIGHTS[1]):
        raise BadInput(only_pickles_message(f"model.path={folder}"))
    expected = " or ".join(name for names in (_WEIGHTS if pickles else _WEIGHTS[:1]) for name in names)
    others = unread_weights(folder, ())
    found = f". Found: {shortened_list(others, limit=_MAX_FILES)}" if others else ""
    adapter = ". An adapter must be merged into its base model first (merge_and_unload())"
    remedy = adapter if _exists(folder, "adapter_config.json") else ""
    raise BadInput(f"model.path={folder} has no weights: expected {expected}{found}{remedy}")


def _read_index(folder: Path, index: str) -> set[str]:
    """Return the names of the files that an index names. Raises BadInput if it or one of them cannot be used."""
    path = folder / index
    if path.stat().st_size > _MAX_INDEX_BYTES:
        raise BadInput(f"{path} is too large to be an index of weights")
    weight_map = read_json_object(path).get("weight_map")
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise BadInput(f"{path} must hold a weight_map from tensors to files")
    for name in set(names):
        check_inside(name, str(path))
        if not os.path.lexists(folder / name):
            raise BadInput(f"{path} names {name}, which does not exist")
        _check_file(folder, name)
    return set(names)


def _check_named_files(folder: Path, names: Iterable[str]) -> None:
    """Raise BadInput if the settings of a tokenizer name files outside of its folder, which transformers would open."""
    named: list[tuple[str, object]] = []
    if "tokenizer_config.json" in names:
        versions = read_json_object(folder / "tokenizer_config.json").get("fast_tokenizer_files")
        named += [("tokenizer_config.json", name) for name in versions or ()]
    if "special_tokens_map.json" in names:
        tokens = read_json_object(folder / "special_tokens_map.json")
        named += [("special_tokens_map.json", name) for key, name in tokens.items() if key.endswith("_file") and name]
    for source, name in named:
        check_inside(str(name), str(folder / source))


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises BadInput if the file cannot be read or holds something else."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read())
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged or not JSON ({first_line(error)})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path} must hold a JSON object")
    return content


def _require_tokenizer(folder: Path, names: Iterable[str]) -> None:
    if not any(_matches(name, _VOCABULARIES) for name in names):
        raise BadInput(
            f"model.path={folder} has no tokenizer: expected {', '.join(_VOCABULARIES)}. model.tokenizer=ORG/NAME uses "
            "another tokenizer"
        )


def _exists(folder: Path, name: str) -> bool:
    """Return whether a folder has a file. Raises BadInput if the name is that of something else."""
    if not os.path.lexists(folder / name):
        return False
    _check_file(folder, name)
    return True


def _check_file(folder: Path, name: str) -> None:
    """Raise BadInput if a name in a folder is not that of a regular file, or of a link to one."""
    path = folder / name
    if path.is_symlink() and not path.exists():
        raise BadInput(f"{path} is a broken link, so the model cannot be loaded")
    check_regular_file(path, "model.path")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
