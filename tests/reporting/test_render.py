"""Tests of the page's HTML: contents, order, escaping and size."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
import shlex
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Report, Runs, Term
from rbptrack.analysis.rank_store import RankTables
from rbptrack.figures import charts
from rbptrack.figures.explorer import explorer
from rbptrack.ranks import log_grid
from rbptrack.reporting import Analysis, render
from rbptrack.stats import Estimate

EVIL = """<script>alert("x")</script>'&"""


DELTA = ("delta", "delta_low", "delta_high")


def measured(families: int, datasets: list[str], sizes: int) -> Runs:
    rows: list[dict[str, Any]] = []
    for f in range(families):
        for dataset in datasets:
            for i, s in enumerate(np.geomspace(1e7, 1e10, sizes)):
                about = {
                    "run_id": f"{len(rows):032x}",
                    "family": f"family{f}",
                    "size": str(i),
                    "model": f"family{f}-{i}",
                }
                numbers = {"non_embedding_params": int(s), "num_tokens": 500_000, "documents": 200, "ce": 3.0}
                named = {"fingerprint": f"{len(rows):064x}", "dtype": "float32", "software": "torch 2.13.0"}
                rows.append(about | {"dataset": dataset, "vocab_size": 50257} | numbers | named)
    return Runs(pd.DataFrame(rows), RankTables({}))


def law_report(runs: Runs, ks: list[int], *, known: bool = True) -> Report:
    """Make a report like those of the analyzer `power_law`."""
    glossary = {"alpha": Term("exponent", "α"), "delta": Term("minus CE's", "Δα vs. CE"), "A": "factor"}
    report = Report(glossary | {"doubt": Term("what speaks against the law", "fit")})
    points: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    width = 0.01 if known else math.nan
    for (family, dataset), rows in runs.frame.groupby(["family", "dataset"]):
        keys = {"family": family, "dataset": dataset}
        for k in [0, *ks]:
            alpha = 0.1 + 0.02 * math.log(k + 1)
            case = keys | {"metric": "rbp" if k else "ce", "k": k}
            line = {"S0": 1e7, "y0": 1e7**-alpha, "S1": 1e10, "y1": 1e10**-alpha}
            numbers = {"alpha": alpha, "low": alpha - width, "high": alpha + width}
            numbers |= dict(zip(DELTA, (0.01, 0.01 - width, 0.01 + width), strict=True))
            numbers |= {"p": 1e-5, "held_out": 0.01, "held_out_low": 0.01 - width, "held_out_high": 0.01 + width}
            numbers |= {
                "R2": 0.99,
                "largest_deviation": 0.02,
                "tokens_above_k": 1000.0,
                "doubt": "few tokens above k" if k > 90 else "",
            }
            numbers |= {"bend": 0.001, "bend_low": 0.001 - width, "bend_high": 0.001 + width}
            laws.append(case | numbers | line)
            for row in rows.itertuples():
                y = float(row.non_embedding_params) ** -alpha
                about = {"model": row.model, "S": float(row.non_embedding_params), "value": math.exp(-y)}
                points.append(case | about | {"y": y, "low": y * (1 - width), "high": y * (1 + width)})
            if k in (0, 1, 10, 100):
                estimate = Estimate(alpha, 1e-4) if known else Estimate(alpha, df=math.nan)
                name = f"rbp_{k}" if k else "ce"
                report.add("alpha", estimate, **keys, metric=name, null=0.0, beside={"A": 1.0})
                report.add("delta", estimate, **keys, metric=name, null=0.0, margin=0.01)
    report.tables = {"points": pd.DataFrame(points), "laws": pd.DataFrame(laws)}
    report.figures["laws"] = explorer(report.tables["points"], report.tables["laws"])
    report.headline = "RBP_10 improves with size on every dataset, faster than cross-entropy."
    return report


def further(name: str, runs: Runs) -> Analysis:
    """Make the analysis of another analyzer, with a figure and a table."""
    report = Report({"beta": "slope"}, headline=f"{name} says something in about a dozen words of plain English.")
    for row in runs.frame.itertuples():
        keys = {"family": row.family, "dataset": row.dataset, "size": row.size}
        report.add("beta", Estimate(0.4, 1e-4), **keys, S=float(row.non_embedding_params))
    report.figures["beta"] = charts.facets(report.frame("beta"), x="S", y="beta")
    return Analysis(name, report)


def visible_words(page: str) -> list[str]:
    """Return the words that are neither folded nor in tables, controls or scripts."""
    body = page[page.index("<main>") : page.index("</main>")]
    body = re.sub(r"<(script|table|form)\b.*?</\1>", " ", body, flags=re.DOTALL)
    body = re.sub(r"<details.*?(<summary>.*?</summary>).*?</details>", r"\1", body, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", body).split()


def unpack(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed, validate=True)).decode()


