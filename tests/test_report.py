"""The page: what it shows, how often figures are drawn, and that it needs nothing but itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from rbptrack.plugins.power_law import PowerLaw

from rbptrack.analysis import Drawing, Report, Table
from rbptrack.analysis.axes import log_axis
from rbptrack.analysis.figures import draw, grid, svg
from rbptrack.analysis.findings import Finding, Remark, Verdict
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.base.errors import RbptrackError
from rbptrack.reporting import terminal
from rbptrack.reporting.files import InlineFigure, UnknownFormat, inline, read_report, write_report
from rbptrack.reporting.first_page import first_page
from rbptrack.reporting.page import Section, render
from rbptrack.reporting.runner import Findings, _caught
from rbptrack.reporting.telling import tell
from rbptrack.tracking.reader import Reader
from tests.synthetic import family_runs, together

RUNS = family_runs(np.geomspace(1e4, 1e7, 4), alpha=0.1, a=3.0)


def drawn() -> Figure:
    figure = Figure(layout="constrained")
    figure.subplots().plot([1, 2], [3, 4])
    return figure


def section(report: Report, name: str = "mine", svg: str = "<svg/>") -> Section:
    figures = {n: InlineFigure(svg, drawing.caption) for n, drawing in report.drawings.items()}
    return Section(name, "About it.", "k=1", report, figures)


def test_figures_are_svg_and_those_of_the_first_page_png_and_more_on_request(tmp_path: Path) -> None:
    for formats, suffixes in (((), "svg svg png"), (("pdf", "png"), "svg png pdf svg png pdf")):
        figure, axes = grid(2, 3)
        for ax in axes.flat:
            ax.plot([1, 2], [3, 4], label="a curve")
        drawings = {"six": Drawing(figure), "top": Drawing(drawn())}
        write_report(Report(drawings=drawings, overview=["top"]), place := tmp_path / suffixes, formats)
        assert sorted(path.suffix[1:] for path in (place / "figures").iterdir()) == sorted(suffixes.split())
    sizes = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", (place / "figures/six.pdf").read_bytes())
    assert len(sizes) == 6, "a page per panel"
    assert all(float(width) == pytest.approx(3.3 * 72) for width, _ in sizes)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = {
        "number": [0.1, np.nan, np.inf],
        "whole": pd.array([1, None, 3], dtype="Int64"),
        "text": pd.array(["a", None, "</script>"], dtype="string"),
        "flag": [True, False, True],
        "mixed": ["x", None, np.float64(2.5)],
    }
    numbers = {"estimate": 1.5, "low": -1e-9, "high": np.inf, "p": 0.1, "p_corrected": 0.2}
    finding = Finding(question="q", case={"family": "f"}, **numbers, verdict=Verdict.YES)
    table = Table(pd.DataFrame(values), {"number": "meaning"}, "caption", {"whole": "W"}, {"number": ".3g"})
    report = Report(
        tables={"t": table},
        drawings={"one": Drawing(drawn(), "What it shows.")},
        metrics={"a/b": np.float64(2.0)},
        findings=[finding],
        notes=["said", Remark("left out", "few sizes", needed=3)],
        headline="it is so",
        summary="t",
        overview=["one"],
    )
    write_report(report, tmp_path)
    again, figures, findings = read_report(tmp_path)
    pd.testing.assert_frame_equal(again.tables["t"].frame, table.frame)
    for name in ("columns", "caption", "titles", "forms"):
        assert getattr(again.tables["t"], name) == getattr(table, name)
    assert json.dumps(findings) == json.dumps([asdict(finding)]), "NaN are kept, too"
    for name in ("metrics", "leads", "notes", "headline", "summary", "overview"):
        assert getattr(again, name) == getattr(report, name)
    assert isinstance(remark := again.notes[1], Remark)
    assert (remark.reason, remark.values) == ("few sizes", {"needed": 3})
    assert figures["one"].svg.startswith("<svg")
    assert figures["one"].caption == "What it shows."
    assert (tmp_path / "tables/t.csv").read_text().startswith("number,whole,"), "machine names"


def test_titles_do_not_meet_and_numbers_of_k_stand_below_the_line(tmp_path: Path) -> None:
    figure, axes = grid(1, 4)
    for ax in axes.flat:
        ax.set(title="qwen2.5 14b on pile_github, k = 1", ylabel="difference in RBP_10")
    draw(figure, tmp_path / "f")
    assert {ax.get_title() for ax in axes.flat} == {"qwen2.5 14b\non pile_github, k = 1"}
    assert axes[0, 0].get_ylabel() == "difference in RBP$_{10}$"


@pytest.mark.parametrize("panels", [1, 2, 5])
def test_labels_of_a_log_axis_have_room(panels: int) -> None:
    ax = grid(1, panels)[1][0, 0]
    for low, high in ((8e7, 9e9), (1e6, 2e10), (5e3, 3e6)):
        log_axis(ax.xaxis, low=low, high=high)
        labels = [at for at in ax.get_xticks() if low <= at <= high]
        assert 2 <= len(labels) <= 0.5 + ax.get_position().width * 10 / 0.45


_UNSEEN = ("style", "script", "head", "metadata", "title")  # the last: of points, until one is pointed at


class Shown(HTMLParser):
    """The words that a reader sees before anything is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("details", "summary", *_UNSEEN):
            self._open.append("opened" if tag == "details" and "open" in dict(attrs) else tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("details", "summary", *_UNSEEN):
            self._open.pop()

    def handle_data(self, data: str) -> None:
        around = self._open[:-2] if self._open[-1:] == ["summary"] else self._open
        hidden = "details" in around
        if not hidden and not {*_UNSEEN} & set(self._open):
            self.words += data.split()


def unfolded(page: str) -> list[str]:
    """What stands on a page before anything is opened, the letters of figures included."""
    parser = Shown()
    parser.feed(page)
    return parser.words


def test_what_the_page_holds() -> None:
    long = pd.DataFrame({"a": range(500)})
    report = Report(
        drawings={"a_figure": Drawing(drawn(), "What it shows."), "top": Drawing(drawn(), "At the top.")},
        tables={
            "t": Table(pd.DataFrame({"a": ["<b>"]}), {"a": "meaning of a"}, "What it holds."),
            "many": Table(long, titles={"a": "title of a"}),
        },
        notes=[Remark("shared"), *(f"note {i}" for i in range(9))],
        headline="it is so",
        summary="t",
        overview=["top"],
    )
    page = render(
        "sweep <x>",
        RUNS,
        [section(report), section(Report(notes=[Remark("shared"), "Said <first>."]), name="other")],
        facts=[("command", "python -m rbptrack report a<b")],
        silent=[("quiet", "too few sizes")],
        run_page="http://127.0.0.1:5000/#/experiments/1/runs/{}?a=b",
    )
    seen = " ".join(unfolded(page))
    assert "<h1>How well 4 toy models rank the next token on text</h1>" in page
    assert "sweep &lt;x&gt; ·" in page
    assert "The family toy (4 models, S = 10k to 10M) was measured on text (" in seen
    assert seen.index("It is so.") < seen.index("At the top.") < seen.index("Said <first>.")
    assert "<td>&lt;b&gt;</td>" in page
    assert page.count("shared") == 1, "what several analyzers say of the measurements stands once"
    assert "In words: 9 more findings" in page
    for folded in ("note 1", "shared", "What it shows.", "What it holds.", "too few sizes"):
        assert folded not in seen
    assert all(f"<li>note {i}</li>" in page for i in range(9)), "every sentence is there once the section is open"
    assert '<a href="mine/tables/many.csv">many</a> (500 rows)' in page, "tables beside the first are linked"
    assert '<a href="mine/tables/t.csv">t.csv</a>' in page
    assert 'title="meaning of a"' in page
    assert "<b>quiet</b>: too few sizes" in page
    assert "python -m rbptrack report a&lt;b" in page
    assert "numpy " in page, "versions"
    for run_id, model in zip(RUNS.frame["run_id"], RUNS.frame["model"], strict=True):
        assert f'<a href="http://127.0.0.1:5000/#/experiments/1/runs/{run_id}?a=b">{model}</a>' in page


def test_the_first_page_is_made_of_the_leads_of_all_analyzers(capsys: pytest.CaptureFixture[str]) -> None:
    """A row per family and dataset; what another analyzer says of them is a column only where it ran."""
    report = PowerLaw(ks=[1, 10], replicates=50).analyze(RUNS)
    tell(report)
    alone = first_page(report.leads)
    assert alone
    (row,) = alone.rows
    assert (alone.labels, alone.remarks) == (["CE", "RBP_1", "RBP_10"], [])
    assert row.text("minus CE's", "ce") == ""
    assert row.text("α", "rbp_10").count(" to ") == 1
    assert row.cells["α", "rbp_10"].value == report.metrics["alpha/toy/text/rbp_10"], "numbers, to sort and to draw"
    assert re.fullmatch(r"[+-]\d\.\d{3} (differs|undecided|same|differs, but little)", row.text("minus CE's", "rbp_10"))
    place = {"family": "toy", "dataset": "text"}
    cells = [
        Cell(line="no bend detected up to k", text="1,000 (the last tried)", **place),
        Cell(line="bends", text="yes", metric="rbp_10", **place),
        Cell(line="bends", text="of a metric that no cell opens", metric="rbp_7", **place),
        Cell(line="bends", text="of a family that no cell opens", family="other", dataset="text"),
    ]
    report.leads.append(Lead(cells=cells, sentence="it is straight.", order=1))
    page = first_page(report.leads)
    assert page
    assert page.remarks == ["no bend detected up to k"]
    assert page.rows[0].text("bends", "rbp_10") == "yes"
    assert page.sentences[0] == "It is straight."
    terminal.show_first_page(page)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.endswith("toy on text: no bend detected up to k: 1,000 (the last tried)")
    assert "α, all parameters" in printed
    assert "no cell opens" not in printed
    html = render("t", RUNS, [section(report)])
    first, more = (part.split("</table>")[0] for part in html.split('<table class="lead sorts">')[1:])
    assert first.count("<tr>") == 2  # the heads, and a row
    assert ">1,000 (the last tried)</span></td>" in first
    assert f'data-v="{row.value("α", "rbp_10")}"' in first
    assert more.count("<tr>") == len(page.lines), "the other lines of the row, on request"
    assert 3 <= html.split('<ul class="first">')[1].split("</ul>")[0].count("<li>") <= 6
    assert first_page([Lead(cells=cells)]) is None


def test_rendering_a_stored_report_asks_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = PowerLaw(ks=[1, 10], replicates=50).analyze(RUNS)
    tell(report)
    write_report(report, tmp_path)
    page = render("t", RUNS, [Section("mine", "About it.", "k=1", *read_report(tmp_path))])
    assert report.notes[0].rstrip(".") in " ".join(unfolded(page))
    for cls in {type(finding) for finding in report.findings}:
        monkeypatch.setattr(cls, "say", None)
        monkeypatch.setattr(cls, "lead", None)
    stored = read_report(tmp_path)
    again = render("t", RUNS, [Section("mine", "About it.", "k=1", *stored)])
    assert unfolded(again) == unfolded(page)
    assert [finding["question"] for finding in stored.findings] == [one.question for one in report.findings]
    whole = tmp_path / "report.json"
    whole.write_text(whole.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(UnknownFormat, match="another version"):
        read_report(tmp_path)


def test_sections_stand_in_the_order_of_their_leads_then_by_name() -> None:
    sections = [
        section(Report(), "b"),
        section(Report(leads=[Lead(order=20), Lead(order=5)]), "z"),
        section(Report(leads=[Lead(order=10)]), "y"),
        section(Report(), "a"),
    ]
    made = Findings(sections=sections)
    made.sort()
    assert [one.name for one in made.sections] == ["z", "y", "a", "b"]


def test_the_embedded_family_says_why_it_shows_a_law() -> None:
    runs = family_runs([1e4], alpha=0.1, a=3.0, family="nano")
    assert "This page demonstrates the tool; it is not evidence" in render("t", runs, [])
    assert "it is not evidence" not in render("t", RUNS, [])


def test_a_hundred_measurements_leave_room_for_a_sentence_of_every_analyzer() -> None:
    """4 families on 6 datasets: 2,000 words, so that 10 more analyzers have 60 words each; and not a megabyte."""
    sizes = np.geomspace(1e4, 1e7, 4)
    runs = together(
        *(
            family_runs(sizes * (1 + f), alpha=0.1, a=3.0, family=name, dataset=dataset, seed=f, tokens=50)
            for f, name in enumerate(("gpt2", "opt", "pythia", "qwen2.5"))
            for dataset in ("auslegal", "c4", "hotpotqa", "humaneval", "pile_github", "wiki")
        )
    )
    report = PowerLaw(ks=[1, 10, 30], curve_points=1, replicates=20).analyze(runs)
    tell(report)
    figures = {
        name: InlineFigure(inline(svg(report.drawings[name].figure)), report.drawings[name].caption)
        for name in report.overview
        if name in report.drawings
    }
    figures["other"] = InlineFigure("<svg/>", "")
    page = render("t", runs, [Section("power_law", "", "", report, figures), section(Report(notes=["Said."]), "other")])
    words = unfolded(page)
    assert words.count("pythia") > 6
    assert 500 < len(words) < 2000
    assert len(page) < 400_000
    places = ['<p class="headline">', "<figcaption>α of every family", '<table class="lead', '<details class="part"']
    assert sorted(places, key=page.index) == places, "what was found comes first"


def test_a_drawing_on_the_page_is_the_same_picture_in_half_the_characters() -> None:
    report = PowerLaw(ks=[1], curve_points=4, replicates=20).analyze(RUNS)
    figure = report.drawings["alpha_against_k"].figure
    figure.axes[0].set_xlabel('0.12345 and style="a"')
    text = svg(figure)
    small = inline(text)
    assert len(small) < 0.6 * len(text)
    kinds = ("path", "use", "text", "clipPath")
    assert [small.count(f"<{kind}") for kind in kinds] == [text.count(f"<{kind}") for kind in kinds]
    assert set(re.findall(r' id="(\w+)"', small)) <= set(re.findall(r"(?:href=\"|url\()#(\w+)", small)), "all used"
    assert set(re.findall(r'class="(\w+)"', small)) == set(re.findall(r"\.(\w+)\{", small))
    assert '0.12345 and style="a"' in small, "words are no coordinates"


def test_a_page_needs_no_network(tmp_path: Path) -> None:
    report = PowerLaw(ks=[1]).analyze(RUNS)
    write_report(report, tmp_path)
    page = render("t", RUNS, [Section("power_law", "", "", *read_report(tmp_path))])
    assert not re.search(r'(src|href)="https?:', page)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page), "only references inside the page"


@pytest.mark.parametrize(
    ("server", "page"),
    [
        ("http://s/#/experiments/1/runs/{}?a=b", "http://s/#/experiments/1/runs/r7/artifacts/report.html?a=b"),
        ("", "/store/artifacts/report.html"),
    ],
)
def test_the_page_is_where_a_person_finds_it(server: str, page: str) -> None:
    reader: Any = SimpleNamespace(
        connection=SimpleNamespace(run_page=server), artifact_uri=lambda _: "/store/artifacts"
    )
    assert Reader.report_page(reader, "r7") == page


def test_analyzers_without_a_result_for_one_reason_are_one_line() -> None:
    found = Findings()
    for name in ("k_law", "emergence"):
        with _caught(found, SimpleNamespace(name=name)):  # type: ignore[arg-type]
            raise RbptrackError("imported without ranks")
    assert found.unsaid == {"imported without ranks": ["k_law", "emergence"]}
    page = render("t", RUNS, [], silent=[*found.silent, ("training", "no checkpoints")])
    assert page.count("imported without ranks") == 1
    assert "<b>k_law, emergence</b>: imported without ranks" in page
    assert "<b>no result</b><span>k_law, emergence, training</span>" in page


def test_the_terminal_shows_the_first_of_many_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for number, cut in ((41, ""), (45, "and 5 more notes in the report")):
        terminal.show(section(Report(notes=[f"note {i}" for i in range(number)])))
        lines = capsys.readouterr().out.splitlines()
        assert lines == [f"note {i}" for i in range(40 if cut else number)] + [cut] * bool(cut)


SAVED = """
import os, signal, sys
from pathlib import Path
from rbptrack.base.user_paths import check_writable_folder
from rbptrack.commands import report

def stop(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

out = Path("report.html").absolute()
check_writable_folder(out.parent)
if sys.argv[1] == "killed":
    report.put = stop
report._save(out, Path("analyses"), lambda files: "whole")
"""


def test_a_report_that_was_killed_while_it_was_saved_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "analyses/law/tables").mkdir(parents=True)
    (tmp_path / "analyses/law/tables/laws.csv").write_text("alpha\n0.1\n")

    def save(how: str) -> int:
        return subprocess.run([sys.executable, "-c", SAVED, how], cwd=tmp_path, check=False).returncode

    assert save("killed") == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("report*") if not path.name.endswith(".tmp")] == []
    assert len(list(tmp_path.glob("*.tmp"))) == 1
    assert save("finished") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["analyses", "report-tables", "report.html"]
    assert (tmp_path / "report-tables/law/laws.csv").read_text() == "alpha\n0.1\n"
