"""A model's files: whether a folder holds what is needed, and whether what was loaded is the model's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from rbptrack.config.schema import ModelConfig
from rbptrack.errors import BadInput, RbptrackError, first_line

_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth")
_INDEX = "model.safetensors.index.json"
# What older versions of transformers stored beside the weights and newer ones compute: masks and position numbers.
_NO_WEIGHTS = re.compile(r"(^|\.)(inv_freq|masked_bias|causal_mask|position_ids|(attn|attention)\.bias)$")
_SHOWN = 3  # names of tensors in an error


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
    check_shards(folder)


def check_shards(folder: Path) -> None:
    """BadInput where the index of a sharded checkpoint names files that are not there."""
    index = folder / _INDEX
    if not index.is_file():
        return
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{index} is not an index of shards ({first_line(error)}): copy or download it again") from error
    if missing := sorted(str(name) for name in names if not (folder / str(name)).is_file()):
        raise BadInput(f"{folder} lacks {_listed(missing)}, which {_INDEX} names: copy or download it again")


def only_pickles(place: str) -> str:
    """What to say where weights are pickled and that was not allowed."""
    return (
        f"{place} has no safetensors, only pickled weights, which can hold code; model.pickles=true reads them with "
        "torch's weights-only loader"
    )


def check_loaded(found: Mapping[str, Any], what: str) -> None:
    """BadInput unless every tensor of the model was in the checkpoint, and every tensor of the checkpoint in the model.

    transformers fills what is missing with random numbers and leaves out what it does not know, both with a warning.

    Args:
        found: transformers' loading info.
        what: the model, in words.

    """
    unexpected = [key for key in found["unexpected_keys"] if not _NO_WEIGHTS.search(key)]
    mismatched = [f"{key} {tuple(stored)} instead of {tuple(built)}" for key, stored, built in found["mismatched_keys"]]
    faults = {
        "lacks tensors that its config.json asks for": found["missing_keys"],
        "holds tensors that its config.json does not know": unexpected,
        "holds tensors of other shapes than its config.json asks for": mismatched,
        "cannot be read": found["error_msgs"],
    }
    said = [f"{fault}: {_listed(sorted(map(str, names)))}" for fault, names in faults.items() if names]
    if said:
        raise BadInput(
            f"the checkpoint of {what} {'; it '.join(said)}. Its numbers would be another model's: config.json and "
            "weights must be of one model, and complete"
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def explain(error: Exception, what: str, *, config: Any, pickles: bool) -> RbptrackError:
    """What to say of an error raised while a model was loaded.

    Args:
        error: what was raised.
        what: the model, in words.
        config: its transformers config.
        pickles: whether pickled weights were allowed.

    """
    if isinstance(error, RbptrackError):
        return error
    causes = list(_chain(error))
    if any(type(cause).__name__ == "SafetensorError" for cause in causes):
        return BadInput(
            f"the weights of {what} are damaged or cut short ({first_line(error)}): copy or download them again"
        )
    if any(isinstance(c, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(c) for c in causes):
        return BadInput(f"{what} does not fit into memory; model.dtype=bfloat16 or model.device_map=auto may help")
    if not pickles and isinstance(error, OSError) and "model.safetensors" in str(error):
        return BadInput(only_pickles(what))
    if isinstance(error, OSError | ImportError):
        return BadInput(f"{what} cannot be loaded: {first_line(error)}")
    return unbuildable(error, what, config)


def unbuildable(error: Exception, what: str, config: Any) -> BadInput:
    """What to say of an error raised while transformers built a model from a config."""
    from transformers.activations import ACT2FN

    named = error.args[0] if isinstance(error, KeyError) and error.args else None
    for key, value in _values(config.to_dict()):
        if named is not None and value == named and "act" in key:
            return BadInput(
                f"{what}: config.json asks for {key}={value!r}, which transformers does not have. "
                f"Activations: {', '.join(sorted(ACT2FN))}"
            )
    said = f"{type(error).__name__}: {first_line(error)}"
    return BadInput(f"{what}: config.json does not describe a model that transformers can build ({said})")


def _values(values: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Every named value of a config, its sections' too."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _values(value)
        else:
            yield str(key), value


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
