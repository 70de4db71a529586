"""Read scores of tasks from files of lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .items import Item, Score, WrongShapeError, choose_metric, get_object, limit_condition
from .naming import detail_texts, group_text, plain_value, version_text

# lm-evaluation-harness names the model by one of these arguments.
_MODEL_ARGUMENTS = ("pretrained", "model", "path", "model_id", "engine", "load")


def read_harness(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lm-evaluation-harness.

    Its `results` hold metrics such as `acc,none` for each task and each group of tasks.
    """
    config = get_object(content, "config", optional=True)
    arguments = _parse_arguments(config.get("model_args"))
    model = next((arguments[name] for name in _MODEL_ARGUMENTS if arguments.get(name)), content.get("model_name"))
    settings = {name: value for name, value in config.items() if name not in ("model_args", "num_fewshot", "limit")}
    generation = {name: plain_value(value) for name, value in _parse_arguments(config.get("gen_kwargs")).items()}
    settings |= arguments | {"gen_kwargs": generation, "system_instruction": content.get("system_instruction")}
    chat_template_args = _parse_json(arguments.get("chat_template_args"))
    if isinstance(chat_template_args, Mapping):
        settings |= {"chat_template_args": None, **chat_template_args}
    versions = get_object(content, "versions", optional=True)
    samples = get_object(content, "n-samples", optional=True)
    for task, values in get_object(content, "results").items():
        if not isinstance(values, Mapping):
            raise WrongShapeError(f"results.{task[:60]} must be an object")
        numbers = {
            name: value
            for name, value in values.items()
            if "_stderr" not in name and name not in ("alias", "name", "sample_len", "samples", " ")
        }
        chosen = yield from choose_metric(task, numbers, metric)
        if not chosen:
            continue
        name, _, filter_name = chosen.partition(",")
        shots = _find_shots(content, config, task)
        chat = "chat template" if content.get("chat_template") else ""
        leaves = _leaves(content, task)
        counts = [get_object(samples, leaf, optional=True) for leaf in leaves]
        conditions = limit_condition(config.get("limit"), counts)
        if chat and plain_value(shots) != 0:
            conditions["fewshot_as_multiturn"] = content.get("fewshot_as_multiturn")
        yield Score(
            model,
            arguments.get("revision"),
            task,
            numbers[chosen],
            get_object(samples, task, optional=True).get("effective") or None,
            (*detail_texts(name, filter_name, shots), chat, group_text(leaves, task), version_text(versions.get(task))),
            conditions,
            settings,
        )


def _parse_arguments(arguments: object) -> dict[str, Any]:
    """Parse arguments of lm-evaluation-harness, an object or a text such as `pretrained=a/b,dtype=float16`."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    parsed: dict[str, Any] = {}
    key = ""
    for part in str(arguments or "").split(","):
        name, equals, value = part.partition("=")
        if equals:
            key = name.strip()
            parsed[key] = value.strip()
        elif key:
            parsed[key] += f",{part}"  # the value holds a comma
    return parsed


def _parse_json(value: object) -> object:
    """Parse a text that may be JSON. Any other value is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _leaves(content: Mapping[str, Any], task: str) -> list[str]:
    """Return the tasks that a group of tasks in a file of lm-evaluation-harness consists of, or the task itself."""
    members = get_object(content, "group_subtasks", optional=True)
    leaves = []
    waiting = [task]
    visited: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        if isinstance(members.get(name), list) and members[name]:
            waiting += map(str, members[name])
        else:
            leaves.append(name)
    return leaves


def _find_shots(content: Mapping[str, Any], config: Mapping[str, Any], task: str) -> object:
    """Return the number of shots of a task. For a group of tasks, return the number that all its tasks share.

    Return None if the number is unknown, or if the tasks of the group differ in it.
    """
    numbers_by_task = get_object(content, "n-shot", optional=True)
    configs = get_object(content, "configs", optional=True)
    numbers = []
    for name in [task] if task in numbers_by_task else _leaves(content, task):
        shots = numbers_by_task.get(name)
        if shots is None:
            shots = get_object(configs, name, optional=True).get("num_fewshot")
        numbers.append(config.get("num_fewshot") if shots is None else shots)
    return numbers[0] if numbers and all(number == numbers[0] for number in numbers) else None
