"""Import scores of tasks from tables, lm-evaluation-harness, lighteval and inspect_ai."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Generator, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from rbptrack.analysis import (
    SCORES,
    TABLE_SUFFIXES,
    BadInput,
    Imported,
    ImportedScore,
    Importer,
    ImportNote,
    MissingKey,
    column_names,
    listed,
    load_json,
    names_a_secret,
    plain_name,
    read_pairs,
    read_rows,
    shortened_list,
)

# The metrics that are used if the user names none, in order of preference.
_METRICS = (
    "acc_norm", "acc", "accuracy", "exact_match", "extractive_match", "em", "pass@1", "pass_at_1", "mean", "f1",
    "value",
)  # fmt: skip
_FORMATS = {
    "table": "a table",
    "harness": "a file of lm-evaluation-harness",
    "lighteval": "a file of lighteval",
    "inspect": "a log of inspect_ai",
}
# A table may use any of these names for the column with the number of shots.
_SHOTS_COLUMNS = ("shots", "num_fewshot", "n-shot", "n_shot")
_TABLE_COLUMNS = (*SCORES, *_SHOTS_COLUMNS, "metric", "filter", "unit", "seed")
# inspect_ai writes one of these before a model's id.
_PROVIDER_PREFIXES = ("hf/", "vllm/", "sglang/", "transformer_lens/", "nnterp/")
# lm-evaluation-harness names the model by one of these arguments.
_MODEL_ARGUMENTS = ("pretrained", "model", "path", "model_id", "engine", "load")
_UNVERSIONED = (None, "", "N/A", "Yaml")  # what lm-evaluation-harness writes for a task without a version
_UNSET: tuple[object, ...] = (None, {}, [])
_MAX_SETTING_LENGTH = 80  # characters; a longer setting is replaced by a hash
_MAX_TASK_LENGTH = 200  # characters; the end of a longer name is replaced by a hash


class Names(Enum):
    """What a setting of an evaluation program names."""

    MODEL = "the model"
    TASK = "the task"
    NOTHING = "nothing"


class Setting(NamedTuple):
    """A setting of an evaluation program: what it names, and the reason.

    If the setting has one of the values in `usual`, it is left out of the name.
    """

    names: Names
    reason: str
    usual: tuple[object, ...] = ()


_REASONS: tuple[tuple[Names, str, str], ...] = (
    (Names.MODEL, "adds an adapter, a difference or a direction to the weights",
     "adapter_weights base_model delta delta_weights lora_local_path lora_path peft steer_path"),
    (Names.MODEL, "stores the weights with fewer bits",
     "autogptq bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant gptqmodel load_in_4bit "
     "load_in_8bit quantised quantization quantization_config torchao_config"),
    (Names.MODEL, "selects another file or checkpoint of the weights",
     "ckpt_step gguf_file load_format subfolder"),
    (Names.MODEL, "changes the architecture",
     "hf_overrides json_model_override_args model_loading_kwargs rope_scaling rope_theta"),
    (Names.TASK, "selects the questions",
     "limit sample_id sample_shuffle samples"),
    (Names.TASK, "is another version of the questions or of their scoring",
     "version"),
    (Names.TASK, "selects the examples in the prompt, or the random numbers",
     "fewshot_seed num_fewshot_seeds numpy_seed random_seed seed torch_seed"),
    (Names.TASK, "changes the prompt",
     "add_bos_token add_special_tokens apply_chat_template assistant_prefill chat_template chat_template_args "
     "custom_prefix_token_id description_dict enable_thinking fewshot_as_multiturn "
     "multichoice_continuations_start_space override_chat_template pairwise_tokenization prefix_token_id "
     "system_instruction system_message system_prompt truncate truncate_prompt truncation truncation_side "
     "use_chat_template"),
    (Names.TASK, "changes what the model sees of images and sounds",
     "convert_img_format image_height image_max_side image_string image_token_id image_width interleave max_audios "
     "max_images max_pixels min_pixels modalities"),
    (Names.TASK, "changes how the answer is generated, or where it ends",
     "best_of block_size do_sample early_stopping effort eos_string extra_body fallback_models frequency_penalty "
     "gen_kwargs generate_params generation_size internal_tools kv_cache_dtype length_penalty logit_bias "
     "max_beam_width max_gen_toks max_new_tokens max_output_len max_tokens max_tokens_to_sample max_tool_output "
     "min_new_tokens min_p num_blocks num_choices parallel_tool_calls presence_penalty reasoning_effort "
     "reasoning_history reasoning_mode reasoning_summary reasoning_tokens repetition_penalty response_format "
     "response_schema stop_seqs stop_tokens temperature think_end_token top_k top_p verbosity"),
    (Names.TASK, "changes what an agent may do, or how its answers are scored",
     "approval cost_limit epochs epochs_reducer fail_on_refusal message_limit review sandbox score_on_error "
     "scorer_options sentinel solver time_limit token_limit token_limit_type turn_limit working_limit"),
    (Names.NOTHING, "is the name or the commit of the model, which stands in the name in another way",
     "deployment_id engine load model model_dtype model_id model_name model_num_parameters model_path model_revision "
     "model_sha path pretrained revision"),
    (Names.NOTHING, "says where the tokenizer is; each model has its own",
     "merge_file processor skip_tokenizer_init tokenizer tokenizer_backend tokenizer_call_args tokenizer_mode "
     "tokenizer_model tokenizer_path tokenizer_revision tokenizer_type use_fast use_fast_image_processor "
     "use_fast_tokenizer vocab_file"),
    (Names.NOTHING, "places the model on devices",
     "accelerator backend data_parallel_size device device_map device_map_option devices "
     "distributed_executor_backend dp_size execution_provider expert_model_parallel_size expert_parallel_size gpus "
     "model_parallel nccl_port num_nodes parallelize pipeline_model_parallel_size pipeline_parallel_size pp_size "
     "provider_options tensor_model_parallel_size tensor_parallel_size tp_degree tp_plan tp_size use_accelerate"),
    (Names.NOTHING, "changes memory or speed, not the answers",
     "batch_size batch_sizes cache_dir cache_implementation chunked_prefill_size compile continuous_batching "
     "cpu_offload_gb cuda_graph_max_bs disable_cuda_graph disable_custom_all_reduce disable_radix_cache "
     "enable_chunked_prefill enable_prefix_caching enforce_eager gpu_memory_utilization is_async logits_cache "
     "low_cpu_mem_usage max_batch_size max_cpu_memory max_lora_rank max_memory_per_gpu max_num_batched_tokens "
     "max_num_seqs mem_fraction_static micro_batch_size offload_folder swap_space use_cache"),
    (Names.NOTHING, "changes the rounding of the arithmetic",
     "attention_backend attn_implementation dtype flash_attention mixed_precision_dtype precision sampling_backend "
     "softmax_dtype torch_dtype use_flash_attention_2"),
    (Names.NOTHING, "is the longest prompt that the program accepts",
     "context_length max_input_len max_length max_model_len max_model_length seq_length"),
    (Names.NOTHING, "is about the server or the network",
     "adaptive_connections api_key api_max_retry api_retry_multiplier api_retry_sleep api_version attempt_timeout "
     "auth_token base_url batch ca_cert_path cache cache_prompt concurrent_requests endpoint_name endpoint_type "
     "env_vars extra_headers framework header headers hf_token image_url inference_server_address "
     "inference_server_auth instance_size instance_type max_concurrent max_connections max_retries namespace "
     "num_concurrent org_to_bill parallel_calls_count provider proxies region reuse_existing stream_idle_timeout "
     "timeout token use_auth_token vendor verify_certificate"),
    (Names.NOTHING, "is about what the program writes down, or how it continues after an error",
     "bootstrap_iters continue_on_fail delta_sha disable_log_stats fail_on_error hidden_states is_hf log_buffer "
     "log_images log_level log_model_api log_realtime log_samples log_shared logprobs max_dataset_memory max_samples "
     "max_sandboxes max_subprocesses max_tasks model_info no_cache notification peft_sha prompt_logprobs "
     "retry_on_error sandbox_cleanup sandbox_prebuilt score_display skip_special_tokens tokenized_requests "
     "top_logprobs trust_remote_code verbose write_out"),
)  # fmt: skip
_USUAL_VALUES: Mapping[str, tuple[object, ...]] = {
    "add_special_tokens": (True,),  # lighteval writes its defaults
    "fewshot_seed": (1234,),  # lm-evaluation-harness writes its defaults
    "kv_cache_dtype": ("auto",),
    "load_format": ("auto", "safetensors", "pt", "npcache"),
    "num_fewshot_seeds": (0, 1),
    "numpy_seed": (1234,),
    "pairwise_tokenization": (False,),
    "random_seed": (0, 1234),
    "score_on_error": (False,),
    "seed": (1234,),
    "token_limit_type": ("all",),
    "torch_seed": (1234,),
    "truncate": (False,),
    "truncation": (False,),
}
SETTINGS: Mapping[str, Setting] = {
    name: Setting(names, reason, _USUAL_VALUES.get(name, ()))
    for names, reason, settings in _REASONS
    for name in settings.split()
}
"""The known settings of evaluation programs, by name. A setting that is not among them names the task."""


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


class _WrongShapeError(Exception):
    """A file does not have the structure of its format. The text names the key."""


class Scores(Importer):
    """Scores of tasks: a table, or files of lm-evaluation-harness, lighteval and inspect_ai.

    - A table has a row for each model and task, with the columns model, task and score. It may also have the columns
      revision, seed (of training), n, unit, metric, filter and shots, and columns for settings such as limit.
    - A JSON file with `results` is read as one of lm-evaluation-harness. If it also has `config_general`, it is read as
      one of lighteval.
    - A JSON file with `eval` is read as a log of inspect_ai. `inspect log convert --to json` converts an .eval file.

    All such files in a folder are read. Metric, filter, number of shots, and settings that change the prompt, the
    questions or the answers (`limit`, `system_instruction`) become part of a task's name. Settings that change a
    model's weights (`peft=`, `load_in_4bit=`) become part of the model's name.
    """

    names: str = ""
    """a CSV with the columns name (a model's name in the scores) and model (its name in the store)"""

    model: str = ""
    """name of the model, if the file does not name it. All scores must belong to this model"""

    metric: str = ""
    """the metric to use if a task has several, optionally with a filter, such as exact_match,flexible-extract. By
    default the first of acc_norm, acc, accuracy, exact_match, ..., with its first filter
    """

    unit: str = ""
    """the unit of scores that are not shares from 0 to 1: percent, or a name such as points"""

    def takes(self, path: Path) -> bool:
        return path.suffix.lower() == ".eval" or any(_recognise(file)[0] for file in _list_files(path))

    def read(self, path: Path) -> Iterator[Imported]:
        names = read_pairs(self.names, "name", "model", option="names")
        if path.suffix.lower() == ".eval":
            raise BadInput(f"{path} is a log of inspect_ai: convert it with `inspect log convert --to json` first")
        subjects_by_remark: dict[tuple[str, bool], dict[str, None]] = {}  # the key is (clause, is_left_out)
        models: dict[str, None] = {}
        unknown_settings: dict[str, None] = {}
        for file in _list_files(path):
            relative_path = file.relative_to(path).as_posix() if path.is_dir() else ""
            for item in _read_items(file, relative_path, self.metric, self.unit):
                if isinstance(item, Remark):
                    subjects_by_remark.setdefault(item[1:], {})[item.subject] = None
                    continue
                if item.model is None and not self.model:
                    raise BadInput(f"{file} does not name the model of its scores: give model=NAME")
                model, task, unknown = _names(item)
                unknown_settings |= dict.fromkeys(unknown)
                models[str(model)] = None
                columns: dict[str, object] = {"model": self.model or names.get(str(model), model)}
                columns |= {"revision": item.revision, "task": task}
                columns |= {"score": item.value, "n": item.n, "unit": item.unit or self.unit}
                location = item.place or f"{str(model)[:60]} in {task[:60]}"
                yield ImportedScore(columns, f"{relative_path}, {location}" if relative_path else location)
        if self.model and len(models) > 1:
            raise BadInput(
                f"{path}: model={self.model} names one model, but the scores are of {shortened_list(list(models))}. "
                "Leave out model="
            )
        for (clause, is_left_out), subjects in subjects_by_remark.items():
            yield ImportNote(f"{'left out: ' if is_left_out else ''}{shortened_list(list(subjects))}: {clause}")
        if unknown_settings:
            yield ImportNote(
                f"{shortened_list(list(unknown_settings))}: rbptrack does not know these settings. They became a part "
                "of the names of the tasks, because they may change the scores"
            )
        variants = [model for model in models if "+" in model and model not in names]
        if variants and not self.model:
            yield ImportNote(
                f"{shortened_list(variants)}: settings change the weights, so each of these counts as a separate "
                "model. names=FILE maps their names to names in the store"
            )


def _list_files(path: Path) -> list[Path]:
    """Return the file, or everything in the folder that is neither hidden nor a folder, also links to missing files."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if not file.is_dir() and not file.name.startswith("."))


def _recognise(file: Path) -> tuple[str, Any]:
    """Return the format of a file with scores, a key of `_FORMATS`, and the content of a JSON file.

    The format is empty if it is not known.
    """
    suffix = file.suffix.lower()
    content = None
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
    return "", content


def _read_items(file: Path, relative_path: str, metric: str, unit: str) -> list[Item]:
    """Return the scores of a file and remarks about it.

    `relative_path` is the file's path in the folder that is imported. It is empty if only this file is imported. In
    this case, BadInput is raised if the file cannot be read. BadInput is also raised if a table lacks a column.
    """
    file_format, content = _recognise(file)
    if not file_format and relative_path:
        return [Remark(relative_path, "not a file of scores")]
    if not file_format and isinstance(content, dict):
        raise MissingKey(
            f"{file} lacks the key results (lm-evaluation-harness, lighteval) or eval (inspect_ai); it has "
            f"{shortened_list(list(content)) or 'no key'}"
        )
    if file_format in ("", "table"):  # for an unknown format, this raises an error that names the columns
        return list(_read_table(file))
    try:
        if file_format == "inspect":
            items = list(_read_inspect(file, content, metric))
        elif file_format == "lighteval":
            items = list(_read_lighteval(content, metric))
        else:
            items = list(_read_harness(content, metric))
    except (_WrongShapeError, RecursionError) as error:
        reason = f"cannot be read as {_FORMATS[file_format]}: {error}"
        if not relative_path:
            raise BadInput(f"{file} {reason}") from error
        return [Remark(relative_path, reason)]
    return [_refuse_wrong_value(item, unit) for item in items]


def _refuse_wrong_value(item: Item, unit: str) -> Item:
    """Return the item, or a remark instead of a score that is not a finite number, or not a share without a unit."""
    if not isinstance(item, Score):
        return item
    value = item.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= 1 or ((item.unit or unit) and abs(value) < 1e300):
            return item
    rule = "a score must be a number from 0 to 1"
    if not unit:
        rule += ", or the option unit must say its unit"
    shown = f"{value!r:.40}" if isinstance(value, str | int | float | None) else "an object or a list"
    return Remark(item.task, f"{rule}; got {shown}")


def _read_table(path: Path) -> Iterator[Item]:
    """Yield the scores of a table, and a remark about columns that are not known.

    Raises BadInput if the table lacks the column model, task or score.
    """
    unread_columns: dict[str, None] = {}
    for place, row in read_rows(path):
        missing_columns = {"model", "task", "score"} - set(row)
        if missing_columns:
            raise MissingKey(
                f"{path} lacks the column {', '.join(sorted(missing_columns))}; it has {', '.join(row)[:300]}"
            )
        shots = next((row[name] for name in _SHOTS_COLUMNS if row.get(name) not in (None, "")), None)
        model = row["model"]
        if isinstance(model, str) and _plain_value(row.get("seed")) not in (None, 0):
            model = f"{model}-seed{row['seed']}"
        unread_columns |= dict.fromkeys(name for name in row if name not in (*_TABLE_COLUMNS, *SETTINGS))
        yield Score(
            model,
            row.get("revision"),
            "" if row["task"] is None else str(row["task"]),
            row["score"],
            row.get("n"),
            _details(row.get("metric"), row.get("filter"), shots),
            settings={name: value for name, value in row.items() if name in SETTINGS and name not in _TABLE_COLUMNS},
            unit=row.get("unit") or "",
            place=place,
        )
    if unread_columns:
        yield Remark(f"columns {listed([name or '(without a name)' for name in unread_columns])}", "not known")


def _read_harness(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lm-evaluation-harness.

    Its `results` hold metrics such as `acc,none` for each task and each group of tasks.
    """
    config = _object(content, "config", optional=True)
    arguments = _parse_arguments(config.get("model_args"))
    model = next((arguments[name] for name in _MODEL_ARGUMENTS if arguments.get(name)), content.get("model_name"))
    settings = {name: value for name, value in config.items() if name not in ("model_args", "num_fewshot", "limit")}
    generation = {name: _plain_value(value) for name, value in _parse_arguments(config.get("gen_kwargs")).items()}
    settings |= arguments | {"gen_kwargs": generation, "system_instruction": content.get("system_instruction")}
    chat_template_args = _parse_json(arguments.get("chat_template_args"))
    if isinstance(chat_template_args, Mapping):
        settings |= {"chat_template_args": None, **chat_template_args}
    versions = _object(content, "versions", optional=True)
    samples = _object(content, "n-samples", optional=True)
    for task, values in _object(content, "results").items():
        if not isinstance(values, Mapping):
            raise _WrongShapeError(f"results.{task[:60]} must be an object")
        numbers = {
            name: value
            for name, value in values.items()
            if "_stderr" not in name and name not in ("alias", "name", "sample_len", "samples", " ")
        }
        chosen = yield from _choose_metric(task, numbers, metric)
        if not chosen:
            continue
        name, _, filter_name = chosen.partition(",")
        shots = _find_shots(content, config, task)
        chat = "chat template" if content.get("chat_template") else ""
        conditions = _limit(
            config.get("limit"), [_object(samples, leaf, optional=True) for leaf in _leaves(content, task)]
        )
        if chat and _plain_value(shots) != 0:
            conditions["fewshot_as_multiturn"] = content.get("fewshot_as_multiturn")
        yield Score(
            model,
            arguments.get("revision"),
            task,
            numbers[chosen],
            _object(samples, task, optional=True).get("effective") or None,
            (*_details(name, filter_name, shots), chat, _version(versions.get(task))),
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
    members = _object(content, "group_subtasks", optional=True)
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
    numbers_by_task = _object(content, "n-shot", optional=True)
    configs = _object(content, "configs", optional=True)
    numbers = []
    for name in [task] if task in numbers_by_task else _leaves(content, task):
        shots = numbers_by_task.get(name)
        if shots is None:
            shots = _object(configs, name, optional=True).get("num_fewshot")
        numbers.append(config.get("num_fewshot") if shots is None else shots)
    return numbers[0] if numbers and all(number == numbers[0] for number in numbers) else None


def _limit(limit: object, counts: list[Mapping[str, Any]]) -> dict[str, object]:
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


def _read_lighteval(content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a file of lighteval. The keys of its `results` are `suite|task|shots` or `task|shots`."""
    general = _object(content, "config_general")
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
    tasks = _object(content, "config_tasks", optional=True)
    versions = _object(content, "versions", optional=True)
    for key, numbers in _object(content, "results").items():
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
            raise _WrongShapeError(f"results.{key[:60]} must be an object")
        chosen = yield from _choose_metric(name, numbers, metric)
        if not chosen:
            continue
        task = _object(tasks, key, optional=True) or _object(tasks, name, optional=True)
        n = task.get("effective_num_docs") or None
        yield Score(
            model,
            model_config.get("revision"),
            name,
            numbers[chosen],
            n,
            (*_details(chosen, "", parts[shots_index]), _version(versions.get(key, versions.get(name)))),
            _limit(general.get("max_samples"), [{"effective": n, "original": task.get("original_num_docs")}]),
            settings,
        )


def _read_inspect(file: Path, content: Mapping[str, Any], metric: str) -> Iterator[Item]:
    """Yield the scores of a log of inspect_ai. A log holds the scores of one model in one task.

    The log counts each sample once per epoch, so its count is divided by the number of epochs.
    """
    if content.get("status") not in (None, "success"):
        yield Remark(file.name, f"a log with the status {str(content['status'])[:40]}")
        return
    evaluation = _object(content, "eval")
    results = _object(content, "results")
    config = dict(_object(evaluation, "config", optional=True))
    epochs = config.pop("epochs", None) or 1
    config.pop("epochs_reducer", None)  # each score names its own reducer
    arguments = _object(evaluation, "model_args", optional=True)
    settings = arguments | config
    plan = _object(content, "plan", optional=True)
    for generation in (
        _object(plan, "config", optional=True),
        _object(evaluation, "model_generate_config", optional=True),
    ):
        settings |= {name: value for name, value in generation.items() if value is not None}
    conditions = _inspected_limit(settings.pop("limit", None), evaluation) | _inspected_solver(evaluation, plan)
    conditions |= {"model_roles": evaluation.get("model_roles")}
    passed = evaluation.get("task_args_passed", evaluation.get("task_args"))
    conditions |= passed if isinstance(passed, Mapping) else {}
    samples = results.get("completed_samples") or results.get("total_samples")
    if not isinstance(epochs, int) or not isinstance(samples, int | None) or "task" not in evaluation:
        raise _WrongShapeError(
            "eval.task, and whole numbers in eval.config.epochs and results.total_samples are needed"
        )
    scores = [_inspected_score(score) for score in _list(results, "scores")]
    for score in scores:
        task = str(evaluation["task"]).rpartition("/")[2]
        if len({score["name"] for score in scores}) > 1:
            task += f"/{score['name']}"
        numbers = {name: entry.get("value") for name, entry in score["metrics"].items() if isinstance(entry, Mapping)}
        chosen = yield from _choose_metric(task, numbers, metric)
        if not chosen:
            continue
        repeated = {"epochs": epochs, "reducer": score.get("reducer") or "mean"} if epochs > 1 else {}
        yield Score(
            _inspected_model(evaluation.get("model"), arguments),
            arguments.get("revision"),
            task,
            numbers[chosen],
            None if samples is None else -(-samples // epochs),  # rounded up
            (chosen, _version(evaluation.get("task_version") or None)),  # 0 is the version of a task without one
            conditions | repeated,
            settings | {"scorer_options": score.get("params")},
        )


def _inspected_score(score: object) -> Mapping[str, Any]:
    """Check that an entry of results.scores in a log of inspect_ai has a name and metrics, and return it."""
    if not isinstance(score, Mapping) or not isinstance(score.get("name"), str):
        raise _WrongShapeError("results.scores must be a list of objects with the key name")
    _object(score, "metrics")
    return score


def _inspected_limit(limit: object, evaluation: Mapping[str, Any]) -> dict[str, object]:
    """Return the condition that only a part of the samples was used, in a log of inspect_ai."""
    samples = _object(evaluation, "dataset", optional=True).get("samples")
    if isinstance(limit, list) and len(limit) == 2 and limit[0] == 0:
        limit = limit[1]
    if isinstance(limit, int) and isinstance(samples, int) and limit >= samples:
        return {}
    return {"limit": limit}


def _inspected_solver(evaluation: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, object]:
    """Return the solver of a log of inspect_ai and its arguments. The solver `generate` alone is the usual one."""
    steps = plan.get("steps")
    if isinstance(steps, list) and steps and all(isinstance(step, Mapping) for step in steps):
        solvers = [str(step.get("solver")).rpartition("/")[2] for step in steps]
        arguments = [step.get("params_passed", step.get("params")) or {} for step in steps]
        if solvers == ["generate"] and not arguments[0]:
            return {}
        return {"solver": " > ".join(solvers), "solver_args": arguments if any(arguments) else None}
    return {"solver": evaluation.get("solver"), "solver_args": evaluation.get("solver_args")}


def _inspected_model(model: object, arguments: Mapping[str, Any]) -> object:
    """Return the id or path of a model in a log of inspect_ai. Return None for a local model without a path."""
    if arguments.get("model_path"):  # inspect_ai loads this path and ignores the name
        return arguments["model_path"]
    if not isinstance(model, str):
        return model
    for provider in _PROVIDER_PREFIXES:
        model = model.removeprefix(provider)
    return None if model == "local" else model


def _object(content: Mapping[str, Any], key: str, *, optional: bool = False) -> dict[str, Any]:
    """Return the object under a key of a file. Raises _WrongShapeError if it is missing or another value.

    If `optional` is true, the object may be missing or null. An empty object is then returned.
    """
    value = content.get(key)
    if value is None and optional:
        return {}
    if key not in content:
        raise _WrongShapeError(f"it lacks the key {key[:60]}")
    if not isinstance(value, Mapping):
        raise _WrongShapeError(f"{key[:60]} must be an object")
    return dict(value)


def _list(content: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list under a key of a file. Raises _WrongShapeError if it is missing or another value."""
    if key not in content:
        raise _WrongShapeError(f"it lacks the key {key}")
    if not isinstance(content[key], list):
        raise _WrongShapeError(f"{key} must be a list")
    return list(content[key])


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


def _details(metric: object, filter_name: object, shots: object) -> tuple[str, ...]:
    """Return the texts that name a task more precisely: its metric, filter and number of shots."""
    shots = _plain_value(shots)
    return (
        str(metric or ""),
        "" if filter_name in (None, "none") else str(filter_name),
        "" if shots is None else f"{_text(shots)}-shot",
    )


def _version(version: object) -> str:
    """Return the version of a task as a text that names the task; empty if the task has no version."""
    return "" if version in _UNVERSIONED else f"version {version if isinstance(version, str) else _text(version)}"


def _names(score: Score) -> tuple[object, str, list[str]]:
    """Return the names of a score's model and task, and the settings in them that `SETTINGS` does not know.

    For example `acme/alpha-70m+peft=acme/lora` and `gsm8k (exact_match, strict-match, 5-shot, limit=20)`.
    """
    changes = []
    conditions = dict(score.conditions)
    unknown = []
    for name, value in sorted(score.settings.items()):
        setting = SETTINGS.get(name, Setting(Names.TASK, "is not known"))
        value = _plain_value(value)
        if value in setting.usual:
            continue
        if setting.names is Names.MODEL and value:
            changes.append(f"+{name}={_text(value)}")
        elif setting.names is Names.TASK:
            conditions.setdefault(name, value)
            if name not in SETTINGS and value not in _UNSET and not names_a_secret(name):
                unknown.append(name)
    model = score.model
    if isinstance(model, str) and changes:
        model = "".join([plain_name(model)[0], *changes])
    texts = []
    for name, value in sorted(conditions.items()):
        is_secret = name not in SETTINGS and names_a_secret(name)
        if not is_secret and _plain_value(value) not in _UNSET:
            texts.append(f"{name}={_text(value)}")
    details = ", ".join(filter(None, (*score.details, *texts)))
    task = f"{score.task} ({details})" if score.task and details else score.task  # an empty name is refused later
    if len(task) > _MAX_TASK_LENGTH:
        task = f"{task[: _MAX_TASK_LENGTH - 12]}... {_hash(task)}"
    return model, task, unknown


def _plain_value(value: object) -> object:
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
    value = _plain_value(value)
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
