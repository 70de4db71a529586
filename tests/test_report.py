"""The page: what it shows, how often figures are drawn, and that it needs nothing but itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from plugins.power_law import PowerLaw
from rbptrack.analysis import Drawing, Report, Table
from rbptrack.reporting.files import DrawingProcess, ReportFiles
from rbptrack.reporting.page import InlineFigure, Section, render
from tests.synthetic import family_runs

RUNS = family_runs(np.geomspace(1e4, 1e7, 4), alpha=0.1, a=3.0)


def drawn() -> Figure:
    figure = Figure(layout="constrained")
    figure.subplots().plot([1, 2], [3, 4])
    return figure


def section(report: Report, name: str = "mine", svg: str = "<svg/>") -> Section:
    figures = {n: InlineFigure(svg, drawing.caption) for n, drawing in report.drawings.items()}
    return Section(name, "About it.", "k=1", report, figures)


def test_every_figure_is_drawn_once_per_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []
    original = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda f, path, **o: saved.append(Path(path).suffix) or original(f, path, **o)
    )  # type: ignore[func-returns-value]
    report = Report(drawings={"one": Drawing(drawn())}, tables={"t": Table(pd.DataFrame({"a": [1]}))}, notes=["said"])
    svgs = ReportFiles(report, tmp_path).svgs()
    page = render("title", RUNS, [section(report, svg=svgs["one"])])
    assert saved == [".png", ".svg"]
    assert svgs["one"].startswith("<svg")
    assert svgs["one"] in page
    assert (tmp_path / "tables/t.csv").read_text() == "a\n1\n"


def test_what_the_page_holds() -> None:
    long = pd.DataFrame({"a": range(50)})
    report = Report(
        drawings={"a_figure": Drawing(drawn(), "what it shows")},
        tables={"t": Table(pd.DataFrame({"a": ["<b>"]}), {"a": "meaning of a"}, "what it holds"), "long": Table(long)},
        notes=["shared", *(f"note {i}" for i in range(9))],
        headline="it is so",
    )
    page = render(
        "<title>",
        RUNS,
        [section(report), section(Report(notes=["shared"]), name="other")],
        facts=[("command", "python -m rbptrack report a<b")],
        silent=[("quiet", "too few sizes")],
    )
    assert "<h1>&lt;title&gt;</h1>" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert page.count("shared") == 1, "what several analyzers say of the measurements stands once, above"
    assert "<b>It is so.</b>" in page
    assert "4 more sentences" not in page
    assert "3 more sentences" in page
    assert re.search(r"<details><summary><b>long</b>, 50 rows</summary>", page)
    assert "<code>a</code>: meaning of a" in page
    assert "a figure</b>. what it shows" in page
    assert '<p class="caption">what it holds</p>' in page
    assert "quiet: too few sizes" in page
    assert "python -m rbptrack report a&lt;b" in page
    assert 'href="#other"' in page
    assert "numpy " in page, "versions"
    assert all(f in page for f in RUNS.frame["fingerprint"])


def test_a_page_needs_no_network(tmp_path: Path) -> None:
    report = PowerLaw(ks=[1]).analyze(RUNS)
    figures = {name: InlineFigure(svg, "") for name, svg in ReportFiles(report, tmp_path).svgs().items()}
    page = render("t", RUNS, [Section("power_law", "", "", report, figures)])
    assert not re.search(r'(src|href)="https?:', page)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page), "only references inside the page"


class Odd(Figure):
    """A class that no other process can load."""

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("no_such_name",)


def test_figures_are_drawn_in_a_second_process_and_here_where_that_fails(tmp_path: Path) -> None:
    odd = Odd()
    odd.subplots().plot([1, 2], [3, 4])
    report = Report(drawings={"plain": Drawing(drawn()), "odd": Drawing(odd), "local": Drawing(drawn())})
    report.drawings["local"].figure.axes[0].xaxis.set_major_formatter(lambda value, _: f"{value}")  # does not pickle
    with DrawingProcess() as drawer:
        found = ReportFiles(report, tmp_path / "there", drawer=drawer).svgs()
    here = ReportFiles(Report(drawings={"plain": Drawing(drawn())}), tmp_path / "here").svgs()
    assert found["plain"] == here["plain"], "byte for byte"
    assert set(found) == {"plain", "odd", "local"}
    assert len(list((tmp_path / "there/figures").iterdir())) == 6
