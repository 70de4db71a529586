"""Read scores of tasks from files of lighteval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .items import Item, Remark, Score, WrongShapeError, choose_metric, get_object, limit_condition
from .naming import detail_texts, group_text, version_text

_AVERAGE = ":_average"  # lighteval adds this to the name of a group for the mean of its tasks, such as `mmlu:law`


def read_lighteval(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lighteval. The keys of its `results` are `suite|task|shots` or `task|shots`."""
    general = get_object(content, "config_general")
    model_config = general.get("model_config")
    if not isinstance(model_config, Mapping):
        model_config = {}
    settings = _settings(general, model_config)
    tasks = get_object(content, "config_tasks", optional=True)
    versions = get_object(content, "versions", optional=True)
    results = get_object(content, "results")
    for key, numbers in results.items():
        if "|" not in key:
            yield Remark(key, "an average over the tasks of the file")
            continue
        name, shots = _name_and_shots(key)
        if not name.strip("|") or not shots.isdecimal():
            yield Remark(key, "not the name of a task and its number of shots")
            continue
        if not isinstance(numbers, Mapping):
            raise WrongShapeError(f"results.{key[:60]} must be an object")
        chosen = yield from choose_metric(name, numbers, metric)
        if not chosen:
            continue
        leaves = _leaves(results, key)
        counts = []
        for leaf in leaves:
            task = get_object(tasks, leaf, optional=True) or get_object(tasks, _name_and_shots(leaf)[0], optional=True)
            counts.append({"effective": task.get("effective_num_docs"), "original": task.get("original_num_docs")})
        version = version_text(versions.get(key, versions.get(name)))
        yield Score(
            general.get("model_name") or model_config.get("model_name"),
            model_config.get("revision"),
            name.removesuffix(_AVERAGE),
            numbers[chosen],
            counts[0]["effective"] or None if leaves == [key] else None,
            (*detail_texts(chosen, "", shots), group_text(leaves, key), version),
            limit_condition(general.get("max_samples"), counts),
            settings,
        )


def _settings(general: Mapping[str, Any], model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file: those of the evaluation, of the model, and of the generation of answers."""
    settings = {name: general.get(name) for name in ("num_fewshot_seeds", "system_prompt", "use_chat_template")}
    settings |= {name: value for name, value in model_config.items() if value is not None}
    settings["generation_parameters"] = None  # its entries are settings of their own
    generation = model_config.get("generation_parameters")
    if isinstance(generation, Mapping):
        settings |= generation
    if settings.get("temperature") == 0:  # the default
        del settings["temperature"]
    dtype = str(model_config.get("dtype") or general.get("model_dtype"))
    if "bit" in dtype:  # 4bit, 8bit
        settings["quantised"] = dtype
    return settings


def _name_and_shots(key: str) -> tuple[str, str]:
    """Split a key of `results` into the name of the task, with its suite, and the number of shots."""
    parts = key.split("|")
    shots_index = 2 if len(parts) == 4 else -1  # older versions write suite|task|shots|truncation
    return "|".join(parts[:shots_index]), parts[shots_index]


def _leaves(results: Mapping[str, Any], key: str) -> list[str]:
    """Return the keys of the tasks over which a result is the mean. For the result of a task, return its own key."""
    group, shots = _name_and_shots(key)
    if not group.endswith(_AVERAGE):
        return [key]
    group = group.removesuffix(_AVERAGE)
    leaves = []
    for other in results:
        name, shots_of_other = _name_and_shots(other)
        if name.partition(":")[0] == group and not name.endswith(_AVERAGE) and shots_of_other == shots:
            leaves.append(other)
    return leaves
