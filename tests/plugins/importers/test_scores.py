"""Scores of tasks as evaluation programs write them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from plugins.importers.authors import Authors
from plugins.importers.scores import Scores
from plugins.importers.served import Served
from plugins.importers.table import Table
from rbptrack.base.errors import BadInput
from tests.imported_files import read_checked, write_file

CASES = Path(__file__).parent / "cases"


def scores_of(path: Path, **options: str) -> dict[tuple[str, str], float]:
    """The score of each model in each task."""
    table = read_checked(Scores(**options), path).scores
    return {(row.model, row.task): row.score for row in table.itertuples()}


def harness(model: str, accuracy: float) -> str:
    """What lm-evaluation-harness writes."""
    return json.dumps(
        {
            "results": {
                "arc": {"alias": "arc", "acc,none": accuracy, "acc_stderr,none": 0.01},
                "mmlu": {"acc,none": 0.5},
            },
            "groups": {"mmlu": {"acc,none": 0.5}},
            "n-samples": {"arc": {"original": 2376, "effective": 100}},
            "config": {"model": "hf", "model_args": f"pretrained={model},revision=step1000,dtype=float32"},
        }
    )


def inspect_log(scores: list[dict[str, Any]], *, epochs: int = 1) -> str:
    about = {"task": "org/gsm8k", "model": "hf/org/nano", "config": {"epochs": epochs}}
    results = {"total_samples": 50 * epochs, "completed_samples": 50 * epochs, "scores": scores}
    return json.dumps({"status": "success", "eval": about, "results": results})


def scored(value: object, **more: str) -> dict[str, Any]:
    return {"name": "match", "metrics": {"accuracy": {"value": value}}} | more


def test_a_folder_of_scores_alone_is_read_whole(tmp_path: Path) -> None:
    """Of every format, beside files that are none."""
    write_file(tmp_path / "t.csv", "model,task,score,n\nnano-6k,boolq,0.25,10\n")
    write_file(tmp_path / "run/results_2026.json", harness("EleutherAI/pythia-70m", 0.5))
    write_file(tmp_path / "log.json", inspect_log([scored(0.75)]))
    hub = "- dataset: {id: org/gpqa, task_id: diamond}\n  value: 12.5\n"
    write_file(tmp_path / "org/mine-1b/.eval_results/gpqa.yaml", hub)
    write_file(tmp_path / "config.json", "{}")
    write_file(tmp_path / "notes.csv", "a,b\n1,2\n")
    write_file(tmp_path / "other.yaml", "a: 1\n")
    names = write_file(tmp_path.parent / "names.csv", "name,model\nnano-6k,nano/6k\n")
    source = read_checked(Scores(names=str(names)), tmp_path)
    assert any(all(name in note for name in ("config.json", "notes.csv", "other.yaml")) for note in source.notes)
    table = source.scores.set_index("task")
    assert {(model, task): score for task, model, score in table[["model", "score"]].itertuples()} == {
        ("nano/6k", "boolq"): 0.25,
        ("EleutherAI/pythia-70m", "arc (acc)"): 0.5,
        ("EleutherAI/pythia-70m", "mmlu (acc)"): 0.5,
        ("org/nano", "gsm8k (accuracy)"): 0.75,
        ("mine-1b", "gpqa/diamond"): 0.125,
    }
    assert table.loc["arc (acc)", "revision"] == "step1000"
    assert table["n"].dropna().to_dict() == {"boolq": 10, "arc (acc)": 100, "gsm8k (accuracy)": 50}


def test_tables_of_scores_and_of_measurements_are_told_apart(tmp_path: Path) -> None:
    paths = {
        Scores: write_file(tmp_path / "s.csv", "model,task,score\na,b,0.5\n"),
        Table: write_file(tmp_path / "t.csv", "model,dataset,ce\na,b,0.5\n"),
        Served: write_file(tmp_path / "a.jsonl", '{"prompt_logprobs": []}\n'),
    }
    rows = write_file(tmp_path / "t.jsonl", '{"model": "a", "dataset": "b", "ce": 0.5}\n')
    for importer in (Table(), Scores(), Served(), Authors()):
        for kind, path in paths.items():
            assert importer.takes(path) == (type(importer) is kind)
        assert importer.takes(rows) == (type(importer) is Table)


def test_reducers_of_a_scorer_are_tasks_of_their_own_and_epochs_no_samples(tmp_path: Path) -> None:
    text = inspect_log([scored(0.25, reducer="mean"), scored(0.5, reducer="max")], epochs=4)
    table = read_checked(Scores(), write_file(tmp_path / "log.json", text)).scores
    assert dict(zip(table["task"], table["score"], strict=True)) == {
        "gsm8k/match/mean (accuracy)": 0.25,
        "gsm8k/match/max (accuracy)": 0.5,
    }
    assert table["n"].tolist() == [50, 50]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model,task,score\na,b,\n", "row 1, score: .*missing"),
        ("model,task,score\na,b,1.5\n", "row 1, score: .*at most 1"),
        ("model,task,score\na,b,0.5\na,b,0.6\n", "row 2: a b: the values of score"),
        ("model,task,score,score\na,b,0.5,0.6\n", "the column score more than once"),
        ("model,task,score\n", "holds nothing to import"),
    ],
)
def test_nonsense_in_a_table_of_scores_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.csv", text)
    with pytest.raises(BadInput, match=rf"s\.csv.*{reason}"):
        read_checked(Scores(), path)


@pytest.mark.parametrize("value", [True, -0.1, 2, [1], "high", None, math.nan, 10**400])
def test_nonsense_in_a_log_is_left_out_and_named(value: object, tmp_path: Path) -> None:
    path = write_file(tmp_path / "log.json", inspect_log([scored(value), scored(0.5) | {"name": "other"}]))
    source = read_checked(Scores(), path)
    assert source.scores["task"].tolist() == ["gsm8k/other (accuracy)"]
    assert any("gsm8k/match" in note for note in source.notes)
    with pytest.raises(BadInput, match=r"nothing to import\n.*gsm8k"):
        read_checked(Scores(), write_file(path, inspect_log([scored(value)])))


@pytest.mark.parametrize("text", ['{"results": []}', '{"results": {"a": 1}}', '{"eval": 1, "results": {}}'])
def test_a_log_of_another_shape_is_refused(text: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "log.json", text)
    with pytest.raises(BadInput, match=r"log\.json holds no scores"):
        read_checked(Scores(), path)


def test_arguments_that_change_the_weights_are_part_of_the_name() -> None:
    task = "arc_easy (acc, 0-shot)"
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
        ({"pretrained": "a/b/", "load_in_8bit": True}, "a/b+load_in_8bit=True", ""),
        ({"model": "served", "base_url": "http://x", "api_key": "hunter2", "tokenizer": "a/b"}, "served", ""),
        ("pretrained=/h/models--a--b/snapshots/0123abcd", "a/b", "0123abcd"),
    ],
)
def test_the_model_is_what_its_arguments_say(arguments: object, model: str, revision: str, tmp_path: Path) -> None:
    content = json.loads(harness("x", 0.5)) | {"config": {"model_args": arguments}}
    table = read_checked(Scores(), write_file(tmp_path / "r.json", json.dumps(content))).scores
    assert set(zip(table["model"], table["revision"], strict=True)) == {(model, revision)}


def test_names_map_a_model_with_its_arguments(tmp_path: Path) -> None:
    names = write_file(tmp_path / "names.csv", "name,model\nacme/alpha-70m+load_in_4bit=True,alpha-4bit\n")
    assert {model for model, _ in scores_of(CASES / "harness_4bit.json", names=str(names))} == {"alpha-4bit"}


def test_the_number_of_shots_is_part_of_a_task() -> None:
    zero = scores_of(CASES / "shots/zero")
    five = scores_of(CASES / "shots/five")
    assert {task for _, task in zero} == {"arc_easy (acc, 0-shot)"}
    assert {task for _, task in five} == {"arc_easy (acc, 5-shot)"}
    assert zero["acme/alpha-410m", "arc_easy (acc, 0-shot)"] == 0.46
    assert five["acme/alpha-410m", "arc_easy (acc, 5-shot)"] == 0.53


@pytest.mark.parametrize(
    ("more", "task"),
    [
        ({"n-shot": {"mmlu_law": 5, "mmlu_art": 5}}, "mmlu (acc, 5-shot)"),
        ({"n-shot": {"mmlu_law": 5, "mmlu_art": 0}}, "mmlu (acc)"),
        ({"configs": {"mmlu_law": {"num_fewshot": 2}, "mmlu_art": {"num_fewshot": 2}}}, "mmlu (acc, 2-shot)"),
        ({"config": {"model_args": "pretrained=a/b", "num_fewshot": 3}}, "mmlu (acc, 3-shot)"),
        ({"n-shot": {"mmlu": 5.0}, "chat_template": "{{ x }}"}, "mmlu (acc, 5-shot, chat template)"),
        ({"group_subtasks": {"mmlu": ["mmlu_law"], "mmlu_law": ["mmlu"]}}, "mmlu (acc)"),
    ],
)
def test_a_groups_own_score_has_the_shots_of_its_tasks(more: dict[str, Any], task: str, tmp_path: Path) -> None:
    names = ("mmlu", "mmlu_law", "mmlu_art")
    content = {"results": {name: {"acc,none": 0.25, "acc_stderr,none": "N/A", "alias": f" - {name}"} for name in names}}
    content |= {"groups": {"mmlu": {"acc,none": 0.25}}, "group_subtasks": {"mmlu": ["mmlu_law", "mmlu_art"]}}
    content |= {"config": {"model_args": "pretrained=a/b"}} | more
    path = write_file(tmp_path / "r.json", json.dumps(content))
    assert scores_of(path)["a/b", task] == 0.25


def test_the_filter_can_be_chosen_and_the_one_that_was_taken_is_said() -> None:
    path = CASES / "harness_filters.json"
    strict = ("acme/alpha-70m", "gsm8k (exact_match, strict-match)")
    flexible = ("acme/alpha-70m", "gsm8k (exact_match, flexible-extract)")
    assert scores_of(path) == scores_of(path, metric="exact_match") == {strict: 0.02}
    assert scores_of(path, metric="exact_match,flexible-extract") == {flexible: 0.31}
    assert any("strict-match" in note and "flexible-extract" in note for note in read_checked(Scores(), path).notes)
    assert read_checked(Scores(metric="exact_match,flexible-extract"), path).notes == []


def test_a_task_without_the_metric_is_named(tmp_path: Path) -> None:
    content = json.loads(harness("a/b", 0.5))
    content["results"]["wikitext"] = {"word_perplexity,none": math.nan, "alias": "wikitext"}
    source = read_checked(Scores(), write_file(tmp_path / "r.json", json.dumps(content)))
    assert set(source.scores["task"]) == {"arc (acc)", "mmlu (acc)"}
    (note,) = source.notes
    assert "wikitext" in note
    assert "word_perplexity" in note


def test_a_local_model_of_inspect_is_named_by_its_path() -> None:
    task = "arc_easy (accuracy)"
    assert scores_of(CASES / "inspect_local_a.json") == {("./ckpt/alpha-70m", task): 0.31}
    assert scores_of(CASES / "inspect_local_b.json") == {("./ckpt/alpha-160m", task): 0.44}


def test_a_local_model_without_a_path_needs_a_name(tmp_path: Path) -> None:
    content = json.loads((CASES / "inspect_local_a.json").read_text())
    content["eval"]["model_args"] = {}
    path = write_file(tmp_path / "log.json", json.dumps(content))
    with pytest.raises(BadInput, match="model=NAME"):
        read_checked(Scores(), path)
    assert scores_of(path, model="mine-70m") == {("mine-70m", "arc_easy (accuracy)"): 0.31}
    with pytest.raises(BadInput, match="one model, but the scores are of acme/alpha-160m, acme/alpha-1b"):
        read_checked(Scores(model="mine"), CASES / "shots/zero")


def test_nan_that_nobody_reads_blocks_nothing() -> None:
    assert scores_of(CASES / "inspect_nan.json") == {("acme/alpha-70m", "arc_easy (accuracy)"): 0.42}


def test_settings_of_a_task_of_inspect_are_part_of_it(tmp_path: Path) -> None:
    content = json.loads((CASES / "inspect_nan.json").read_text())
    content["eval"] |= {"task_args": {"fewshot": 5, "split": "test"}, "task_args_passed": {"fewshot": 5}}
    path = write_file(tmp_path / "log.json", json.dumps(content))
    assert {task for _, task in scores_of(path)} == {"arc_easy (accuracy, fewshot=5)"}
    content["status"] = "error"
    with pytest.raises(BadInput, match="status error"):
        read_checked(Scores(), write_file(path, json.dumps(content)))


def lighteval(results: dict[str, Any], **general: Any) -> str:
    """What lighteval writes."""
    tasks = {"lighteval|gsm8k": {"effective_num_docs": 1319}}
    return json.dumps({"config_general": general, "results": results, "versions": {}, "config_tasks": tasks})


def test_lighteval_names_the_model_and_the_shots(tmp_path: Path) -> None:
    results = {
        "lighteval|gsm8k|5": {"em": 0.25, "em_stderr": 0.01, "maj@8": 0.5},
        "lighteval|gsm8k|0|0": {"em": 0.125},
        "arc:easy|0": {"acc": 0.5, "acc_norm": 0.75},
        "wikitext|0": {"acc": 12.5},
        "all": {"acc": 0.3},
    }
    path = write_file(tmp_path / "results.json", lighteval(results, model_name="acme/alpha-70m", model_dtype=None))
    source = read_checked(Scores(), path)
    assert {row.task: row.score for row in source.scores.itertuples()} == {
        "lighteval|gsm8k (em, 5-shot)": 0.25,
        "lighteval|gsm8k (em, 0-shot)": 0.125,
        "arc:easy (acc_norm, 0-shot)": 0.75,
    }
    assert set(source.scores["model"]) == {"acme/alpha-70m"}
    assert source.scores["n"].dropna().tolist() == [1319, 1319]
    assert any("wikitext" in note for note in source.notes)
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
def test_the_model_of_lighteval(general: dict[str, Any], model: str, revision: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "r.json", lighteval({"arc|0": {"acc": 0.5}}, **general))
    table = read_checked(Scores(), path).scores
    assert table[["model", "revision"]].to_numpy().tolist() == [[model, revision]]


def test_files_of_an_unknown_form_in_a_folder_are_skipped_and_named(tmp_path: Path) -> None:
    write_file(tmp_path / "good.json", harness("a/b", 0.5))
    bad = {
        "list.json": '{"results": []}',
        "cut.json": '{"results": {"a',
        "eval.json": '{"eval": 1}',
        "s.jsonl": '{"a": 1}',
    }
    for name, text in (bad | {"README.md": "# x", "log.eval": "PK"}).items():
        write_file(tmp_path / name, text)
    source = read_checked(Scores(), tmp_path)
    assert len(source.scores) == 2
    for name in (*bad, "README.md", "log.eval"):
        assert any(name in note for note in source.notes)


def test_a_table_may_say_metric_filter_and_shots(tmp_path: Path) -> None:
    rows = ("a;arc;acc;none;0;0.25;1", "a;arc;acc;none;5;0.5;1", "a;boolq;;;;0.75;1")
    text = "\n".join(["Model;Task;Metric;Filter;num_fewshot;Score;Seed", *rows])
    source = read_checked(Scores(), write_file(tmp_path / "t.csv", text))
    assert {row.task: row.score for row in source.scores.itertuples()} == {
        "arc (acc, 0-shot)": 0.25,
        "arc (acc, 5-shot)": 0.5,
        "boolq": 0.75,
    }
    (note,) = source.notes
    assert "seed" in note
