"""Read scores of tasks from files of lighteval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .items import Item, Remark, Score, WrongShapeError, choose_metric, get_object, limit_condition
from .naming import detail_texts, version_text


def read_lighteval(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lighteval. The keys of its `results` are `suite|task|shots` or `task|shots`."""
    general = get_object(content, "config_general")
    model_config = general.get("model_config")
    if not isinstance(model_config, Mapping):
        model_config = {}
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
    model = general.get("model_name") or model_config.get("model_name")
    tasks = get_object(content, "config_tasks", optional=True)
    versions = get_object(content, "versions", optional=True)
    for key, numbers in get_object(content, "results").items():
        parts = key.split("|")
        if len(parts) < 2:
            yield Remark(key, "an average over the tasks of the file")
            continue
        shots_index = 2 if len(parts) == 4 else -1  # older versions write suite|task|shots|truncation
        name = "|".join(parts[:shots_index])
        if not name.strip("|") or not parts[shots_index].isdecimal():
            yield Remark(key, "not the name of a task and its number of shots")
            continue
        if not isinstance(numbers, Mapping):
            raise WrongShapeError(f"results.{key[:60]} must be an object")
        chosen = yield from choose_metric(name, numbers, metric)
        if not chosen:
            continue
        task = get_object(tasks, key, optional=True) or get_object(tasks, name, optional=True)
        n = task.get("effective_num_docs") or None
        yield Score(
            model,
            model_config.get("revision"),
            name,
            numbers[chosen],
            n,
            (*detail_texts(chosen, "", parts[shots_index]), version_text(versions.get(key, versions.get(name)))),
            limit_condition(general.get("max_samples"), [{"effective": n, "original": task.get("original_num_docs")}]),
            settings,
        )
