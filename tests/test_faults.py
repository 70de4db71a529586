"""An analyzer with a fault of its own: two lines that name its file and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rbptrack
from rbptrack.analysis.discovery import ANALYZERS, discover
from rbptrack.analysis.testing import example_runs
from rbptrack.reporting.computing import AnalyzerFault, computed
from tests.synthetic import plugin

SECRET = "a secret of the environment"


def mine(folder: Path, body: str) -> Any:
    plugin(folder, body=body)
    return discover(ANALYZERS).select("mine")()


@pytest.mark.parametrize(
    ("body", "words", "remedy"),
    [
        ("return frame", "returned a DataFrame; a Report is expected", "return Report(tables={'name': Table(frame)})"),
        ("pass", "returned nothing", "return Report("),
        ("return Report(tables={'t': frame})", "tables['t'] is a DataFrame", "Report(tables={'t': Table(frame)})"),
        ("return Report(drawings={'d': 1})", "drawings['d'] is a int", "Drawing(figure)"),
        ("return Report(summary='t')", "summary names no table: 't'", "Tables: none"),
        ("return Report(metrics={'m': 'high'})", "metrics['m'] is a str", "a number is expected"),
        ("return Report(metrics={'': 1.0})", "metrics have the name ''", "a name is a text"),
        ("return Report(notes='two')", "notes are no texts", "notes=['...'] is expected"),
        ("return Report(overview=['t'])", "overview names no table or drawing: 't'", "It has: none"),
        ("return Report(tables={'t': Table([1])})", "tables['t'] holds a list", "a DataFrame"),
        ("return Report(tables={'t': Table(pd.DataFrame({1: [2]}))})", "has columns [1]", "each once"),
        ("return Report(tables={'t': Table(frame[['ce']], {'b': ''})})", "that it has not: 'b'", "Columns: ce"),
        ("return Report(tables={'t': Table(pd.DataFrame({'a': ['canary-token']}))})", SECRET, "leave it out"),
        ("return Report(findings=[Finding(question='q', case={'a': 'canary-token'})])", SECRET, "leave it out"),
        ("raise SystemExit(0)", "SystemExit: 0", "HYDRA_FULL_ERROR=1"),
        ("frame['datset']", "no column datset. Did you mean dataset?", "Columns: run_id, family"),
        ("frame[['model', 'rpb_1']]", "no column rpb_1. Did you mean rbp_1", "Columns: run_id"),
        ("frame[['datset']]", "no column datset. Did you mean dataset?", "Columns: run_id"),
        ("frame.groupby('familly')", "no column familly. Did you mean family?", "Columns: run_id"),
        ("frame.sort_values('rbp_77')", "RBP_77 was not logged", "runs.histogram(run_id).rbp(77)"),
        ("frame.datset", "no column datset. Did you mean dataset?", "Columns: run_id"),
        ("return 1 / 0", "ZeroDivisionError: division by zero", "HYDRA_FULL_ERROR=1"),
        ("return {}['a key of its own']", "KeyError: 'a key of its own'", "HYDRA_FULL_ERROR=1"),
    ],
)
def test_faults(body: str, words: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "canary-token")
    with pytest.raises(AnalyzerFault) as fault:
        computed(mine(tmp_path, body), example_runs())
    first, second = str(fault.value).splitlines()
    promise = body.startswith(("return Report", "return frame", "pass"))  # broken by what it returns, in no line
    assert first.startswith("plugins/mine.py: " if promise else "plugins/mine.py, line 16: ")
    assert words in first
    assert remedy in second


def test_prose_is_written_without_secrets_and_what_an_analyzer_changes_no_other_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "canary-token")
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    runs = example_runs()
    before = runs.frame.copy()
    one = mine(tmp_path, "frame['ce'] = 0.0; return Report(notes=['of canary-token'])")
    assert "Loaded local plugins: plugins/mine.py" in capsys.readouterr().err
    assert computed(one, runs).notes == ["of ***"]
    assert runs.frame.equals(before)
    discover(ANALYZERS).load()
    assert capsys.readouterr().err == ""  # said once


def test_in_python_it_is_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plugin(tmp_path, body="return frame")
    with pytest.raises(AnalyzerFault, match="a Report is expected"):
        rbptrack.analyze(example_runs(), "mine")
