"""Import scores of tasks from tables, lm-evaluation-harness, lighteval, inspect_ai and `.eval_results`."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rbptrack.analysis import (
    SCORES,
    TABLE_SUFFIXES,
    BadInput,
    Imported,
    ImportedScore,
    Importer,
    ImportNote,
    column_names,
    listed,
    load_json,
    plain_name,
    read_pairs,
    read_rows,
    read_small,
    shortened_list,
)

# The metrics that are used if the user names none, in order of preference.
_METRICS = (
    "acc_norm", "acc", "accuracy", "exact_match", "extractive_match", "em", "pass@1", "pass_at_1", "mean", "f1",
    "value",
)  # fmt: skip
_FORMATS = {
    "table": "a table",
    "hub": "a file of .eval_results",
    "harness": "a file of lm-evaluation-harness",
    "lighteval": "a file of lighteval",
    "inspect": "a log of inspect_ai",
}
_YAML_SUFFIXES = (".yaml", ".yml")
# Arguments with such names may hold passwords, so they never become part of a model's name.
_SECRET_NAME = re.compile(r"passw|pwd|secret|credential|auth|(^|_)key$|(^|_)token$", re.IGNORECASE)
# A table may use any of these names for the column with the number of shots.
_SHOTS_COLUMNS = ("shots", "num_fewshot", "n-shot", "n_shot")
# Reading a file raises one of these if the file does not have the expected structure.
_WRONG_SHAPE_ERRORS = (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError, yaml.YAMLError)
_UNSET_VALUES = ("", "0", "None", "none", "null", "False", "false", None, False, 0)
# inspect_ai writes one of these before a model's id.
_PROVIDER_PREFIXES = ("hf/", "vllm/", "sglang/", "transformer_lens/", "nnterp/")
_MAX_SETTING_LENGTH = 80  # characters; a longer setting is replaced by a hash

_SAME_WEIGHTS = (
    "add_bos_token", "api_key", "attn_implementation", "backend", "base_url", "batch_size", "cache_dir",
    "chat_template", "data_parallel_size", "device", "device_map", "device_map_option", "disable_log_stats",
    "distributed_executor_backend", "dtype", "enable_prefix_caching", "enforce_eager", "eos_string",
    "gpu_memory_utilization", "header", "headers", "hf_token", "hidden_states", "logits_cache", "low_cpu_mem_usage",
    "max_batch_size", "max_concurrent", "max_connections", "max_cpu_memory", "max_gen_toks", "max_length",
    "max_memory_per_gpu", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "max_retries",
    "mixed_precision_dtype", "model", "model_path", "num_concurrent", "offload_folder", "parallelize",
    "pipeline_parallel_size", "prefix_token_id", "pretrained", "revision", "seed", "softmax_dtype", "swap_space",
    "tensor_parallel_size", "timeout", "token", "tokenized_requests", "tokenizer", "tokenizer_backend",
    "tokenizer_mode", "tokenizer_path", "tokenizer_revision", "truncation", "trust_remote_code", "use_auth_token",
    "use_cache", "use_fast_tokenizer", "use_flash_attention_2", "verify_certificate",
)  # fmt: skip
"""Arguments that do not change a model's weights. Any other argument that is set becomes part of the model's name."""

_OTHER_WEIGHTS = (
    "adapter_weights", "base_model", "delta_weights", "gguf_file", "load_format", "load_in_4bit", "load_in_8bit",
    "lora_path", "quantization", "quantization_config", "subfolder",
)  # fmt: skip
"""Arguments in lighteval's `model_config` that change a model's weights.

