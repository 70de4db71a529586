"""A report's page and a notebook's display show hostile names as text, in every field."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from matplotlib import pyplot

from rbptrack.analysis import Drawing, Report
from rbptrack.analysis.figures import svg
from rbptrack.analysis.shown import ShownReport
from rbptrack.base.errors import MissingArtifact
from rbptrack.base.words import from_spreadsheet
from rbptrack.commands import list_, plan
from rbptrack.exchange import tables
from rbptrack.ranks import VERSION, RankTable
from rbptrack.reporting.files import InlineFigure, inline
from rbptrack.reporting.page import Section, render
from rbptrack.sweep.plan import Plan
from tests.exported import exported
from tests.synthetic import changed, family_runs, ranked

HOSTILE = """<script>alert("x")</script><img src=x onerror='alert(1)'>"""


@pytest.fixture
def report() -> Report:
    figure, axes = pyplot.subplots()
    axes.plot([1, 2], [1, 2], label=HOSTILE)
    axes.set(title=HOSTILE, xlabel=HOSTILE)
    axes.legend()
    made = Report(notes=[HOSTILE], headline=HOSTILE)
    made.add_table(HOSTILE, pd.DataFrame({HOSTILE: [HOSTILE]}), {HOSTILE: HOSTILE}, caption=HOSTILE)
    made.drawings[HOSTILE] = Drawing(figure, HOSTILE)
    pyplot.close(figure)
    return made


def test_the_page_of_a_report(report: Report) -> None:
    whole = family_runs([1e3, 1e4, 1e5], alpha=0.1, a=3.0)
    texts = [name for name, kind in whole.frame.dtypes.items() if kind == "string"]
    frame = whole.frame.assign(**{name: HOSTILE + whole.frame[name].fillna("") for name in texts})
    drawn = {name: InlineFigure(inline(svg(one.figure)), one.caption) for name, one in report.drawings.items()}
    page = render(
        HOSTILE,
        changed(whole, frame),
        [Section(HOSTILE, HOSTILE, HOSTILE, report, drawn)],
        facts=[(HOSTILE, HOSTILE)],
        silent=[(HOSTILE, HOSTILE)],
        run_page="http://host/#/" + HOSTILE,
    )
    assert_text(page)


def test_what_a_notebook_shows(report: Report) -> None:
    shown = ShownReport(tables=report.tables, drawings=report.drawings, notes=report.notes)
    shown.title = HOSTILE
    assert_text(shown._repr_html_())


def assert_text(page: str) -> None:
    """The hostile text is there, and never as a tag."""
    assert page.count("&lt;script&gt;") > 5
    assert 'alert("x")</script' not in page
    assert "<img" not in page


NAMES = [
    "=cmd|'/c calc'!A1",
    "+1+cmd",
    "-2+3",
    "@SUM(A1)",
    "<img src=x onerror=alert(1)>",
    "a|b",
    "**a** `b` [c](javascript:alert(1))",
    'a,b "c"',
    r"\input{/etc/passwd} $x$ 100% #1 & a_b ~ ^",
    "\x1b[31mred\x1b]0;title\x07",
    "[bold]a[/bold]",
    "\u202egnp.exe",
    "two\nlines\tand more",
]
COMMANDING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What commands a terminal, but for the end of a line."""


def of_names() -> pd.DataFrame:
    """A measurement of each hostile name, as family, model and dataset."""
    rows = [
        {"run_id": str(i), "family": name, "size": "1k", "model": name, "dataset": name, "num_tokens": 3, "ce": 2.0}
        for i, name in enumerate(NAMES)
    ]
    return pd.DataFrame(rows).assign(rbp_1=0.5, reference=None)


class Held:
    """A store that holds these measurements."""

    def records(self, run_ids: list[str]) -> dict[str, Any]:
        return {}

    def artifact(self, run_id: str, name: str) -> Path:
        raise MissingArtifact(name)

    def rank_pieces(self, run_id: str, *, version: int = VERSION) -> list[RankTable]:
        return [ranked([1, 2, 3])]


def written(writer: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a writer makes of the measurements."""
    held: Any = Held()
    frame = of_names()
    if writer in ("tokens", "documents"):
        tables.write(held, frame, folder / "t.csv", documents=writer == "documents", tokens=False)
        return (folder / "t.csv").read_text()
    if writer in ("README.md", "measurements.csv"):
        exported(frame, folder / "hub")
        return (folder / "hub" / writer).read_text()
    if writer == "plan":
        return plan._csv([Plan(name, name) for name in NAMES])
    config = list_.ListConfig(format=list_.ListFormat[writer.removeprefix("list ")], columns=["family"])
    list_._write(frame, ["family", "ce"], config, len(NAMES))
    return capsys.readouterr().out


@pytest.mark.parametrize("writer", ["tokens", "documents", "measurements.csv", "plan", "list csv"])
def test_no_cell_of_a_csv_is_a_formula_and_names_come_back(
    writer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.reader(io.StringIO(written(writer, tmp_path, capsys))))
    texts = {cell for row in rows for cell in row}
    assert not [text for text in texts if text[:1] in "=+-@" and text not in ("", "-1", "-1.0")]
    assert set(NAMES) <= set(map(from_spreadsheet, texts))


@pytest.mark.parametrize("writer", ["list markdown", "README.md"])
def test_no_name_is_markup(writer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = written(writer, tmp_path, capsys)
    body = page.split("\n---\n")[-1]
    assert "&lt;img" in body
    assert "<img" not in body
    assert r"\[c\](javascript" in body
    if writer == "list markdown":
        assert all(row.replace(r"\|", "").count("|") == 3 for row in body.splitlines())
    else:
        front = yaml.safe_load(page.split("\n---\n")[0])
        assert all(name in front["pretty_name"] for name in NAMES)


def test_no_name_is_a_command_of_latex(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = written("list latex", tmp_path, capsys).splitlines()
    rows = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert len(rows) == len(NAMES)
    assert any(r"\textbackslash input\{/etc/passwd\} \$x\$ 100\% \#1 \& a\_b" in row for row in rows)
    for row in rows:
        assert row.endswith(r" \\")
        plain = re.sub(
            r"\\(?:textbackslash |textasciitilde |textasciicircum |space |[{}$%#&_])", "", row.removesuffix(r" \\")
        )
        assert plain.count("&") == 1  # between the columns
        assert not re.search(r"[\\{}$%#_~^]", plain)
        assert not COMMANDING.search(plain)


def test_no_name_commands_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = written("list table", tmp_path, capsys)
    assert not COMMANDING.search(printed)
    assert "[bold]a[/bold]" in printed
    assert len(printed.splitlines()) == 1 + len(NAMES) + 1  # the headers, a line for each, how many
