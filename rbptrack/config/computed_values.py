"""Functions that configs call to compute values, such as the family from the name of a repository."""

from __future__ import annotations

import json
import re
from pathlib import PurePath

from rbptrack.base.errors import BadInput
from rbptrack.base.names import separate_size
from rbptrack.config.paths import user_path

_STEPS = re.compile(r"\s*(\d{1,15})(?::(\d{1,15}))?(?::([1-9]\d{0,14}))?\s*")
_MAX_STEPS = 1_000_000
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})", re.ASCII)  # a folder that a Trainer of transformers writes


def base_name(repo: str, path: str) -> str:
    """Return the last part of a repository's name or of a path, such as `news` for `org/news`.

    A checkpoint folder of a Trainer, such as `out/a-7m/checkpoint-200`, has the name of the folder that holds it.
    """
    if checkpoint_of(path):
        return user_path(path).absolute().parent.name
    return PurePath(repo or path).name


def checkpoint_of(path: str) -> str:
    """Return the step of a checkpoint folder: `200` for `out/a-7m/checkpoint-200`. It is empty for other folders."""
    match = _CHECKPOINT.fullmatch(PurePath(path).name)
    return match[1] if match else ""


def tokens_seen(path: str) -> int:
    """Return the number of tokens that a Trainer has read, from trainer_state.json in a folder; 0 if unknown."""
    try:
        state = json.loads((user_path(path) / "trainer_state.json").read_bytes()) if path else {}
    except (OSError, ValueError, RecursionError):
        return 0
    tokens = state.get("num_input_tokens_seen") if isinstance(state, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def family_of(repo: str, path: str) -> str:
    """Return the name of a repository or folder without its size: `name-base` for `org/Name-1.4B-base`."""
    return separate_size(base_name(repo, path).lower())[0]


def size_of(repo: str, path: str, family: str) -> str:
    """Return the size in the name of a repository or folder.

    If the name has no size, return an empty text. If the user gave another family, return the whole name instead,
    because the models of this family need different names.
    """
    name, size = separate_size(base_name(repo, path).lower())
    return size or (name if family != name else "")


def training_steps(steps: str) -> list[int]:
    """Return the training steps that a text lists, such as `0,1,2,1000:143000:1000` (first:last:by).

    Raises BadInput if the text has another form, or a range has more than a million steps.
    """
    numbers: list[int] = []
    for part in filter(None, steps.split(",")):
        match = _STEPS.fullmatch(part)
        if match is None:
            raise BadInput(f"steps={part[:60]!r}: give numbers and ranges first:last:by, separated by commas")
        first = int(match[1])
        steps_in_range = range(first, int(match[2] or first) + 1, int(match[3] or 1))
        if len(steps_in_range) > _MAX_STEPS:
            raise BadInput(f"steps={part}: a range can have at most {_MAX_STEPS:,} training steps")
        numbers.extend(steps_in_range)
    return numbers


def training_tokens(revision: str, steps: str, tokens_per_step: int) -> int:
    """Return D, the number of training tokens of a checkpoint.

    Args:
        revision: `step<n>`, or `main` for the last step. For other revisions the result is 0 (unknown).
        steps: all training steps of the model, in the form that `training_steps` reads.
        tokens_per_step: the number of tokens that the model read in one step.

    Raises:
        BadInput: the model has no checkpoint at the step.

    """
    numbers = training_steps(steps)
    if revision == "main":
        return max(numbers) * tokens_per_step
    match = re.fullmatch(r"step(\d{1,15})", revision, re.ASCII)
    if match is None:
        return 0  # the step of a commit or tag is unknown
    step = int(match[1])
    if step not in numbers:
        raise BadInput(
            f"model.revision={revision}: this checkpoint does not exist. The model has {len(numbers)}, and the last is "
            f"step{max(numbers)}"
        )
    return step * tokens_per_step
