"""The kept scores and answers of examples/proxies: whose they are, and that tasks and answers share no file."""

from __future__ import annotations

import json

from rbptrack.config.ladders import names
from tests.conftest import ROOT
from tests.imported import scores_in
from tools.completions import functions_of, in_task, models

FOLDER = ROOT / "examples/proxies"


def test_every_embedded_model_has_both_scores() -> None:
    table = scores_in(FOLDER / "completions.csv")
    measured = {(name, revision) for name, revision, _ in models()}
    assert set(zip(table["model"], table["revision"], strict=True)) == measured
    assert table.groupby(["model", "revision"])["task"].nunique().eq(2).all()
    ladder = {f"nano-checkpoints-{size}": size for size in ("6k", "15k", "38k", "115k")}
    known = {f"nano-checkpoints/{ladder[model]}-{step}" for model, step in measured if model in ladder}
    assert known == {name for name in names() if name.startswith("nano-checkpoints/")}


def test_answers_come_from_other_files_than_tasks() -> None:
    rows = [json.loads(line) for line in (FOLDER / "functions.jsonl").read_text().splitlines()]
    assert len(rows) == 148
    assert not any(in_task(row["id"].rpartition(":")[0]) for row in rows)


def test_a_function_is_cut_after_its_docstring() -> None:
    text = 'class A:\n    def f(self):\n        """Say it."""\n        x = 1\n        return x\n'
    assert list(functions_of(text)) == [('def f(self):\n    """Say it."""\n', "    x = 1\n    return x\n")]
