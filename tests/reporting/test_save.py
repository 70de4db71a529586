"""Tests of `save_report`, `save_figures`, `print_report` and `print_summary`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import altair as alt
import pandas as pd
import pytest

from rbptrack.analysis import Report, Runs, Term
from rbptrack.analysis.rank_store import RankTables
from rbptrack.figures import charts
from rbptrack.measurement.record import ReportRecord
from rbptrack.reporting import Analysis, print_report, print_summary, save_figures, save_report
from rbptrack.stats import Estimate


class MemoryStore:
    """Replaces a store. It keeps the arguments of each call of `save`, and numbers the runs from 1."""

    def __init__(self) -> None:
        self.saved: list[dict[str, Any]] = []

    def save(self, kind: str, report: ReportRecord, files: dict[str, str], description: str) -> str:
        self.saved.append({"kind": kind, "report": report, "files": files, "description": description})
        return str(len(self.saved))

    @property
    def reports(self) -> SimpleNamespace:
        return SimpleNamespace(run_address=lambda run_id: "")

    def artifact(self, run_id: str, name: str) -> Path:
        return Path(run_id, name)


@pytest.fixture
def runs() -> Runs:
    """Return a store's runs: one measurement without ranks."""
    row = {"run_id": "a1", "family": "pythia", "model": "pythia-70m", "dataset": "wiki", "non_embedding_params": 100}
    return Runs(pd.DataFrame([row]), RankTables({}))


@pytest.fixture
def analyses() -> list[Analysis]:
    """Return a failed analysis, an analysis with results, and an analysis with only a note.

    The analysis with results leads, and has a figure and two tables. Reports print the leading analysis first.
    """
    report = Report({"alpha": Term("exponent", "α")}, headline="RBP_1 improves with size.")
    report.add("alpha", Estimate(0.25, 1e-4), family="pythia", dataset="wiki", metric="rbp_1", null=0.0, S=1e6)
    report.figures["beta"] = charts.facets(report.frame("alpha"), x="S", y="alpha")
    report.tables["Results"] = pd.DataFrame({"k": [1]})
    report.tables["laws"] = pd.DataFrame({"k": [1, 2], "alpha": [0.25, 1 / 3]})
    only_a_note = Report({}, notes=["Needs checkpoints."])
    failed = Analysis("broken", problem="broken failed: no")
    return [failed, Analysis("power_law", report, leads=True), Analysis("training", only_a_note)]


def test_save_report_returns_the_path_of_the_page(runs: Runs, analyses: list[Analysis]) -> None:
    assert save_report(MemoryStore(), runs, analyses, "<p>", command="rbptrack report") == "1/report.html"


def test_save_report_saves_one_run_with_the_first_results_as_metrics(runs: Runs, analyses: list[Analysis]) -> None:
    store = MemoryStore()
    save_report(store, runs, analyses, "<p>", command="rbptrack report")
    (saved,) = store.saved
    report = saved["report"]
    assert (saved["kind"], report.title) == ("analysis", "report: pythia on wiki")
    assert report.params["families"] == "pythia"
    assert (report.params["smallest_S"], report.params["measurements"]) == ("100", "1")
    assert report.metrics["alpha/pythia/wiki/rbp_1/1e:2b06"] == 0.25  # S = 1e+06 is escaped as 1e:2b06
    assert report.covered_run_ids == ["a1"]


def test_save_report_saves_tables_and_the_page_as_files(runs: Runs, analyses: list[Analysis]) -> None:
    store = MemoryStore()
    save_report(store, runs, analyses, "<p>", command="rbptrack report")
    (saved,) = store.saved
    assert set(saved["files"]) == {"results.csv", "Results-table.csv", "laws.csv", "report.html"}
    assert saved["files"]["report.html"] == "<p>"
    assert saved["files"]["laws.csv"] == "k,alpha\n1,0.25\n2,0.333333\n"


def test_save_report_describes_the_run_by_headline_results_and_command(runs: Runs, analyses: list[Analysis]) -> None:
    store = MemoryStore()
    save_report(store, runs, analyses, "<p>", command="rbptrack report")
    (saved,) = store.saved
    assert saved["description"].startswith("RBP_1 improves with size.\n\n```\n")
    assert "0.250 (0.230 to 0.270)" in saved["description"]
    assert "rbptrack report" in saved["description"]


def test_save_figures_writes_a_file_for_each_figure(tmp_path: Path, analyses: list[Analysis]) -> None:
    (path,), notes = save_figures(analyses, tmp_path / "new", "svg")
    assert notes == []
    assert path == tmp_path / "new" / "power_law-beta.svg"
    assert path.read_text().startswith("<svg")


def test_save_figures_draws_the_other_figures_if_one_cannot_be_drawn(tmp_path: Path, analyses: list[Analysis]) -> None:
    leading = analyses[1].report
    assert leading
    figures = leading.figures
    # This figure cannot be drawn, because `nonsense` is not a type of Altair.
    figures["impossible"] = alt.Chart(alt.InlineData(values=[{"a": 1}])).mark_point().encode(x="a:nonsense")
    figures["last"] = figures["beta"]
    paths, notes = save_figures(analyses, tmp_path / "new", "svg")
    assert [path.name for path in paths] == ["power_law-beta.svg", "power_law-last.svg"]
    assert len(notes) == 1


def test_save_figures_does_not_replace_a_folder_that_has_the_name_of_a_figure(
    analyses: list[Analysis], tmp_path: Path
) -> None:
    (tmp_path / "power_law-beta.svg").mkdir()
    paths, notes = save_figures(analyses, tmp_path, "svg")
    assert paths == []
    assert any("power_law-beta.svg" in note for note in notes)
    assert (tmp_path / "power_law-beta.svg").is_dir()


def test_print_report_shows_headline_table_notes_and_problems(
    analyses: list[Analysis], capsys: pytest.CaptureFixture[str]
) -> None:
    for analysis in analyses:
        print_report(analysis)
    printed = capsys.readouterr()
    assert printed.out.startswith("RBP_1 improves with size.")
    assert "0.250 (0.230 to 0.270)" in printed.out
    assert "Needs checkpoints." in printed.out
    assert "broken failed: no" in printed.err


def test_print_report_shows_results_without_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report({"alpha": Term("exponent", "α")}, headline="One number.")
    report.add("alpha", Estimate(0.25, 1e-4), family="", dataset="wiki", metric="rbp_1")
    print_report(Analysis("all", report))
    assert "0.250 (0.230 to 0.270)" in capsys.readouterr().out


def test_print_summary_begins_with_the_leading_report(
    analyses: list[Analysis], capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(analyses)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "RBP_1 improves with size."
    assert "training" in printed.out.splitlines()[-1]
    assert printed.err.splitlines() == ["rbptrack: broken failed: no"]


def test_print_summary_without_headline_and_results_has_no_empty_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_summary([Analysis("power_law", Report({}, notes=["Needs two sizes."]), leads=True, summary="The law.")])
    (line,) = capsys.readouterr().out.splitlines()
    assert "power_law" in line


def test_print_summary_without_headline_begins_with_the_summary(
    analyses: list[Analysis], capsys: pytest.CaptureFixture[str]
) -> None:
    leading = analyses[1].report
    assert leading
    leading.headline = ""
    print_summary([Analysis("power_law", leading, leads=True, summary="The law in size.")])
    assert capsys.readouterr().out.splitlines()[0] == "The law in size."