`model_config` also lists arguments that the user did not set, so only these are added to the model's name.
"""


class Score(NamedTuple):
    """A score in a file: its model, revision, task, value and number of items.

    `place` is the score's place in the file. It is empty if model and task identify the score.
    """

    model: object
    revision: object
    task: str
    value: object
    n: object
    place: str = ""


class Remark(NamedTuple):
    """A task or a part of a file, and a clause about it: why it is not imported, or which of its values is used."""

    subject: str
    clause: str
    is_left_out: bool = True


Item = Score | Remark
"""A score of a file, or a remark about the file."""


class Scores(Importer):
    """Scores of tasks: a table, or files of lm-evaluation-harness, lighteval, inspect_ai and `.eval_results`.

    - A table has a row for each model and task, with the columns model, task and score. It may also have the columns
      revision, n, metric, filter and shots.
    - A JSON file with `results` is read as one of lm-evaluation-harness. If it also has `config_general`, it is read as
      one of lighteval.
    - A JSON file with `eval` is read as a log of inspect_ai. `inspect log convert --to json` converts an .eval file.
    - A .yaml file in `.eval_results` belongs to the model whose folder contains `.eval_results`.

    All such files in a folder are read. Metric, filter and the number of shots become part of a task's name. Arguments
    that change a model's weights (`peft=`, `load_in_4bit=`) become part of the model's name.
    """

    names: str = ""
    """a CSV with the columns name (a model's name in the scores) and model (its name in the store)"""

    model: str = ""
    """name of the model, if the file does not name it. All scores must belong to this model"""

    metric: str = ""
    """the metric to use if a task has several, optionally with a filter, such as exact_match,flexible-extract. By
    default the first of acc_norm, acc, accuracy, exact_match, ..., with its first filter
    """

    def takes(self, path: Path) -> bool:
        return path.suffix.lower() == ".eval" or any(_recognise(file)[0] for file in _list_files(path))

    def read(self, path: Path) -> Iterator[Imported]:
        names = read_pairs(self.names, "name", "model", option="names")
        if path.suffix.lower() == ".eval":
            raise BadInput(f"{path} is a log of inspect_ai: convert it with `inspect log convert --to json` first")
        subjects_by_remark: dict[tuple[str, bool], dict[str, None]] = {}  # the key is (clause, is_left_out)
        models: dict[str, None] = {}
        for file in _list_files(path):
            relative_path = file.relative_to(path).as_posix() if path.is_dir() else ""
            for item in _read_items(file, relative_path, self.metric):
                if isinstance(item, Remark):
                    subjects_by_remark.setdefault(item[1:], {})[item.subject] = None
                    continue
                if item.model is None and not self.model:
                    raise BadInput(f"{file} does not name the model of its scores: give model=NAME")
                models[str(item.model)] = None
                model = names.get(str(item.model), item.model)
                columns = {"model": self.model or model, "revision": item.revision, "task": item.task}
                columns |= {"score": item.value, "n": item.n}
                location = item.place or f"{str(item.model)[:60]} in {item.task[:60]}"
                yield ImportedScore(columns, f"{relative_path}, {location}" if relative_path else location)
        if self.model and len(models) > 1:
            raise BadInput(
                f"{path}: model={self.model} names one model, but the scores are of {shortened_list(list(models))}. "
                "Leave out model="
            )
        for (clause, is_left_out), subjects in subjects_by_remark.items():
            yield ImportNote(f"{'left out: ' if is_left_out else ''}{shortened_list(list(subjects))}: {clause}")
        variants = [model for model in models if "+" in model and model not in names]
        if variants and not self.model:
            yield ImportNote(
                f"{shortened_list(variants)}: arguments change the weights, so each of these counts as a separate "
                "model. names=FILE maps their names to names in the store"
            )


def _list_files(path: Path) -> list[Path]:
    """Return the file, or all files in the folder that are not hidden."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))


def _recognise(file: Path) -> tuple[str, Any]:
    """Return the format of a file with scores, a key of `_FORMATS`, and the content of a JSON file.

    The format is empty if it is not known.
    """
    suffix = file.suffix.lower()
    if suffix in _YAML_SUFFIXES and file.parent.name == ".eval_results":
        return "hub", None
    if suffix == ".json":
        try:
            content = load_json(file, finite=False)
        except BadInput:
            return "", None
        if isinstance(content, dict) and "eval" in content:
            return "inspect", content
        if isinstance(content, dict) and "results" in content:
            return "lighteval" if "config_general" in content else "harness", content
    if suffix in TABLE_SUFFIXES and {"task", "score"} <= column_names(file):
        return "table", None
    return "", None


def _read_items(file: Path, relative_path: str, metric: str) -> list[Item]:
    """Return the scores of a file and remarks about it.

    `relative_path` is the file's path in the folder that is imported. It is empty if only this file is imported. In
    this case, BadInput is raised if the file cannot be read. BadInput is also raised if a table lacks a column.
    """
    file_format, content = _recognise(file)
    if not file_format and relative_path:
        return [Remark(relative_path, "not a file of scores")]
    try:
        if file_format in ("", "table"):  # for an unknown format, this raises an error that names the columns
            return list(_read_table(file))
        if file_format == "hub":
            items = _read_hub(file)
        elif file_format == "inspect":
            items = _read_inspect(file, content, metric)
        elif file_format == "lighteval":
            items = _read_lighteval(content, metric)
        else:
            items = _read_harness(content, metric)
        return [_refuse_wrong_value(item) for item in items]
    except _WRONG_SHAPE_ERRORS as error:
        reason = f"cannot be read as {_FORMATS[file_format or 'table']}"
        if not relative_path:
            raise BadInput(f"{file} {reason}") from error
        return [Remark(relative_path, reason)]


def _refuse_wrong_value(item: Item) -> Item:
    """Return the item, or a remark instead of a score that is not a number from 0 to 1."""
    if not isinstance(item, Score):
        return item
    value = item.value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return item
    return Remark(item.task, f"a score must be a number from 0 to 1; got {value!r:.40}")


def _read_table(path: Path) -> Iterator[Item]:
    """Yield the scores of a table, and a remark about columns that are not known.

    Raises BadInput if the table lacks the column model, task or score.
    """
    unread_columns: dict[str, None] = {}
    for place, row in read_rows(path):
        missing_columns = {"model", "task", "score"} - set(row)
        if missing_columns:
            raise BadInput(
                f"{path} lacks the column {', '.join(sorted(missing_columns))}; it has {', '.join(row)[:300]}"
            )
        shots = next((row[name] for name in _SHOTS_COLUMNS if row.get(name) not in (None, "")), None)
        task = row["task"]
        if task not in (None, ""):
            task = _task_name(str(task), row.get("metric"), row.get("filter"), shots)
        unread_columns |= dict.fromkeys(
            name for name in row if name not in (*SCORES, *_SHOTS_COLUMNS, "metric", "filter")
        )
        yield Score(row["model"], row.get("revision"), task, row["score"], row.get("n"), place)
    if unread_columns:
        yield Remark(f"columns {listed([name or '(without a name)' for name in unread_columns])}", "not known")


def _read_harness(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lm-evaluation-harness.

    Its `results` hold metrics such as `acc,none` for each task and each group of tasks.
    """
    config = content.get("config") or {}
    arguments = _parse_arguments(config.get("model_args"))
    model = arguments.get("pretrained") or arguments.get("model") or content.get("model_name")
    samples = content.get("n-samples") or {}
    chat = "chat template" if content.get("chat_template") else None
    for task, values in content["results"].items():
        numbers = {
            name: value
            for name, value in values.items()
            if "_stderr" not in name and name not in ("alias", "name", "sample_len", "samples", " ")
        }
        chosen = yield from _choose_metric(task, numbers, metric)
        if chosen:
            name, _, filter_name = chosen.partition(",")
            label = _task_name(task, name, filter_name, _find_shots(content, config, task), chat)
            n = (samples.get(task) or {}).get("effective") or None
            yield Score(_add_arguments(model, arguments), arguments.get("revision"), label, numbers[chosen], n)


def _parse_arguments(model_args: object) -> dict[str, Any]:
    """Parse `model_args` of lm-evaluation-harness, an object or a text such as `pretrained=a/b,dtype=float16`."""
    if isinstance(model_args, Mapping):
        return dict(model_args)
    arguments: dict[str, Any] = {}
    key = ""
    for part in str(model_args or "").split(","):
        name, equals, value = part.partition("=")
        if equals:
            key = name.strip()
            arguments[key] = value.strip()
        elif key:
            arguments[key] += f",{part}"  # the value holds a comma
    return arguments


def _find_shots(content: Mapping[str, Any], config: Mapping[str, Any], task: str) -> object:
    """Return the number of shots of a task. For a group of tasks, return the number that all its tasks share.

    Return None if the number is unknown, or if the tasks of the group differ in it.
    """
    members = content.get("group_subtasks") or {}
    waiting = [task]
    visited: dict[str, None] = {}
    numbers = set()
    while waiting:
        name = waiting.pop()
        shots = (content.get("n-shot") or {}).get(name)
        if shots is None:
            shots = ((content.get("configs") or {}).get(name) or {}).get("num_fewshot")
        if shots is None and members.get(name):
            visited[name] = None
            waiting += [member for member in members[name] if member not in visited]
        else:
            numbers.add(config.get("num_fewshot") if shots is None else shots)
    return numbers.pop() if len(numbers) == 1 else None


def _read_lighteval(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lighteval. The keys of its `results` are `suite|task|shots` or `task|shots`."""
    general = content["config_general"]
    model_config = general.get("model_config")
    if not isinstance(model_config, Mapping):
        model_config = {}
    arguments = {name: model_config.get(name) for name in _OTHER_WEIGHTS}
    dtype = str(model_config.get("dtype") or general.get("model_dtype"))
    if "bit" in dtype:  # 4bit, 8bit
        arguments["quantised"] = dtype
    model = general.get("model_name") or model_config.get("model_name")
    tasks = content.get("config_tasks") or {}
    for key, numbers in content["results"].items():
        parts = key.split("|")
        if len(parts) < 2:
            yield Remark(key, "an average over the tasks of the file")
            continue
        shots_index = 2 if len(parts) == 4 else -1  # older versions write suite|task|shots|truncation
        name = "|".join(parts[:shots_index])
        if not name.strip("|") or not parts[shots_index].isdecimal():
            yield Remark(key, "not the name of a task and its number of shots")
            continue
        chosen = yield from _choose_metric(name, numbers, metric)
        if chosen:
            n = (tasks.get(key) or tasks.get(name) or {}).get("effective_num_docs") or None
            label = _task_name(name, chosen, "", parts[shots_index])
            yield Score(_add_arguments(model, arguments), model_config.get("revision"), label, numbers[chosen], n)


def _read_inspect(file: Path, content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a log of inspect_ai. A log holds the scores of one model in one task.

    The log counts each sample once per epoch, so its count is divided by the number of epochs.
    """
    if content.get("status") not in (None, "success"):
        yield Remark(file.name, f"a log with the status {str(content['status'])[:40]}")
        return
    evaluation = content["eval"]
    results = content["results"]
    epochs = (evaluation.get("config") or {}).get("epochs") or 1
    samples = results.get("completed_samples") or results.get("total_samples")
    n = None if samples is None else math.ceil(samples / epochs)
    arguments = evaluation.get("model_args") or {}
    model = _inspected_model(evaluation["model"], arguments)
    passed = evaluation.get("task_args_passed", evaluation.get("task_args")) or {}
    settings = [f"{name}={_setting_text(value)}" for name, value in sorted(passed.items())]
    scorers = [score["name"] for score in results["scores"]]
    for score in results["scores"]:
        parts = [str(evaluation["task"]).rpartition("/")[2]]
        if len(scorers) > 1:
            parts.append(score["name"])
        if scorers.count(score["name"]) > 1 and score.get("reducer"):  # the reducer combines the epochs of a sample
            parts.append(score["reducer"])
        numbers = {name: entry["value"] for name, entry in score["metrics"].items()}
        task = "/".join(parts)
        chosen = yield from _choose_metric(task, numbers, metric)
        if chosen:
            label = _task_name(task, chosen, "", None, *settings)
            yield Score(_add_arguments(model, arguments), arguments.get("revision"), label, numbers[chosen], n)


def _inspected_model(model: object, arguments: Mapping[str, Any]) -> object:
    """Return the id or path of a model in a log of inspect_ai. Return None for a local model without a path."""
    if arguments.get("model_path"):  # inspect_ai loads this path and ignores the name
        return arguments["model_path"]
    if not isinstance(model, str):
        return model
    for provider in _PROVIDER_PREFIXES:
        model = model.removeprefix(provider)
    return None if model == "local" else model


def _read_hub(path: Path) -> Iterator[Item]:
    """Yield the scores of a YAML file in `.eval_results`. Each entry has the id of a benchmark and a value."""
    for entry in yaml.safe_load(read_small(path, "import")):
        dataset = entry["dataset"]
        value = entry["value"]
        task = str(dataset["id"]).rpartition("/")[2]
        part = dataset.get("task_id")
        if part not in (None, "", "default"):
            task = f"{task}/{part}"
        # The file has no unit. Most benchmarks on the Hub use percentages, others use shares.
        if isinstance(value, (int, float)) and value > 1:
            value = value / 100
        elif value != 0:
            clause = "read as a share from 0 to 1; if the value is a percentage, import it from a table"
            yield Remark(f"{task} = {value}", clause, is_left_out=False)
        yield Score(path.resolve().parent.parent.name, None, task, value, None)


def _choose_metric(task: str, numbers: Mapping[str, object], metric: str) -> Generator[Item, None, str]:
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


def _task_name(task: str, metric: object, filter_name: object, shots: object, *settings: str | None) -> str:
    """Return a task's name with metric, filter and shots, such as `gsm8k (exact_match, strict-match, 5-shot)`."""
    parts = [str(metric or ""), "" if filter_name == "none" else str(filter_name or "")]
    if isinstance(shots, float) and shots.is_integer():
        shots = int(shots)
    if shots is not None:
        parts.append(f"{str(shots).strip()}-shot")
    details = ", ".join(part for part in (*parts, *settings) if part)
    return f"{task} ({details})" if task and details else task  # an empty name is refused later


def _add_arguments(model: object, arguments: Mapping[str, Any]) -> object:
    """Return a model's name with the arguments that change its weights: `acme/alpha-70m+peft=acme/alpha-lora`."""
    if not isinstance(model, str):
        return model
    changes = [
        f"+{name}={_setting_text(value)}"
        for name, value in sorted(arguments.items())
        if name not in _SAME_WEIGHTS
        and not _SECRET_NAME.search(name)
        and not (isinstance(value, str | int | None) and value in _UNSET_VALUES)
    ]
    return "".join([plain_name(model)[0], *changes]) if changes else model


def _setting_text(value: object) -> str:
    """Return a setting as a part of a name. A long setting is replaced by the first 8 characters of its hash."""
    text = str(value) if isinstance(value, str | bool) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= _MAX_SETTING_LENGTH else hashlib.sha256(text.encode()).hexdigest()[:8]
