"""Scores and remarks as they are read from files, and functions that the readers of JSON files share."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from rbptrack.analysis import listed, shortened_list

# The metrics that are used if the user names none, in order of preference.
_METRICS = (
    "acc_norm", "acc", "accuracy", "exact_match", "extractive_match", "em", "pass@1", "pass_at_1", "mean", "f1",
    "value",
)  # fmt: skip


class Score(NamedTuple):
    """A score in a file.

    Attributes:
        model: the model as the file names it, or None if the file does not name it.
        revision: the branch, tag or commit of the model.
        task: the task as the file names it.
        value: the score.
        n: the number of items.
        details: texts that name the task more precisely, such as the metric and the number of shots.
        conditions: settings that name the task, whatever `SETTINGS` says of them.
        settings: settings of the evaluation program. `SETTINGS` says what they name.
        unit: the unit of the value; empty for a share from 0 to 1.
        place: the score's place in the file. It is empty if model and task identify the score.

    """

    model: object
    revision: object
    task: str
    value: object
    n: object = None
    details: tuple[str, ...] = ()
    conditions: Mapping[str, object] = {}
    settings: Mapping[str, object] = {}
    unit: object = ""
    place: str = ""


class Remark(NamedTuple):
    """A task or a part of a file, and a clause about it: why it is not imported, or which of its values is used."""

    subject: str
    clause: str
    is_left_out: bool = True


Item = Score | Remark
"""A score of a file, or a remark about the file."""


class WrongShapeError(Exception):
    """A file does not have the structure of its format. The text names the key."""


def get_object(content: Mapping[str, Any], key: str, *, optional: bool = False) -> dict[str, Any]:
    """Return the object under a key of a file. Raises WrongShapeError if it is missing or another value.

    If `optional` is true, the object may be missing or null. An empty object is then returned.
    """
    value = content.get(key)
    if value is None and optional:
        return {}
    if key not in content:
        raise WrongShapeError(f"it lacks the key {key[:60]}")
    if not isinstance(value, Mapping):
        raise WrongShapeError(f"{key[:60]} must be an object")
    return dict(value)


def choose_metric(task: str, numbers: Mapping[str, object], metric: str) -> Generator[Item, None, str]:
    """Return the key of the requested metric or, if `metric` is empty, of the first of `_METRICS` that the task has.

    Yields a remark and returns an empty text if the task has no such metric. Yields a remark if one of several filters
    was chosen.
    """
    requested = ",".join(part.strip() for part in metric.split(","))
    for name in [requested] if requested else _METRICS:
        keys = [key for key in numbers if name in (key, key.partition(",")[0])]  # one key for each filter
        if name in keys:
            return name
        if keys:
            if len(keys) > 1:
                others = listed([key.partition(",")[2] or "none" for key in keys[1:]])
                clause = f"{keys[0]} was used, not {others}; metric=NAME,FILTER selects another one"
                yield Remark(task, clause, is_left_out=False)
            return keys[0]
    missing = f"no metric {requested}" if requested else f"no {_METRICS[0]}, {_METRICS[1]} or the like"
    yield Remark(task, f"{missing}; it has {shortened_list(list(numbers)) or 'none'}")
    return ""


def limit_condition(limit: object, counts: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the condition that only a part of the questions was asked; empty if all were asked.

    Args:
        limit: the limit that the user gave, or None.
        counts: for each task, the number of questions that were asked (`effective`) and that exist (`original`).

    """
    asked = [count.get("effective") for count in counts]
    existing = [count.get("original") for count in counts]
    numbers = [number for number in asked + existing if isinstance(number, int) and number > 0]
    if len(numbers) < 2 * len(counts) or not counts:  # a number is unknown
        return {"limit": limit}
    if asked == existing:
        return {}
    return {"limit": f"{sum(numbers[: len(counts)])} of {sum(numbers[len(counts) :])}" if limit is None else limit}
