"""Tests of the importer `scores`, which reads scores of tasks from the files of evaluation programs and from tables."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from plugins.importers.authors import Authors
from plugins.importers.scores import Scores
from plugins.importers.scores.settings import SETTINGS, Names
from plugins.importers.served import Served
from plugins.importers.table import Table
from rbptrack.analysis import Importer
from rbptrack.base.errors import BadInput
from tests.imported_files import read_checked, write_file

CASES = Path(__file__).parent / "cases"


def scores_of(path: Path, **options: str) -> dict[tuple[str, str], float]:
    """Return the scores that the importer reads, by model and task."""
    table = read_checked(Scores(**options), path).scores
    return {(row.model, row.task): row.score for row in table.itertuples()}


def harness_results(model: str, accuracy: float) -> str:
    """Return a file of lm-evaluation-harness: arc with this accuracy, and the group mmlu with 0.5."""
    return json.dumps(
        {
            "results": {
                "arc": {"alias": "arc", "acc,none": accuracy, "acc_stderr,none": 0.01},
                "mmlu": {"acc,none": 0.5},
            },
            "groups": {"mmlu": {"acc,none": 0.5}},
            "n-samples": {"arc": {"original": 100, "effective": 100}},
            "config": {"model": "hf", "model_args": f"pretrained={model},revision=step1000,dtype=float32"},
        }
    )


def inspect_log(scores: list[dict[str, Any]], *, epochs: int = 1) -> str:
    """Return a log of inspect_ai: scores in gsm8k of 50 samples."""
    evaluation = {"task": "org/gsm8k", "model": "hf/org/nano", "config": {"epochs": epochs}}
    results = {"total_samples": 50 * epochs, "completed_samples": 50 * epochs, "scores": scores}
    return json.dumps({"status": "success", "eval": evaluation, "results": results})


def inspect_score(accuracy: object, **fields: str) -> dict[str, Any]:
    """Return the entry of a log of inspect_ai with the scorer `match`. `fields` are further fields."""
    return {"name": "match", "metrics": {"accuracy": {"value": accuracy}}} | fields


def test_scores_reads_all_formats_of_a_folder_and_notes_other_files(tmp_path: Path) -> None:
    write_file(tmp_path / "t.csv", "model,task,score,n\nnano-6k,boolq,0.25,10\n")
    write_file(tmp_path / "run/results_2026.json", harness_results("EleutherAI/pythia-70m", 0.5))
    write_file(tmp_path / "log.json", inspect_log([inspect_score(0.75)]))
    write_file(tmp_path / "config.json", "{}")
    write_file(tmp_path / "notes.csv", "a,b\n1,2\n")
    write_file(tmp_path / "other.yaml", "a: 1\n")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "absent.json").symlink_to(tmp_path / "nowhere")
    names = write_file(tmp_path.parent / "names.csv", "name,model\nnano-6k,nano/6k\n")
    source = read_checked(Scores(names=str(names)), tmp_path)
    assert any("config.json" in note and "notes.csv" in note and "other.yaml" in note for note in source.notes)
    assert any("pipe.json" in note and "absent.json" in note for note in source.notes)
    table = source.scores.set_index("task")
    assert {(model, task): score for task, model, score in table[["model", "score"]].itertuples()} == {
        ("nano/6k", "boolq"): 0.25,
        ("EleutherAI/pythia-70m", "arc (acc)"): 0.5,
        ("EleutherAI/pythia-70m", "mmlu (acc)"): 0.5,
        ("org/nano", "gsm8k (accuracy)"): 0.75,
    }
    assert table.loc["arc (acc)", "revision"] == "step1000"
    assert table["n"].dropna().to_dict() == {"boolq": 10, "arc (acc)": 100, "gsm8k (accuracy)": 50}


@pytest.mark.parametrize(
    ("name", "text", "taker"),
    [
        ("s.csv", "model,task,score\na,b,0.5\n", Scores),
        ("t.csv", "model,dataset,ce\na,b,0.5\n", Table),
        ("a.jsonl", '{"prompt_logprobs": []}\n', Served),
        ("t.jsonl", '{"model": "a", "dataset": "b", "ce": 0.5}\n', Table),
    ],
)
def test_one_importer_takes_each_kind_of_file(name: str, text: str, taker: type[Importer], tmp_path: Path) -> None:
    path = write_file(tmp_path / name, text)
    importers = (Table(), Scores(), Served(), Authors())
    assert [type(importer) for importer in importers if importer.takes(path)] == [taker]


def test_scores_reads_reducers_of_inspect_as_tasks_and_does_not_count_epochs(tmp_path: Path) -> None:
    text = inspect_log([inspect_score(0.25, reducer="mean"), inspect_score(0.5, reducer="max")], epochs=4)
    table = read_checked(Scores(), write_file(tmp_path / "log.json", text)).scores
    assert dict(zip(table["task"], table["score"], strict=True)) == {
        "gsm8k (accuracy, epochs=4, reducer=mean)": 0.25,
        "gsm8k (accuracy, epochs=4, reducer=max)": 0.5,
    }
    assert table["n"].tolist() == [50, 50]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model,task,score\na,b,\n", "row 1, score: .*missing"),
        ("model,task,score\na,b,1.5\n", r"row 1, score: .* 1\b.*unit.*; got .?1\.5"),
        ("model,task,score\na,b,0.5\na,b,0.6\n", "row 2: a b: .*score"),
        ("model,task,score,score\na,b,0.5,0.6\n", r"column score\b"),
        ("model,task,score\n", "nothing"),
    ],
)
def test_scores_names_fault_of_table(text: str, fault: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.csv", text)
    with pytest.raises(BadInput, match=rf"s\.csv.*{fault}"):
        read_checked(Scores(), path)


WRONG_ACCURACIES = [True, -0.1, 2, [1], "high", None, math.nan, 10**400]


@pytest.mark.parametrize("accuracy", WRONG_ACCURACIES)
def test_scores_leaves_out_wrong_accuracy_of_inspect_and_names_its_task(accuracy: object, tmp_path: Path) -> None:
    log = inspect_log([inspect_score(accuracy), inspect_score(0.5) | {"name": "other"}])
    source = read_checked(Scores(), write_file(tmp_path / "log.json", log))
    assert source.scores["task"].tolist() == ["gsm8k/other (accuracy)"]
    assert any("gsm8k/match" in note for note in source.notes)


@pytest.mark.parametrize("accuracy", WRONG_ACCURACIES)
def test_scores_refuses_log_with_wrong_accuracy_alone(accuracy: object, tmp_path: Path) -> None:
    path = write_file(tmp_path / "log.json", inspect_log([inspect_score(accuracy)]))
    with pytest.raises(BadInput, match=r"\n.*gsm8k"):
        read_checked(Scores(), path)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"results": []}', "results"),
        ('{"results": {"a": 1}}', r"results\.a"),
        ('{"results": {}, "config": []}', "config"),
        ('{"results": {"a": {"acc": 1}}, "n-samples": {"a": 3}}', r"\ba\b"),
        ('{"eval": 1, "results": {}}', "eval"),
        ('{"eval": {}}', "results"),
        ('{"eval": {"task": "t"}, "results": {}}', "scores"),
        ('{"eval": {"task": "t"}, "results": {"scores": [{"name": "x"}]}}', "metrics"),
        ('{"eval": {}, "results": {"scores": []}}', "task"),
        ('{"results": {}, "config_general": 3}', "config_general"),
    ],
)
def test_scores_names_the_wrong_or_missing_key_of_json(text: str, key: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "log.json", text)
    with pytest.raises(BadInput, match=rf"log\.json.*{key}"):
        read_checked(Scores(), path)


@pytest.mark.parametrize(
    ("row", "score", "task"),
    [
        ("60,percent", 0.6, "b"),
        ("60,%", 0.6, "b"),
        ("0.6,", 0.6, "b"),
        ("1250,Elo", 1250, "b (elo)"),
        ("-3,points", -3, "b (points)"),
    ],
)
def test_scores_of_table_with_unit(row: str, score: float, task: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.csv", f"model,task,score,unit\na,b,{row}\n")
    assert scores_of(path) == {("a", task): pytest.approx(score)}


def test_option_unit_converts_percentages_of_harness(tmp_path: Path) -> None:
    text = harness_run(results={"arc": {"acc,none": 62.5}})
    path = write_file(tmp_path / "r.json", text)
    with pytest.raises(BadInput, match="unit"):
        scores_of(path)
    assert list(scores_of(path, unit="percent").values()) == [0.625]


def test_columns_of_table_that_are_settings_become_conditions(tmp_path: Path) -> None:
    text = "model,task,score,limit,peft,dtype,seed\na,b,0.5,20,nan,float16,3\na,b,0.6,,x/lora,NA,0\n"
    assert scores_of(write_file(tmp_path / "s.csv", text)) == {
        ("a-seed3", "b (limit=20)"): 0.5,
        ("a+peft=x/lora", "b"): 0.6,
    }


def test_seeds_of_a_table_are_whole_numbers_in_names_whatever_their_type(tmp_path: Path) -> None:
    table = pd.DataFrame({"model": ["a", "b"], "task": "t", "score": 0.5, "seed": [1.0, None]})
    table.to_parquet(tmp_path / "s.parquet")
    assert set(scores_of(tmp_path / "s.parquet")) == {("a-seed1", "t"), ("b", "t")}
    table.assign(seed=[" 1", ""]).to_csv(tmp_path / "s.csv", index=False)
    assert set(scores_of(tmp_path / "s.csv")) == {("a-seed1", "t"), ("b", "t")}


def test_scores_of_harness_adds_adapter_and_quantisation_to_name_of_model() -> None:
    task = "arc_easy (acc, 0-shot, version 1)"
    assert scores_of(CASES / "harness_peft.json") == {("acme/alpha-70m+peft=acme/alpha-70m-sft-lora", task): 0.57}
    assert scores_of(CASES / "harness_4bit.json") == {("acme/alpha-70m+load_in_4bit=True", task): 0.57}


@pytest.mark.parametrize(
    ("arguments", "model", "revision"),
    [
        ("pretrained=a/b,dtype=float16,device=cuda:0,load_in_4bit=False,peft=None", "a/b", ""),
        ("pretrained=a/b,trust_remote_code=True,revision=main,load_in_8bit=0", "a/b", ""),
        ("pretrained=a/b,hf_auth=hunter2,password=hunter2,token=hunter2", "a/b", ""),
        ("pretrained=a/b,gguf_file=x.Q4_K_M.gguf,revision=step3", "a/b+gguf_file=x.Q4_K_M.gguf", "step3"),
        ("pretrained=a/b,delta=c/d,subfolder=step5", "a/b+delta=c/d+subfolder=step5", ""),
        ("pretrained=a/b,autogptq=model.safetensors", "a/b+autogptq=model.safetensors", ""),
        ({"pretrained": "a/b", "quantization": "awq", "max_length": 2048}, "a/b+quantization=awq", ""),
        ({"pretrained": "a/b", "ckpt_step": 0, "delta": ""}, "a/b+ckpt_step=0", ""),
        ({"pretrained": "a/b/", "load_in_8bit": True}, "a/b+load_in_8bit=True", ""),
        ({"model": "served", "base_url": "http://x", "api_key": "hunter2", "tokenizer": "a/b"}, "served", ""),
        ("pretrained=/h/models--a--b/snapshots/0123abcd", "a/b", "0123abcd"),
    ],
)
def test_scores_of_harness_reads_model_and_revision_from_model_args(
    arguments: object, model: str, revision: str, tmp_path: Path
) -> None:
    content = json.loads(harness_results("x", 0.5)) | {"config": {"model_args": arguments}}
    table = read_checked(Scores(), write_file(tmp_path / "r.json", json.dumps(content))).scores
    assert set(zip(table["model"], table["revision"], strict=True)) == {(model, revision)}


def harness_run(**changes: Any) -> str:
    """Return a file of lm-evaluation-harness with one task, as version 0.4 writes it.

    A change of a key of `config` or of `n-samples` changes that object, and any other change the file itself.
    """
    arguments = changes.pop("model_args", "pretrained=acme/alpha-70m,dtype=float16")
    samples = {"arc": {"original": 2376, "effective": changes.pop("effective", 2376)}}
    config = {"model": "hf", "model_args": arguments, "limit": None, "batch_size": "8", "gen_kwargs": None}
    config |= {"random_seed": 0, "numpy_seed": 1234, "torch_seed": 1234, "fewshot_seed": 1234, "device": "cuda:0"}
    config |= {name: changes.pop(name) for name in list(changes) if name in config}
    content = {
        "results": {"arc": {"alias": "arc", "acc,none": 0.5, "acc_stderr,none": 0.01}},
        "versions": {"arc": 1.0},
        "n-shot": {"arc": 0},
        "n-samples": samples,
        "config": config,
        "model_name": "acme/alpha-70m",
        "system_instruction": None,
        "chat_template": None,
        "fewshot_as_multiturn": False,
    }
    return json.dumps(content | changes)


CHAT: dict[str, Any] = {"chat_template": "{{ x }}", "n-shot": {"arc": 5}}


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        ({}, "arc (acc, 0-shot, version 1)"),
        ({"limit": 20, "effective": 20}, "arc (acc, 0-shot, version 1, limit=20)"),
        ({"limit": 20.0, "effective": 20}, "arc (acc, 0-shot, version 1, limit=20)"),
        ({"limit": 5000, "effective": 2376}, "arc (acc, 0-shot, version 1)"),
        ({"limit": 0.1, "n-samples": None}, "arc (acc, 0-shot, version 1, limit=0.1)"),
        ({"effective": 2}, "arc (acc, 0-shot, version 1, limit=2 of 2376)"),
        ({"versions": {"arc": 2}}, "arc (acc, 0-shot, version 2)"),
        ({"versions": {"arc": "1.10"}}, "arc (acc, 0-shot, version 1.10)"),
        ({"versions": {"arc": "Yaml"}}, "arc (acc, 0-shot)"),
        ({"versions": None}, "arc (acc, 0-shot)"),
        ({"system_instruction": "Be brief."}, "arc (acc, 0-shot, version 1, system_instruction=Be brief.)"),
        ({"gen_kwargs": {"temperature": 0.5}}, 'arc (acc, 0-shot, version 1, gen_kwargs={"temperature": 0.5})'),
        ({"gen_kwargs": "temperature=0.5"}, 'arc (acc, 0-shot, version 1, gen_kwargs={"temperature": 0.5})'),
        ({"fewshot_seed": 7}, "arc (acc, 0-shot, version 1, fewshot_seed=7)"),
        (CHAT, "arc (acc, 5-shot, chat template, version 1, fewshot_as_multiturn=False)"),
        (
            CHAT | {"fewshot_as_multiturn": True},
            "arc (acc, 5-shot, chat template, version 1, fewshot_as_multiturn=True)",
        ),
        (CHAT | {"n-shot": {"arc": 0}}, "arc (acc, 0-shot, chat template, version 1)"),
    ],
)
def test_scores_of_harness_adds_conditions_to_name_of_task(changes: dict[str, Any], task: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "r.json", harness_run(**changes))
    assert scores_of(path) == {("acme/alpha-70m", task): 0.5}


@pytest.mark.parametrize(
    ("arguments", "conditions"),
    [
        ("dp_size=2,tp_size=4,mem_fraction_static=0.8,context_length=4096,chunked_prefill_size=-1", ""),
        ("use_accelerate=True,device_map_option=sequential,max_memory_per_gpu=40GIB", ""),
        ("enable_thinking=None", ""),
        ("enable_thinking=False", ", enable_thinking=False"),
        ("enable_thinking=True", ", enable_thinking=True"),
        ('chat_template_args={"enable_thinking": false}', ", enable_thinking=False"),
        ("add_bos_token=True,think_end_token=</think>", ", add_bos_token=True, think_end_token=</think>"),
        ("kv_cache_dtype=auto,load_format=safetensors,truncation=False", ""),
        ("kv_cache_dtype=fp8", ", kv_cache_dtype=fp8"),
    ],
)
def test_scores_of_harness_divides_arguments_between_task_and_neither(
    arguments: str, conditions: str, tmp_path: Path
) -> None:
    path = write_file(tmp_path / "r.json", harness_run(model_args=f"pretrained=acme/alpha-70m,{arguments}"))
    assert scores_of(path) == {("acme/alpha-70m", f"arc (acc, 0-shot, version 1{conditions})"): 0.5}
    assert read_checked(Scores(), path).notes == []


def test_scores_of_harness_adds_unknown_argument_to_name_of_task_and_notes_it(tmp_path: Path) -> None:
    arguments = "pretrained=acme/alpha-70m,shiny=3,unset=None,my_token=hf_secret"
    path = write_file(tmp_path / "r.json", harness_run(model_args=arguments))
    assert scores_of(path) == {("acme/alpha-70m", "arc (acc, 0-shot, version 1, shiny=3)"): 0.5}
    (note,) = read_checked(Scores(), path).notes
    assert "shiny" in note
    assert "unset" not in note


def test_long_and_multiline_conditions_become_hashes(tmp_path: Path) -> None:
    tasks = set()
    for instruction in ("a\nb", "a\nc", "x" * 1000, "x" * 1001):
        path = write_file(tmp_path / "r.json", harness_run(system_instruction=instruction))
        ((_, task),) = scores_of(path)
        assert len(task) <= 200
        tasks.add(task)
    assert len(tasks) == 4


def test_names_of_tasks_with_many_conditions_are_short_and_distinct(tmp_path: Path) -> None:
    tasks = set()
    for last in range(3):
        arguments = ",".join(f"unknown_{i}={'v' * 40}" for i in range(10)) + f",z={last}"
        path = write_file(tmp_path / "r.json", harness_run(model_args=f"pretrained=a/b,{arguments}"))
        ((_, task),) = scores_of(path)
        tasks.add(task)
    assert len(tasks) == 3


def test_each_setting_names_one_thing() -> None:
    names = [
        "limit",
        "system_instruction",
        "fewshot_as_multiturn",
        "version",
        "enable_thinking",
        "gen_kwargs",
        "solver",
    ]
    assert {SETTINGS[name].names for name in names} == {Names.TASK}
    names = ["use_accelerate", "dp_size", "tp_size", "mem_fraction_static", "context_length", "chunked_prefill_size"]
    assert {SETTINGS[name].names for name in names} == {Names.NOTHING}


def test_option_names_replaces_name_with_arguments(tmp_path: Path) -> None:
    names = write_file(tmp_path / "names.csv", "name,model\nacme/alpha-70m+load_in_4bit=True,alpha-4bit\n")
    assert {model for model, _ in scores_of(CASES / "harness_4bit.json", names=str(names))} == {"alpha-4bit"}


def test_scores_of_harness_adds_number_of_shots_to_name_of_task() -> None:
    zero = scores_of(CASES / "shots/zero")
    five = scores_of(CASES / "shots/five")
    assert {task for _, task in zero} == {"arc_easy (acc, 0-shot)"}
    assert {task for _, task in five} == {"arc_easy (acc, 5-shot)"}
    assert zero["acme/alpha-410m", "arc_easy (acc, 0-shot)"] == 0.46
    assert five["acme/alpha-410m", "arc_easy (acc, 5-shot)"] == 0.53


@pytest.mark.parametrize(
    ("fields", "task"),
    [
        ({"n-shot": {"mmlu_law": 5, "mmlu_art": 5}}, "mmlu (acc, 5-shot, group of 2 tasks)"),
        ({"n-shot": {"mmlu_law": 5, "mmlu_art": 0}}, "mmlu (acc, group of 2 tasks)"),
        (
            {"configs": {"mmlu_law": {"num_fewshot": 2}, "mmlu_art": {"num_fewshot": 2}}},
            "mmlu (acc, 2-shot, group of 2 tasks)",
        ),
        ({"config": {"model_args": "pretrained=a/b", "num_fewshot": 3}}, "mmlu (acc, 3-shot, group of 2 tasks)"),
        ({"n-shot": {"mmlu": 5.0}, "chat_template": "{{ x }}"}, "mmlu (acc, 5-shot, chat template, group of 2 tasks)"),
        ({"group_subtasks": {"mmlu": ["mmlu_law"], "mmlu_law": ["mmlu"]}}, "mmlu (acc, group of 0 tasks)"),
    ],
)
def test_scores_of_group_in_harness_has_number_of_shots_of_its_tasks(
    fields: dict[str, Any], task: str, tmp_path: Path
) -> None:
    results = {}
    for name in ("mmlu", "mmlu_law", "mmlu_art"):
        results[name] = {"acc,none": 0.25, "acc_stderr,none": "N/A", "alias": f" - {name}"}
    content: dict[str, Any] = {"results": results, "groups": {"mmlu": {"acc,none": 0.25}}}
    content |= {"group_subtasks": {"mmlu": ["mmlu_law", "mmlu_art"]}}
    content |= {"config": {"model_args": "pretrained=a/b"}} | fields
    path = write_file(tmp_path / "r.json", json.dumps(content))
    assert scores_of(path)["a/b", task] == 0.25


@pytest.mark.parametrize("options", [{}, {"metric": "exact_match"}])
def test_scores_of_harness_reads_strict_filter_by_default_and_notes_the_other(options: dict[str, str]) -> None:
    path = CASES / "harness_filters.json"
    assert scores_of(path, **options) == {("acme/alpha-70m", "gsm8k (exact_match, strict-match)"): 0.02}
    notes = read_checked(Scores(**options), path).notes
    assert any("strict-match" in note and "flexible-extract" in note for note in notes)


def test_option_metric_chooses_filter_of_harness() -> None:
    path = CASES / "harness_filters.json"
    options = {"metric": "exact_match,flexible-extract"}
    assert scores_of(path, **options) == {("acme/alpha-70m", "gsm8k (exact_match, flexible-extract)"): 0.31}
    assert read_checked(Scores(**options), path).notes == []


def test_scores_notes_task_of_harness_without_known_metric(tmp_path: Path) -> None:
    content = json.loads(harness_results("a/b", 0.5))
    content["results"]["wikitext"] = {"word_perplexity,none": math.nan, "alias": "wikitext"}
    source = read_checked(Scores(), write_file(tmp_path / "r.json", json.dumps(content)))
    assert set(source.scores["task"]) == {"arc (acc)", "mmlu (acc)"}
    (note,) = source.notes
    assert "wikitext" in note
    assert "word_perplexity" in note


def test_scores_of_inspect_names_local_model_by_its_path() -> None:
    task = "arc_easy (accuracy)"
    assert scores_of(CASES / "inspect_local_a.json") == {("./ckpt/alpha-70m", task): 0.31}
    assert scores_of(CASES / "inspect_local_b.json") == {("./ckpt/alpha-160m", task): 0.44}


def log_of_local_model_without_path(folder: Path) -> Path:
    """Write a log of inspect_ai that does not name the path of its local model."""
    content = json.loads((CASES / "inspect_local_a.json").read_text())
    content["eval"]["model_args"] = {}
    return write_file(folder / "log.json", json.dumps(content))


def test_scores_of_inspect_refuses_local_model_without_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="model=NAME"):
        read_checked(Scores(), log_of_local_model_without_path(tmp_path))


def test_option_model_names_local_model_without_path(tmp_path: Path) -> None:
    path = log_of_local_model_without_path(tmp_path)
    assert scores_of(path, model="mine-70m") == {("mine-70m", "arc_easy (accuracy)"): 0.31}


def test_option_model_is_refused_for_scores_of_several_models() -> None:
    with pytest.raises(BadInput, match="acme/alpha-160m, acme/alpha-1b"):
        read_checked(Scores(model="mine"), CASES / "shots/zero")


def test_scores_of_inspect_ignores_nan_in_metric_that_is_not_imported() -> None:
    assert scores_of(CASES / "inspect_nan.json") == {("acme/alpha-70m", "arc_easy (accuracy)"): 0.42}


def test_scores_of_inspect_adds_arguments_of_task_that_were_passed_to_its_name(tmp_path: Path) -> None:
    content = json.loads((CASES / "inspect_nan.json").read_text())
    content["eval"] |= {"task_args": {"fewshot": 5, "split": "test"}, "task_args_passed": {"fewshot": 5}}
    path = write_file(tmp_path / "log.json", json.dumps(content))
    assert {task for _, task in scores_of(path)} == {"arc_easy (accuracy, fewshot=5)"}


@pytest.mark.parametrize(
    ("evaluation", "plan", "task"),
    [
        ({"config": {"limit": 20}}, {}, "gsm8k (accuracy, limit=20)"),
        ({"config": {"limit": 20}, "dataset": {"samples": 1319}}, {}, "gsm8k (accuracy, limit=20)"),
        ({"config": {"limit": 2000}, "dataset": {"samples": 1319}}, {}, "gsm8k (accuracy)"),
        ({"config": {"limit": [5, 20]}}, {}, "gsm8k (accuracy, limit=[5, 20])"),
        ({"config": {"limit": [0, 20]}}, {}, "gsm8k (accuracy, limit=20)"),
        ({"config": {"max_samples": 4, "log_samples": True, "fail_on_error": False}}, {}, "gsm8k (accuracy)"),
        ({"task_version": 2}, {}, "gsm8k (accuracy, version 2)"),
        ({"model_generate_config": {"temperature": 0.5, "max_retries": 3}}, {}, "gsm8k (accuracy, temperature=0.5)"),
        ({}, {"config": {"system_message": "Hi", "timeout": 9}}, "gsm8k (accuracy, system_message=Hi)"),
        ({}, {"steps": [{"solver": "generate", "params": {}}]}, "gsm8k (accuracy)"),
        (
            {},
            {"steps": [{"solver": "x/chain_of_thought", "params": {}}, {"solver": "generate"}]},
            "gsm8k (accuracy, solver=chain_of_thought > generate)",
        ),
        (
            {"solver": "critique", "solver_args": {"n": 2}},
            {},
            'gsm8k (accuracy, solver=critique, solver_args={"n": 2})',
        ),
        ({"model_args": {"device": "cuda:0", "enable_thinking": False}}, {}, "gsm8k (accuracy, enable_thinking=False)"),
        ({"task_args": {"device": "a"}}, {}, "gsm8k (accuracy, device=a)"),
        (
            {"config": {"limit": 20}, "task_args": {"limit": 9}},
            {},
            "gsm8k (accuracy, limit=20, task_args.limit=9)",
        ),
        (
            {"model_generate_config": {"temperature": 0.5}, "task_args": {"temperature": 1}},
            {},
            "gsm8k (accuracy, task_args.temperature=1, temperature=0.5)",
        ),
    ],
)
def test_scores_of_inspect_adds_conditions_to_name_of_task(
    evaluation: dict[str, Any], plan: dict[str, Any], task: str, tmp_path: Path
) -> None:
    content = json.loads(inspect_log([inspect_score(0.5)]))
    content["eval"] |= evaluation
    path = write_file(tmp_path / "log.json", json.dumps(content | {"plan": plan}))
    assert scores_of(path) == {("org/nano", task): 0.5}


def test_scores_of_inspect_refuses_log_of_failed_evaluation(tmp_path: Path) -> None:
    content = json.loads((CASES / "inspect_nan.json").read_text()) | {"status": "error"}
    with pytest.raises(BadInput, match="status error"):
        read_checked(Scores(), write_file(tmp_path / "log.json", json.dumps(content)))


def lighteval_results(results: dict[str, Any], **general: Any) -> str:
    """Return a file of lighteval. results: the metrics of each task. general: the fields of `config_general`."""
    tasks = {"lighteval|gsm8k": {"effective_num_docs": 1319}}
    return json.dumps({"config_general": general, "results": results, "versions": {}, "config_tasks": tasks})


LIGHTEVAL_RESULTS = {
    "lighteval|gsm8k|5": {"em": 0.25, "em_stderr": 0.01, "maj@8": 0.5},
    "lighteval|gsm8k|0|0": {"em": 0.125},
    "arc:easy|0": {"acc": 0.5, "acc_norm": 0.75},
    "wikitext|0": {"acc": 12.5},
    "all": {"acc": 0.3},
}


def test_scores_of_lighteval_has_model_tasks_with_shots_and_number_of_documents(tmp_path: Path) -> None:
    text = lighteval_results(LIGHTEVAL_RESULTS, model_name="acme/alpha-70m", model_dtype=None)
    source = read_checked(Scores(), write_file(tmp_path / "results.json", text))
    assert {row.task: row.score for row in source.scores.itertuples()} == {
        "lighteval|gsm8k (em, 5-shot)": 0.25,
        "lighteval|gsm8k (em, 0-shot)": 0.125,
        "arc:easy (acc_norm, 0-shot)": 0.75,
    }
    assert set(source.scores["model"]) == {"acme/alpha-70m"}
    assert source.scores["n"].dropna().tolist() == [1319, 1319]
    assert any("wikitext" in note for note in source.notes), "a score above 1 is left out"


def test_scores_of_group_in_lighteval_names_the_number_of_its_tasks(tmp_path: Path) -> None:
    """An average over tasks must be able to leave out the means that the file has in addition to the tasks."""
    results = {"mmlu:law|5": 0.25, "mmlu:art|5": 0.75, "mmlu:art|0": 0.5, "mmlu:_average|5": 0.5, "arc|5": 0.125}
    text = lighteval_results({key: {"acc": value} for key, value in results.items()}, model_name="a/b")
    scores = {task: score for (_, task), score in scores_of(write_file(tmp_path / "r.json", text)).items()}
    assert scores == {
        "mmlu:law (acc, 5-shot)": 0.25,
        "mmlu:art (acc, 5-shot)": 0.75,
        "mmlu:art (acc, 0-shot)": 0.5,
        "mmlu (acc, 5-shot, group of 2 tasks)": 0.5,
        "arc (acc, 5-shot)": 0.125,
    }


@pytest.mark.parametrize(
    ("general", "conditions"),
    [
        ({"max_samples": 10}, ", limit=10"),
        ({"system_prompt": "Hi", "model_config": {"system_prompt": None}}, ", system_prompt=Hi"),
        ({"model_config": {"system_prompt": "Hi", "batch_size": 4, "max_length": 512}}, ", system_prompt=Hi"),
        ({"model_config": {"generation_parameters": {"temperature": 0, "top_p": None}}}, ""),
        ({"model_config": {"generation_parameters": {"temperature": 0.6}}}, ", temperature=0.6"),
        ({"model_config": {"add_special_tokens": True, "pairwise_tokenization": False, "tp_size": 2}}, ""),
        ({"model_config": {"add_special_tokens": False, "shiny": None}}, ", add_special_tokens=False"),
    ],
)
def test_scores_of_lighteval_adds_conditions_to_name_of_task(
    general: dict[str, Any], conditions: str, tmp_path: Path
) -> None:
    text = lighteval_results({"arc|0": {"acc": 0.5}}, model_name="a/b", **general)
    content = json.loads(text) | {"versions": {"arc|0": 2}}
    path = write_file(tmp_path / "r.json", json.dumps(content))
    assert scores_of(path) == {("a/b", f"arc (acc, 0-shot, version 2{conditions})"): 0.5}


def test_option_metric_chooses_metric_of_lighteval(tmp_path: Path) -> None:
    text = lighteval_results(LIGHTEVAL_RESULTS, model_name="acme/alpha-70m", model_dtype=None)
    path = write_file(tmp_path / "results.json", text)
    assert {task for _, task in scores_of(path, metric="maj@8")} == {"lighteval|gsm8k (maj@8, 5-shot)"}


@pytest.mark.parametrize(
    ("general", "model", "revision"),
    [
        ({"model_config": {"model_name": "a/b", "revision": "step5", "dtype": "bfloat16"}}, "a/b", "step5"),
        ({"model_name": "a/b", "model_config": {"dtype": "4bit"}}, "a/b+quantised=4bit", ""),
        ({"model_name": "a/b", "model_config": {"subfolder": "x", "adapter_weights": False}}, "a/b+subfolder=x", ""),
        ({"model_name": "a/b", "model_config": "TransformersModelConfig(...)"}, "a/b", ""),
    ],
)
def test_scores_of_lighteval_reads_model_and_revision_from_config_general(
    general: dict[str, Any], model: str, revision: str, tmp_path: Path
) -> None:
    path = write_file(tmp_path / "r.json", lighteval_results({"arc|0": {"acc": 0.5}}, **general))
    table = read_checked(Scores(), path).scores
    assert table[["model", "revision"]].to_numpy().tolist() == [[model, revision]]


def test_scores_skips_and_notes_unknown_files_of_folder(tmp_path: Path) -> None:
    write_file(tmp_path / "good.json", harness_results("a/b", 0.5))
    unknown_files = {
        "list.json": '{"results": []}',
        "cut.json": '{"results": {"a',
        "eval.json": '{"eval": 1}',
        "s.jsonl": '{"a": 1}',
        "README.md": "# x",
        "log.eval": "PK",
    }
    for name, text in unknown_files.items():
        write_file(tmp_path / name, text)
    source = read_checked(Scores(), tmp_path)
    assert len(source.scores) == 2
    for name in unknown_files:
        assert any(name in note for note in source.notes)


def test_scores_of_table_adds_metric_filter_and_shots_to_name_of_task(tmp_path: Path) -> None:
    rows = ("a;arc;acc;none;0;0.25;1", "a;arc;acc;none;5;0.5;1", "a;boolq;;;;0.75;1")
    text = "\n".join(["Model;Task;Metric;Filter;num_fewshot;Score;Stderr", *rows])
    source = read_checked(Scores(), write_file(tmp_path / "t.csv", text))
    assert {row.task: row.score for row in source.scores.itertuples()} == {
        "arc (acc, 0-shot)": 0.25,
        "arc (acc, 5-shot)": 0.5,
        "boolq": 0.75,
    }
    (note,) = source.notes
    assert "stderr" in note
