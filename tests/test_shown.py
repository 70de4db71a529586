"""What a notebook asks of measurements and reports: figures that fit a cell, comparisons, parts by name, a bar."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

import rbptrack
from rbptrack.analysis.run_figures import draw_ranks
from rbptrack.analysis.shown import ShownRuns
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput
from rbptrack.console.progress import AnalyzerProgress, CellProgress, SweepProgress
from rbptrack.ranks import RankTable
from rbptrack.stats.power_law import fit_power_law


@pytest.fixture(scope="module")
def runs() -> ShownRuns:
    return ShownRuns.of(example_runs(families={"alpha": 5, "beta": 2}, documents=6, tokens=100))


def test_a_plot_has_a_panel_per_dataset_and_k_and_the_laws_exponents(runs: ShownRuns) -> None:
    figure = runs.plot(k=[1, 7])  # 7 was not logged
    panels = figure.axes
    assert [ax.get_title() for ax in panels] == ["code", "prose", "", ""]
    assert [ax.get_ylabel() for ax in panels] == [f"−ln RBP$_{{{k}}}$" for k in (1, 1, 7, 7)]
    family = runs.filter(family="alpha", dataset="prose").frame
    for ax, k in ((panels[1], 1), (panels[3], 7)):
        y = [-np.log(runs.histogram(run_id).rbp(k)) for run_id in family["run_id"]]
        law = fit_power_law(family["non_embedding_params"].to_numpy(float), y)
        lines = {str(line.get_label()): line for line in ax.lines}
        points = lines[f"alpha, α = {law.alpha:.3f}"]
        assert np.asarray(points.get_ydata()) == pytest.approx(np.array(y))
        assert "beta" in lines  # two sizes: points without a law
    assert len(runs.plot().axes) == 2


def test_what_cannot_be_plotted(runs: ShownRuns) -> None:
    with pytest.raises(BadInput, match="k must be between 1 and 256"):
        runs.plot(k=257)
    with pytest.raises(BadInput, match="give k=10"):
        runs.plot(k=[])
    own = runs.own_copy()
    own.frame["non_embedding_params"] = None
    with pytest.raises(BadInput, match="no measurement has a size S"):
        own.plot()


def test_figures_fit_a_cell(runs: ShownRuns) -> None:
    histogram = runs.histogram(runs[0])
    for figure in (runs.plot(k=10), draw_ranks(histogram, "alpha on code")):
        assert isinstance(figure, Figure)
        html = figure._repr_html_()  # type: ignore[attr-defined]
        root = ElementTree.fromstring(html)
        assert root.tag.endswith("svg")
        assert not {"width", "height"} & root.attrib.keys()
        assert re.search(r"width:100%;max-width:10in;height:auto", root.attrib["style"])
        assert root.attrib["viewBox"].startswith("0 0 720 ")
        assert figure._repr_html_() == html  # type: ignore[attr-defined]
    ranks, hits = draw_ranks(histogram, "alpha on code").axes
    assert ranks.get_title() == "alpha on code"
    assert np.asarray(ranks.lines[0].get_ydata()).sum() == pytest.approx(1)
    assert np.asarray(hits.lines[0].get_ydata())[0] == pytest.approx(histogram.rbp(1))


def test_parts_of_a_report_by_name(runs: ShownRuns) -> None:
    report = rbptrack.analyze(runs, "power_law", ks=[1, 10])
    laws = report["laws"]
    assert laws is report.tables["laws"].frame
    assert report["law_in_size"] is report.drawings["law_in_size"].figure
    assert "max-width" in report._repr_html_()
    with pytest.raises(BadInput, match=r"no table or drawing matches lawz\. Did you mean laws"):
        report["lawz"]


def test_compare_is_the_commands(runs: ShownRuns) -> None:
    a, b = "alpha-100000/code", "alpha-400000/code"
    comparison = runs.compare(a, b, k=10)
    (row,) = comparison.frame[comparison.frame["metric"] == "RBP_10"].to_dict("records")
    assert row["value_A"] == pytest.approx(runs.histogram(a).rbp(10))
    assert row["value_B"] == pytest.approx(runs.histogram(b).rbp(10))


def test_a_rank_table_as_pandas(runs: ShownRuns) -> None:
    table = runs.ranks("alpha-100000/code")
    frame = table.to_pandas()
    assert list(frame.columns) == [*table.table.column_names, "rank"]
    assert (frame["rank"] == frame["greater"] + frame["ties"] + 1).all()
    whole = RankTable(table.table, table.vocab_size, ties_known=False).to_pandas()
    assert {"greater", "ties"}.isdisjoint(whole.columns)
    assert (whole["rank"] == frame["rank"]).all()


class Kernel:
    """A notebook's front end: what is displayed, and every update of it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: SimpleNamespace, display_id: bool) -> Kernel:
        assert display_id
        self.update(html)
        return self

    def update(self, html: SimpleNamespace) -> None:
        self.shown.append(html.data)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    pytest.importorskip("IPython", reason="IPython is not installed: pip install '.[dev]'")
    import IPython.display

    kernel = Kernel()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setattr(IPython.display, "display", kernel.display)
    monkeypatch.setattr("rbptrack.console.notebook._SECONDS", 0.0)
    return kernel


def test_a_notebook_shows_a_bar_that_goes_when_it_is_done(kernel: Kernel) -> None:
    with CellProgress("a <b> / texts", total=100, progress_label="") as progress:
        progress(40)
        assert '<progress value="40" max="100">' in kernel.shown[-1]
        assert "a &lt;b&gt; / texts" in kernel.shown[-1]
        assert "40/100 tokens" in kernel.shown[-1]
    assert kernel.shown[-1] == ""
    with AnalyzerProgress("power_law", 7) as read:
        read()
        assert "power_law <progress" in kernel.shown[-1]
        assert "1/7" in kernel.shown[-1]


def test_a_sweep_in_a_notebook_has_two_bars(kernel: Kernel) -> None:
    with SweepProgress(lambda: [1.0, 1.0]) as sweep:
        for _ in sweep.over([0, 1]):
            with CellProgress("cell", total=10, progress_label="") as progress:
                progress(5)
                assert kernel.shown[-1].count("<progress") == 2
    assert kernel.shown[-1] == ""


def test_the_whole_report_as_a_page(swept: tuple[Path, str], tmp_path: Path) -> None:
    uri = f"sqlite:///{swept[0]}/mlruns/mlflow.db"
    page = rbptrack.report(rbptrack.runs(dataset="stdlib", tracking_uri=uri), analyzers="power_law", tracking_uri=uri)
    assert set(page.headlines) == {"power_law"}
    assert repr(page) == f"power_law: {page.headlines['power_law']}"
    assert "<svg" in page.html
    assert "4 measurements" in page.html
    page.save(str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text() == page.html
    frame = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" style="[^"]*" title="rbptrack report"></iframe>', page._repr_html_()
    )
    assert frame
    assert unescape(frame[1]) == page.html
    with pytest.raises(BadInput, match="no analyzer matches pover_law"):
        rbptrack.report(analyzers=["pover_law"], tracking_uri=uri)
    with pytest.raises(BadInput, match=r"no folder .*nowhere"):
        page.save(str(tmp_path / "nowhere" / "page.html"))
