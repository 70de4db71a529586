"""Read scores of tasks from logs of inspect_ai."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .items import Item, Remark, Score, WrongShapeError, choose_metric, get_object
from .naming import version_text
from .settings import SETTINGS, Names

# inspect_ai writes one of these before a model's id.
_PROVIDER_PREFIXES = ("hf/", "vllm/", "sglang/", "transformer_lens/", "nnterp/")

# Conditions of inspect_ai itself. A task may have an argument with such a name, or with that of a setting.
_OWN_CONDITIONS = {"solver_args", "model_roles", "reducer"}
_OWN_CONDITIONS |= {name for name, setting in SETTINGS.items() if setting.names is Names.TASK}


def read_inspect(file: Path, content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a log of inspect_ai. A log holds the scores of one model in one task.

    The log counts each sample once per epoch, so its count is divided by the number of epochs.
    """
    if content.get("status") not in (None, "success"):
        yield Remark(file.name, f"a log with the status {str(content['status'])[:40]}")
        return
    evaluation = get_object(content, "eval")
    results = get_object(content, "results")
    config = get_object(evaluation, "config", optional=True)
    plan = get_object(content, "plan", optional=True)
    arguments = get_object(evaluation, "model_args", optional=True)
    epochs = config.pop("epochs", None) or 1
    config.pop("epochs_reducer", None)  # each score names its own reducer
    conditions = _limit(config.pop("limit", None), evaluation) | _solver(evaluation, plan) | _task_arguments(evaluation)
    settings = arguments | config | _generation(evaluation, plan)
    samples = results.get("completed_samples") or results.get("total_samples")
    if type(epochs) is not int or epochs < 1 or not isinstance(samples, int | None) or "task" not in evaluation:
        raise WrongShapeError("eval.task, and whole numbers in eval.config.epochs and results.total_samples are needed")
    scores = _scores(results)
    has_several_scorers = len({score["name"] for score in scores}) > 1
    for score in scores:
        task = str(evaluation["task"]).rpartition("/")[2]
        if has_several_scorers:
            task += f"/{score['name']}"
        numbers = {name: entry.get("value") for name, entry in score["metrics"].items() if isinstance(entry, Mapping)}
        chosen = yield from choose_metric(task, numbers, metric)
        if not chosen:
            continue
        repeated = {"epochs": epochs, "reducer": score.get("reducer") or "mean"} if epochs > 1 else {}
        yield Score(
            _model(evaluation.get("model"), arguments),
            arguments.get("revision"),
            task,
            numbers[chosen],
            None if samples is None else -(-samples // epochs),  # rounded up
            (chosen, version_text(evaluation.get("task_version") or None)),  # 0 is the version of a task without one
            conditions | repeated,
            settings | {"scorer_options": score.get("params")},
        )


def _scores(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the scores of a log. Raises WrongShapeError unless each has a name and metrics."""
    scores = results.get("scores")
    if not isinstance(scores, list):
        raise WrongShapeError("results.scores must be a list")
    for score in scores:
        if not isinstance(score, Mapping) or not isinstance(score.get("name"), str):
            raise WrongShapeError("results.scores must be a list of objects with the key name")
        get_object(score, "metrics")
    return scores


def _generation(evaluation: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the generation of answers: those of the plan, and those of the model."""
    settings: dict[str, Any] = {}
    for part, key in ((plan, "config"), (evaluation, "model_generate_config")):
        settings |= {name: value for name, value in get_object(part, key, optional=True).items() if value is not None}
    return settings


def _task_arguments(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were passed to the task, and the roles of further models."""
    conditions = {"model_roles": evaluation.get("model_roles")}
    passed = evaluation.get("task_args_passed", evaluation.get("task_args"))
    for name, value in passed.items() if isinstance(passed, Mapping) else ():
        conditions[f"task_args.{name}" if name in _OWN_CONDITIONS else name] = value
    return conditions


def _limit(limit: object, evaluation: Mapping[str, Any]) -> dict[str, object]:
    """Return the condition that only a part of the samples was used."""
    samples = get_object(evaluation, "dataset", optional=True).get("samples")
    if isinstance(limit, list) and len(limit) == 2 and limit[0] == 0:
        limit = limit[1]
    if isinstance(limit, int) and isinstance(samples, int) and limit >= samples:
        return {}
    return {"limit": limit}


def _solver(evaluation: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, object]:
    """Return the solver and its arguments. The solver `generate` alone is the usual one."""
    steps = plan.get("steps")
    if isinstance(steps, list) and steps and all(isinstance(step, Mapping) for step in steps):
        solvers = [str(step.get("solver")).rpartition("/")[2] for step in steps]
        arguments = [step.get("params_passed", step.get("params")) or {} for step in steps]
        if solvers == ["generate"] and not arguments[0]:
            return {}
        return {"solver": " > ".join(solvers), "solver_args": arguments if any(arguments) else None}
    return {"solver": evaluation.get("solver"), "solver_args": evaluation.get("solver_args")}


def _model(model: object, arguments: Mapping[str, Any]) -> object:
    """Return the id or path of the model. Return None for a local model without a path."""
    if arguments.get("model_path"):  # inspect_ai loads this path and ignores the name
        return arguments["model_path"]
    if not isinstance(model, str):
        return model
    for provider in _PROVIDER_PREFIXES:
        model = model.removeprefix(provider)
    return None if model == "local" else model
