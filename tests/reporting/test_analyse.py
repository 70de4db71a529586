"""Tests of `analyse`: an analyzer that fails does not stop the others."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rbptrack.analysis import Analyzer, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.reporting import Analysis, analyse
from tests.rank_tables import power_law_rank_table

PLUGIN = '''"""A plugin of the tests."""
import os, sys
from rbptrack.analysis import Analyzer, BadInput, Report

class Of{name}(Analyzer):
    """What {name} does."""

    def analyze(self, runs):
        report = Report({{}})
        {body}
        return report
'''

BODIES = {
    "fine": 'report.headline = f"{len(runs)} runs, {runs.histogram(runs.frame.name[0]).num_tokens} tokens"',
    "raises": 'raise ValueError("first line\\nsecond line")',
    "leaves": "sys.exit(3)",
    "dies": "os._exit(9)",
    "wrong": 'return {"a": 1}',
    "refuses": 'raise BadInput("needs checkpoints")',
    "odd_table": 'report.tables["x"] = [1, 2]',
    "unsendable": "report.figures['x'] = lambda: 0",
}


@pytest.fixture
def runs() -> Runs:
    ranks = power_law_rank_table(1e6, documents=4, tokens=10)
    row = {"run_id": "1", "family": "a", "size": "1m", "model": "a-1m", "dataset": "wiki", "vocab_size": 512}
    return Runs(pd.DataFrame([row]), RankTables({"1": ranks}))


def analyzers(folder: Path, names: list[str]) -> list[Analyzer]:
    for name in names:
        (folder / f"{name}.py").write_text(PLUGIN.format(name=name, body=BODIES[name]))
    plugins = find_plugins(ANALYZERS, [str(folder)])
    return [plugins.select(name)() for name in names]


def by_name(analyses: list[Analysis]) -> dict[str, Analysis]:
    return {analysis.name: analysis for analysis in analyses}


def test_analyse_gives_a_failed_analyzer_a_problem_and_runs_the_others(tmp_path: Path, runs: Runs) -> None:
    names = ["raises", "leaves", "wrong", "refuses", "odd_table", "fine"]
    analyses = analyse(runs, analyzers(tmp_path, names), processes=1)
    assert [analysis.name for analysis in analyses] == names
    found = by_name(analyses)
    assert found["fine"].sentence == "1 runs, 40 tokens"
    assert found["fine"].summary == "What fine does."
    for name in names[:-1]:
        assert found[name].report is None
        assert found[name].problem.startswith(name)
        assert "\n" not in found[name].problem
    assert "raises.py" in found["raises"].problem
    assert "needs checkpoints" in found["refuses"].problem


def test_analyse_keeps_other_reports_if_a_process_dies(tmp_path: Path, runs: Runs) -> None:
    analyses = analyse(runs, analyzers(tmp_path, ["dies", "fine", "unsendable"]), processes=2)
    found = by_name(analyses)
    assert list(found) == ["dies", "fine", "unsendable"]
    assert found["fine"].sentence == "1 runs, 40 tokens"
    assert "killed" in found["dies"].problem
    assert found["unsendable"].report is None
