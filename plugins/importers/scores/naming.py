"""Name the model and the task of a score, so that every condition that can change the score stands in a name."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence

from rbptrack.analysis import counted, names_a_secret, plain_name

from .items import Score
from .settings import SETTINGS, Names, Setting

_UNVERSIONED = (None, "", "N/A", "Yaml")  # what lm-evaluation-harness writes for a task without a version
_UNSET: tuple[object, ...] = (None, {}, [])
_MAX_SETTING_LENGTH = 80  # characters; a longer setting is replaced by a hash
_MAX_TASK_LENGTH = 200  # characters; the end of a longer name is replaced by a hash


def model_name(score: Score) -> object:
    """Return the name of a score's model with the settings that change its weights: `acme/alpha-70m+peft=acme/lora`."""
    settings = _unusual_settings(score, Names.MODEL)
    changes = [f"+{name}={_text(value)}" for name, value in settings if value is not False and value not in _UNSET]
    if not isinstance(score.model, str) or not changes:
        return score.model
    return "".join([plain_name(score.model)[0], *changes])


def task_name(score: Score) -> str:
    """Return the name of a score's task with its conditions: `gsm8k (exact_match, strict-match, 5-shot, limit=20)`."""
    conditions = {**dict(_unusual_settings(score, Names.TASK)), **score.conditions}
    texts = []
    for name, value in sorted(conditions.items()):
        is_secret = name not in SETTINGS and names_a_secret(name)
        if not is_secret and plain_value(value) not in _UNSET:
            texts.append(f"{name}={_text(value)}")
    details = ", ".join(filter(None, (*score.details, *texts)))
    task = f"{score.task} ({details})" if score.task and details else score.task  # an empty name is refused later
    if len(task) > _MAX_TASK_LENGTH:
        task = f"{task[: _MAX_TASK_LENGTH - 12]}... {_hash(task)}"
    return task


def unknown_settings(score: Score) -> list[str]:
    """Return the settings in the name of a score's task that `SETTINGS` does not know."""
    unknown = []
    for name, value in _unusual_settings(score, Names.TASK):
        if name not in SETTINGS and value not in _UNSET and not names_a_secret(name):
            unknown.append(name)
    return unknown


def _unusual_settings(score: Score, names: Names) -> Iterator[tuple[str, object]]:
    """Yield the settings of a score that stand in a name (of its model or its task), unless their value is usual."""
    for name, value in sorted(score.settings.items()):
        setting = SETTINGS.get(name, Setting(Names.TASK, "is not known"))
        value = plain_value(value)
        if setting.names is names and value not in setting.usual:
            yield name, value


def detail_texts(metric: object, filter_name: object, shots: object) -> tuple[str, ...]:
    """Return the texts that name a task more precisely: its metric, filter and number of shots."""
    shots = plain_value(shots)
    return (
        str(metric or ""),
        "" if filter_name in (None, "none") else str(filter_name),
        "" if shots is None else f"{_text(shots)}-shot",
    )


def group_text(leaves: Sequence[str], task: str) -> str:
    """Return the number of tasks over which a score is the mean, as a text that names the task.

    The text is empty if `task` is not a group. `leaves` are the tasks of the group, or the task itself.
    """
    return "" if list(leaves) == [task] else f"group of {counted(len(leaves), 'task')}"


def version_text(version: object) -> str:
    """Return the version of a task as a text that names the task; empty if the task has no version."""
    return "" if version in _UNVERSIONED else f"version {version if isinstance(version, str) else _text(version)}"


def plain_value(value: object) -> object:
    """Return a value of a setting. The texts `False`, `none` and `20` become False, None and 20."""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("", "none", "null", "nan"):
            return None
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        value = _number(text)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _number(text: str) -> str | float:
    """Return a number that a text holds, or the text."""
    if not text.isascii() or "_" in text or len(text) > 20:
        return text
    try:
        return float(text)
    except ValueError:
        return text


def _text(value: object) -> str:
    """Return a value as a part of a name. A long text, an address and an unprintable text are replaced by a hash."""
    value = plain_value(value)
    text = value if isinstance(value, str) else json.dumps(_without_secrets(value), sort_keys=True, default=str)
    if isinstance(value, bool):
        text = str(value)
    return _hash(text) if len(text) > _MAX_SETTING_LENGTH or "://" in text or not text.isprintable() else text


def _without_secrets(value: object) -> object:
    """Return a value without the entries of its objects whose names say that they are secret."""
    if isinstance(value, Mapping):
        return {name: _without_secrets(entry) for name, entry in value.items() if not names_a_secret(str(name))}
    return [_without_secrets(entry) for entry in value] if isinstance(value, list | tuple) else value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