def figures(page: str) -> list[Any]:
    """Return the figures of a page as Vega-Lite, the explorer first."""
    packed = re.findall(r'<script type="application/gzip" class="spec">(.*?)</script>', page, flags=re.DOTALL)
    return [json.loads(unpack(text)) for text in packed]


@pytest.fixture(scope="module")
def demo() -> str:
    runs = measured(1, ["code", "wiki"], 4)
    analyses = [Analysis("power_law", law_report(runs, [1, 10, 100]), leads=True, summary="The law in size.")]
    analyses += [further(f"analyzer{i}", runs) for i in range(5)]
    analyses.append(Analysis("broken", problem="broken failed: ValueError: no"))
    analyses.append(Analysis("training", Report({}, notes=["Needs checkpoints."])))
    return render(runs, analyses, command="rbptrack demo")


def test_render_puts_the_answer_before_the_details(demo: str) -> None:
    order = [
        "<h1>family0 on code and wiki</h1>",
        "RBP_10 improves with size",
        'id="chosen"',
        "Δα vs. CE",
        "analyzer0 says something",
        "broken failed: ValueError: no",
        "Needs checkpoints.",
        "measurements</b>",
        "rbptrack demo",
    ]
    places = [demo.index(text) for text in order]
    assert places == sorted(places)
    assert len(visible_words(demo)) <= 220


def test_render_has_rows_of_laws_for_every_k_of_the_slider(demo: str) -> None:
    packed = re.search(r'<script type="application/gzip" id="rows">(.*?)</script>', demo)
    assert packed
    rows = json.loads(unpack(packed[1]))
    assert list(rows) == ["ce0", "rbp1", "rbp10", "rbp100"]
    for texts in rows.values():
        assert [row[:2] for row in texts] == [["family0", "code"], ["family0", "wiki"]]
    alpha, p, delta, verdict, *_, doubt = rows["rbp100"][0][2:]
    assert alpha.startswith(f"{0.1 + 0.02 * math.log(101):.3g} (")
    assert p == "<0.001"
    assert delta.startswith("0.0100 (")
    assert verdict == "above"
    assert doubt == "few tokens above k"
    shown = re.findall(r"<td[^>]*>(.*?)</td>", demo[demo.index('id="laws"') :])[: len(rows["rbp10"][0])]
    assert [unescape(re.sub("<[^>]*>", "", text)) for text in shown] == rows["rbp10"][0]


def test_render_repeats_the_filters_in_the_command_for_a_figure() -> None:
    runs = measured(1, ["wiki"], 3)
    page = render(
        runs,
        [Analysis("power_law", law_report(runs, [1, 10]), leads=True)],
        filters={"where": "ce < 4 and dtype == 'float32'"},
    )
    assert "rbptrack analyze power_law" in page
    state = re.search(r'data-filters="([^"]*)"', page)
    assert state
    assert shlex.split(json.loads(unescape(state[1]))["where"]) == ["ce < 4 and dtype == 'float32'"]


def test_render_explains_columns_of_one_title_below_their_own_tables() -> None:
    report = Report({"one": Term("the first meaning", "Δ"), "other": Term("the second meaning", "Δ")})
    report.add("one", Estimate(0.4, 1e-4), family="a", dataset="wiki")
    report.add("other", Estimate(0.4, 1e-4), family="a", dataset="wiki", versus="b")
    page = render(measured(1, ["wiki"], 3), [Analysis("contrasts", report)])
    for list_ in re.findall(r"<dl>.*?</dl>", page, flags=re.DOTALL):
        assert list_.count("<dt>Δ</dt>") == 1
    assert page.index("the first meaning</dd>") < page.index("the second meaning</dd>")


def test_render_says_that_a_k_was_not_tested() -> None:
    runs = measured(1, ["wiki"], 3)
    page = render(runs, [Analysis("power_law", law_report(runs, [1, 10, 50, 100]), leads=True)])
    packed = re.search(r'<script type="application/gzip" id="rows">(.*?)</script>', page)
    assert packed
    rows = json.loads(unpack(packed[1]))
    assert "not tested" in rows["rbp50"][0][5]
    assert rows["rbp10"][0][5] == "above"


