"""Tests of `run_analyzers`: an analyzer that fails does not stop the others."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rbptrack.analysis import Analyzer, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.reporting import run_analyzers
from tests.rank_tables import power_law_rank_table

PLUGIN = '''"""A plugin of the tests."""
import os, sys
from rbptrack.analysis import Analyzer, BadInput, Report

class Analyzer_{name}(Analyzer):
    """What {name} does."""

    def analyze(self, runs):
        report = Report({{}})
        {body}
        return report
'''

ANALYZE_BODIES = {
    "fine": 'report.headline = f"{len(runs)} runs, {runs.histogram(runs.frame.name[0]).num_tokens} tokens"',
    "raises": 'raise ValueError("first line\\nsecond line")',
    "leaves": "sys.exit(3)",
    "dies": "os._exit(9)",
    "wrong": 'return {"a": 1}',
    "refuses": 'raise BadInput("needs checkpoints")',
    "list_as_table": 'report.tables["x"] = [1, 2]',
    "unwritable_cell": """report.tables["x"] = __import__("pandas").DataFrame({"a": ["\\ud800"]})""",
    "unpicklable": "report.figures['x'] = lambda: 0",
}
"""Statements of the method `analyze`, by the name of the plugin. All except `fine` make the analyzer fail."""


@pytest.fixture
def runs() -> Runs:
    """One measurement of 4 documents with 10 tokens each."""
    table = power_law_rank_table(1e6, documents=4, tokens=10)
    row = {"run_id": "1", "family": "a", "size": "1m", "model": "a-1m", "dataset": "wiki", "vocab_size": 512}
    return Runs(pd.DataFrame([row]), RankTables({"1": table}))


def write_analyzers(folder: Path, names: list[str]) -> list[Analyzer]:
    """Write a plugin file for each name into a folder, and load the analyzers from there."""
    for name in names:
        (folder / f"{name}.py").write_text(PLUGIN.format(name=name, body=ANALYZE_BODIES[name]))
    plugins = find_plugins(ANALYZERS, [str(folder)])
    return [plugins.load(name)() for name in names]


def test_run_analyzers_returns_the_report_of_an_analyzer_after_others_failed(tmp_path: Path, runs: Runs) -> None:
    names = ["raises", "leaves", "wrong", "refuses", "list_as_table", "unwritable_cell", "fine"]
    analyses = run_analyzers(runs, write_analyzers(tmp_path, names), processes=1)
    assert [analysis.name for analysis in analyses] == names
    fine = analyses[-1]
    assert fine.sentence == "1 runs, 40 tokens"
    assert fine.summary == "What fine does."


@pytest.mark.parametrize(
    ("name", "part_of_problem"),
    [
        ("raises", "raises.py"),
        ("leaves", ""),
        ("wrong", ""),
        ("refuses", "needs checkpoints"),
        ("list_as_table", ""),
        ("unwritable_cell", "UnicodeEncodeError"),
    ],
)
def test_run_analyzers_says_in_one_line_why_an_analyzer_failed(
    name: str, part_of_problem: str, tmp_path: Path, runs: Runs
) -> None:
    (analysis,) = run_analyzers(runs, write_analyzers(tmp_path, [name]), processes=1)
    assert analysis.report is None
    assert analysis.problem.startswith(name)
    assert "\n" not in analysis.problem
    assert part_of_problem in analysis.problem


def test_run_analyzers_in_two_processes_returns_the_other_reports_if_a_process_dies(tmp_path: Path, runs: Runs) -> None:
    analyzers = write_analyzers(tmp_path, ["dies", "fine", "unpicklable"])
    dead, fine, unpicklable = run_analyzers(runs, analyzers, processes=2)
    assert [dead.name, fine.name, unpicklable.name] == ["dies", "fine", "unpicklable"]
    assert fine.sentence == "1 runs, 40 tokens"
    assert "killed" in dead.problem
    assert unpicklable.report is None
