"""Scores of tasks as evaluation programs write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugins.importers.authors import Authors
from plugins.importers.scores import Scores
from plugins.importers.served import Served
from plugins.importers.table import Table
from rbptrack.base.errors import BadInput
from tests.made import read_checked, write_file


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
    table = read_checked(Scores(names=str(names)), tmp_path).scores.set_index("task")
    assert table["score"].to_dict() == {"boolq": 0.25, "arc": 0.5, "gsm8k": 0.75, "gpqa/diamond": 0.125}
    assert table["model"].to_dict() == {
        "boolq": "nano/6k", "arc": "EleutherAI/pythia-70m", "gsm8k": "org/nano", "gpqa/diamond": "mine-1b",
    }  # fmt: skip
    assert table.loc["arc", "revision"] == "step1000"
    assert table["n"].dropna().to_dict() == {"boolq": 10, "arc": 100, "gsm8k": 50}


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
    assert dict(zip(table["task"], table["score"], strict=True)) == {"gsm8k/match/mean": 0.25, "gsm8k/match/max": 0.5}
    assert table["n"].tolist() == [50, 50]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model,task,score\na,b,\n", "row 1, score: .*missing"),
        ("model,task,score\na,b,1.5\n", "row 1, score: .*at most 1"),
        ("model,task,score\na,b,0.5\na,b,0.6\n", "row 2: a b: score"),
        ("model,task,score,score\na,b,0.5,0.6\n", "the column score more than once"),
        ("model,task,score\n", "holds nothing to import"),
    ],
)
def test_nonsense_in_a_table_of_scores_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.csv", text)
    with pytest.raises(BadInput, match=rf"s\.csv.*{reason}"):
        read_checked(Scores(), path)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, "org/nano in gsm8k, score: must be a number"),
        (-0.1, "score: .*at least 0"),
        (2, "score: .*at most 1"),
        ([1], "score: .*number"),
        ("high", "score: .*number"),
        (None, "holds nothing to import"),
    ],
)
def test_nonsense_in_a_log_is_refused(value: object, reason: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "log.json", inspect_log([scored(value)]))
    with pytest.raises(BadInput, match=rf"log\.json.*{reason}"):
        read_checked(Scores(), path)


@pytest.mark.parametrize("text", ['{"results": []}', '{"results": {"a": 1}}', '{"eval": 1, "results": {}}'])
def test_a_log_of_another_shape_is_refused(text: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "log.json", text)
    with pytest.raises(BadInput, match=r"log\.json holds no scores"):
        read_checked(Scores(), path)