def test_render_refers_to_no_other_file(demo: str) -> None:
    without_scripts = re.sub(r"<script>.*?</script>", "", demo, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["'](?!data:)""", without_scripts)
    assert "@import" not in without_scripts
    assert "url(" not in without_scripts


def test_render_holds_every_figure_and_table(demo: str) -> None:
    first, *folded = figures(demo)
    assert first["usermeta"]["explorer"]["ks"] == [1, 10, 100]
    assert len(folded) == 5
    assert all(spec["datasets"] for spec in folded)
    theme = re.search(r'<script type="application/json" id="config">(.*?)</script>', demo, flags=re.DOTALL)
    assert theme
    assert json.loads(theme[1])
    link = re.search(r'download="analyzer0.csv" href="data:text/csv;charset=utf-8,([^"]*)"', demo)
    assert link
    assert html.unescape(link[1]).startswith("question,family")


def test_render_escapes_all_text_of_data() -> None:
    runs = measured(1, [EVIL], 3)
    report = law_report(runs, [1, 10])
    report.headline = EVIL
    report.notes = [EVIL]
    report.glossary = {"alpha": Term(EVIL, EVIL)}
    report.figures[EVIL] = charts.facets(report.frame("alpha"), x="alpha", y="A")
    page = render(
        runs, [Analysis("power_law", report, leads=True), Analysis("x", problem=EVIL)], title=EVIL, command=EVIL
    )
    assert "<script>alert" not in page
    assert page.count("<script>") == 2
    assert page.count("</script>") == 2 + page.count('<script type="application/')
    (table,) = figures(page)[1]["datasets"].values()
    assert pd.read_csv(pd.io.common.StringIO(table))["dataset"].eq(EVIL).all()


def test_render_says_why_a_figure_cannot_be_drawn() -> None:
    class Broken:
        def to_dict(self, *, validate: bool) -> dict[str, Any]:
            raise ValueError("no such channel")

    runs = measured(1, ["wiki"], 3)
    analysis = further("odd", runs)
    assert analysis.report
    analysis.report.figures["bad"] = Broken()
    page = render(runs, [analysis])
    assert "no such channel" in page
    assert '"beta"' in json.dumps(figures(page))


def test_render_without_errors_shows_no_interval_anywhere() -> None:
    runs = measured(1, ["wiki"], 3)
    page = render(runs, [Analysis("power_law", law_report(runs, [1, 10, 100], known=False), leads=True)])
    body = page[page.index("<main>") : page.index("</main>")]
    tables = "".join(re.findall(r"<table.*?</table>", body, flags=re.DOTALL))
    assert "±" not in body
    assert " to " not in tables
    assert "verdict" not in tables
    assert "NaN" not in body


def test_render_without_results_lists_measurements_and_notes() -> None:
    runs = measured(1, ["wiki"], 1)
    page = render(runs, [Analysis("training", Report({}, notes=["Needs checkpoints."]))])
    assert "family0-0/wiki" in page
    assert "Needs checkpoints." in page
    assert 'id="chosen"' not in page


def test_render_of_24_models_on_6_datasets_is_at_most_2_megabytes() -> None:
    runs = measured(4, ["a", "b", "c", "d", "e", "f"], 6)
    report = law_report(runs, log_grid(50257).tolist())
    assert len(report.tables["points"]) > 7000
    others = [replace(further("analyzer", runs), name=f"analyzer{i}") for i in range(9)]
    page = render(runs, [Analysis("power_law", report, leads=True), *others])
    assert len(page.encode()) <= 2_000_000
    for name, kind in re.findall(r'download="([^"]*)" href="data:([^;,]*)', page):
        assert name.endswith(".gz") == (kind == "application/gzip")
    packed = re.search(r'download="power_law-laws.csv.gz" href="data:application/gzip;base64,([^"]*)"', page)
    assert packed
    table = pd.read_csv(pd.io.common.StringIO(unpack(packed[1])))
    assert len(table) == len(report.tables["laws"])


def test_render_shows_the_commits_of_models_and_datasets() -> None:
    runs = measured(1, ["wiki"], 2)
    runs.frame["repo"] = "EleutherAI/pythia-70m"
    runs.frame["commit"] = "EleutherAI/pythia-70m@a1b2c3d4e5f6"
    runs.frame["dataset_commit"] = "sha256:0123456789ab"
    page = render(runs, [])
    assert ">EleutherAI/pythia-70m a1b2c3d4<" in page
    assert ">01234567<" in page


def test_render_writes_nan_in_a_figure_as_null() -> None:
    class Chart:
        def to_dict(self, *, validate: bool) -> dict[str, Any]:
            return {"datasets": {"data": [{"x": math.nan, "y": [math.inf, 1.5]}]}}

    analysis = Analysis("odd", Report({"beta": "slope"}, figures={"beta": Chart()}))
    assert figures(render(measured(1, ["wiki"], 2), [analysis])) == [
        {"datasets": {"data": [{"x": None, "y": [None, 1.5]}]}}
    ]


def test_render_shows_controls_only_above_an_explorer() -> None:
    runs = measured(1, ["wiki"], 3)
    report = law_report(runs, [1])
    report.figures["laws"].usermeta = {"ks": [1, 2]}
    assert 'id="controls"' not in render(runs, [Analysis("power_law", report, leads=True)])


def test_render_makes_only_intervals_small_and_not_names_in_brackets() -> None:
    runs = measured(1, ["wiki (own)"], 3)
    page = render(runs, [Analysis("power_law", law_report(runs, [1]), leads=True)])
    assert "<small>(own)" not in page
    assert "<small>(0" in page
