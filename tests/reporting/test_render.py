"""Tests of `render`: contents, order, escaping and size of the page."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shlex
from dataclasses import replace
from html import unescape
from io import StringIO
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
"""A text that would run a script if the page contained it unescaped."""


def measurements(families: int, datasets: list[str], sizes: int) -> Runs:
    """Make measurements without ranks: a number of families with a number of sizes each, on every dataset."""
    rows: list[dict[str, Any]] = []
    for family in range(families):
        for dataset in datasets:
            for size, s in enumerate(np.geomspace(1e7, 1e10, sizes)):
                row = {
                    "run_id": f"{len(rows):032x}",
                    "family": f"family{family}",
                    "size": str(size),
                    "model": f"family{family}-{size}",
                    "dataset": dataset,
                    "vocab_size": 50257,
                    "non_embedding_params": int(s),
                    "num_tokens": 500_000,
                    "documents": 200,
                    "ce": 3.0,
                    "fingerprint": f"{len(rows):064x}",
                    "dtype": "float32",
                    "software": "torch 2.13.0",
                }
                rows.append(row)
    return Runs(pd.DataFrame(rows), RankTables({}))


def law_report(runs: Runs, ks: list[int], *, intervals: bool = True) -> Report:
    """Make a report like those of the analyzer `power_law`.

    Every point lies exactly on its law y = S^-alpha with alpha = 0.1 + 0.02 ln(k + 1). CE has k = 0. The results hold
    CE and RBP_k for k = 1, 10 and 100. For other k, the report has only a row in the table of laws.

    Args:
        runs: the measurements.
        ks: the k of the laws.
        intervals: whether estimates have intervals, tests and verdicts.
    """
    glossary = {"alpha": Term("exponent", "α"), "delta": Term("minus CE's", "Δα vs. CE"), "A": "factor"}
    report = Report(glossary | {"doubt": Term("what speaks against the law", "fit")})
    points: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    width = 0.01 if intervals else math.nan
    for (family, dataset), rows in runs.frame.groupby(["family", "dataset"]):
        keys = {"family": family, "dataset": dataset}
        size_of_model = dict(zip(rows["model"], rows["non_embedding_params"].astype(float), strict=True))
        for k in [0, *ks]:
            alpha = 0.1 + 0.02 * math.log(k + 1)
            case = keys | {"metric": "rbp" if k else "ce", "k": k}
            law = {
                "alpha": alpha,
                "alpha_low": alpha - width,
                "alpha_high": alpha + width,
                "band_low": alpha - 1.5 * width,
                "band_high": alpha + 1.5 * width,
                "delta": 0.01,
                "delta_low": 0.01 - width,
                "delta_high": 0.01 + width,
                "verdict": "above, p < 0.001" if intervals else "",
                "held_out": 0.01,
                "held_out_low": 0.01 - width,
                "held_out_high": 0.01 + width,
                "R2": 0.99,
                "largest_deviation": 0.02,
                "tokens_above_k": 1000.0,
                "doubt": "few tokens above k" if k > 90 else "",
                "bend": 0.001,
                "bend_low": 0.001 - width,
                "bend_high": 0.001 + width,
                "S0": 1e7,
                "y0": 1e7**-alpha,
                "S1": 1e10,
                "y1": 1e10**-alpha,
            }
            laws.append(case | law)
            for model, size in size_of_model.items():
                y = size**-alpha
                point = {"model": model, "S": size, "value": math.exp(-y)}
                points.append(case | point | {"y": y, "low": y * (1 - width), "high": y * (1 + width)})
            if k in (0, 1, 10, 100):
                estimate = Estimate(alpha, 1e-4) if intervals else Estimate(alpha, df=math.nan)
                metric = f"rbp_{k}" if k else "ce"
                report.add("alpha", estimate, **keys, metric=metric, null=0.0, beside={"A": 1.0})
                report.add("delta", estimate, **keys, metric=metric, null=0.0, margin=0.01)
    report.tables = {"points": pd.DataFrame(points), "laws": pd.DataFrame(laws)}
    drawn = report.tables["laws"].rename(columns={"alpha_low": "low", "alpha_high": "high"})
    report.figures["laws"] = explorer(report.tables["points"], drawn)
    report.leading_columns = ("alpha", "verdict", "delta", "doubt")
    report.headline = "RBP_10 improves with size on every dataset, faster than cross-entropy."
    return report


def law_page(runs: Runs, ks: list[int], *, intervals: bool = True) -> str:
    """Render the page of a law report alone."""
    analysis = Analysis("power_law", law_report(runs, ks, intervals=intervals), leads=True)
    return render(runs, [analysis])


def slope_analysis(name: str, runs: Runs) -> Analysis:
    """Make the analysis of an analyzer that does not lead the page. It has a result per measurement, and a figure."""
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


def unpack(compressed: str) -> str:
    """Decompress a text that the page holds in gzip and base64."""
    return gzip.decompress(base64.b64decode(compressed, validate=True)).decode()


def vega_specs(page: str) -> list[Any]:
    """Return the Vega-Lite specifications of the figures of a page, the explorer first."""
    compressed_specs = re.findall(r'<script type="application/gzip" class="spec">(.*?)</script>', page, flags=re.DOTALL)
    return [json.loads(unpack(text)) for text in compressed_specs]


def rows_by_metric(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of the table of laws that the page shows for each metric, such as `ce0` and `rbp10`."""
    compressed = re.search(r'<script type="application/gzip" id="laws-rows">(.*?)</script>', page)
    assert compressed
    rows: dict[str, list[list[str]]] = json.loads(unpack(compressed[1]))
    return rows


@pytest.fixture(scope="module")
def page() -> str:
    """The page of one family on two datasets, with a leading analysis, five others, a failed one and an empty one."""
    runs = measurements(1, ["code", "wiki"], 4)
    analyses = [Analysis("power_law", law_report(runs, [1, 10, 100]), leads=True, summary="The law in size.")]
    analyses += [slope_analysis(f"analyzer{i}", runs) for i in range(5)]
    analyses.append(Analysis("broken", problem="broken failed: ValueError: no"))
    analyses.append(Analysis("training", Report({}, notes=["Needs checkpoints."])))
    return render(runs, analyses, command="rbptrack demo")


def test_render_puts_the_answer_before_the_details(page: str) -> None:
    texts = [
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
    places = [page.index(text) for text in texts]
    assert places == sorted(places)


def test_render_shows_at_most_240_words_before_anything_is_unfolded(page: str) -> None:
    assert len(visible_words(page)) <= 240


def test_render_has_a_row_of_laws_per_dataset_for_every_k_of_the_slider(page: str) -> None:
    rows = rows_by_metric(page)
    assert list(rows) == ["ce0", "rbp1", "rbp10", "rbp100"]
    for rows_of_metric in rows.values():
        assert [row[:2] for row in rows_of_metric] == [["family0", "code"], ["family0", "wiki"]]


def test_render_row_without_a_law_is_empty_at_that_k() -> None:
    runs = measurements(1, ["wiki"], 3)
    report = law_report(runs, [1, 10])
    report.tables["laws"] = report.tables["laws"].query("k != 1")  # RBP_1 is 0 at some size
    rows = rows_by_metric(render(runs, [Analysis("power_law", report, leads=True)]))
    assert rows["rbp1"] == [["family0", "wiki", "", "", ""]]
    assert rows["rbp10"][0][2].startswith("0.148")


def test_render_row_of_a_law_has_estimates_p_verdict_and_doubt(page: str) -> None:
    row = rows_by_metric(page)["rbp100"][0]
    alpha, verdict, delta, doubt = row[2:]
    assert alpha.startswith(f"{0.1 + 0.02 * math.log(101):.3g} (")
    assert delta.startswith("0.0100 (")
    assert verdict == "above, p < 0.001"
    assert doubt == "few tokens above k"


def test_render_shows_the_laws_of_rbp_10_first(page: str) -> None:
    row = rows_by_metric(page)["rbp10"][0]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page[page.index('id="laws"') :])[: len(row)]
    assert [unescape(re.sub("<[^>]*>", "", cell)) for cell in cells] == row


def test_render_repeats_the_filters_in_the_command_for_a_figure() -> None:
    runs = measurements(1, ["wiki"], 3)
    page = render(
        runs,
        [Analysis("power_law", law_report(runs, [1, 10]), leads=True)],
        filters={"where": "ce < 4 and dtype == 'float32'"},
    )
    command = re.search(r'<p class="note" id="pdf">.*?<code>(.*?)</code>', page)
    assert command
    words = shlex.split(unescape(re.sub("<[^>]*>", "", command[1])))
    assert words[:5] == ["rbptrack", "analyze", "power_law", "--format", "pdf"]
    assert words[5:] == ["--k", "10", "--where", "ce < 4 and dtype == 'float32'"]


def test_render_explains_columns_of_one_title_below_their_own_tables() -> None:
    report = Report({"one": Term("the first meaning", "Δ"), "other": Term("the second meaning", "Δ")})
    report.add("one", Estimate(0.4, 1e-4), family="a", dataset="wiki")
    report.add("other", Estimate(0.4, 1e-4), family="a", dataset="wiki", versus="b")
    page = render(measurements(1, ["wiki"], 3), [Analysis("contrasts", report)])
    for explanations in re.findall(r"<dl>.*?</dl>", page, flags=re.DOTALL):
        assert explanations.count("<dt>Δ</dt>") == 1
    assert page.index("the first meaning</dd>") < page.index("the second meaning</dd>")


def test_render_unfolds_the_only_analyzer_of_a_page(page: str) -> None:
    assert '<details class="analyzer" open>' not in page
    page = law_page(measurements(1, ["wiki"], 3), [1, 10])
    assert '<details class="analyzer" open>' in page
    lead = re.search(r'<p class="lead"[^>]*>([^<]+)</p>', page)
    assert lead
    assert f"<p>{lead[1]}</p>" not in page  # the details do not repeat the sentence that begins the page


def test_render_ends_the_line_of_an_analyzer_outside_brackets() -> None:
    analysis = Analysis("k_law", Report({}, headline="It rises (p = 0.1; alone: 2 above); it bends."))
    other = Analysis("forms", Report({}, headline="Nothing."))
    for each in (analysis, other):
        each.report.tables["t"] = pd.DataFrame({"a": [1]})
    page = render(measurements(1, ["wiki"], 3), [analysis, other])
    assert "<span>It rises (p = 0.1; alone: 2 above).</span>" in page


def test_render_aligns_columns_of_words_on_the_left() -> None:
    report = Report({"ce": "nats"})
    report.add("ce", 1.5, family="a", dataset="wiki", model="a-1m", ends=(1.0, 2.0))
    page = render(measurements(1, ["wiki"], 3), [Analysis("values", report)])
    assert re.search(r'<th class="word"[^>]*>model</th><th class="number"[^>]*>ce</th>', page)


def test_render_aligns_powers_of_ten_on_the_right() -> None:
    report = Report({"loss": ""})
    report.add("loss", 1.5e-7, family="a", dataset="wiki")
    report.add("loss", 0.25, family="b", dataset="wiki")
    page = render(measurements(1, ["wiki"], 3), [Analysis("values", report)])
    assert re.search(r'<td class="number">1.5·10⁻⁷</td>', page)


def test_render_refers_to_no_other_file(page: str) -> None:
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["'](?!data:)""", without_scripts)
    assert "@import" not in without_scripts
    assert "url(" not in without_scripts


def test_render_holds_every_figure_and_their_theme(page: str) -> None:
    explorer_spec, *other_specs = vega_specs(page)
    assert explorer_spec["usermeta"]["explorer"]["ks"] == [1, 10, 100]
    assert len(other_specs) == 5
    assert all(spec["datasets"] for spec in other_specs)
    theme = re.search(r'<script type="application/json" id="config">(.*?)</script>', page, flags=re.DOTALL)
    assert theme
    assert json.loads(theme[1])


def test_render_offers_results_as_a_csv_file(page: str) -> None:
    link = re.search(r'download="analyzer0.csv" href="data:text/csv;charset=utf-8,([^"]*)"', page)
    assert link
    assert unescape(link[1]).startswith("question,family")


def test_render_escapes_all_text_of_data() -> None:
    runs = measurements(1, [EVIL], 3)
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
    (table,) = vega_specs(page)[1]["datasets"].values()
    assert pd.read_csv(StringIO(table))["dataset"].eq(EVIL).all()


def test_render_says_why_a_figure_cannot_be_drawn_and_draws_the_others() -> None:
    class BrokenChart:
        def to_dict(self, *, validate: bool) -> dict[str, Any]:
            raise ValueError("no such channel")

    runs = measurements(1, ["wiki"], 3)
    analysis = slope_analysis("slopes", runs)
    assert analysis.report
    analysis.report.figures["broken"] = BrokenChart()
    page = render(runs, [analysis])
    assert "no such channel" in page
    assert '"beta"' in json.dumps(vega_specs(page))


def test_render_of_estimates_without_intervals_shows_none() -> None:
    page = law_page(measurements(1, ["wiki"], 3), [1, 10, 100], intervals=False)
    body = page[page.index("<main>") : page.index("</main>")]
    tables = "".join(re.findall(r"<table.*?</table>", body, flags=re.DOTALL))
    assert "±" not in body
    assert " to " not in tables
    assert "verdict" not in tables
    assert "NaN" not in body


def test_render_without_results_lists_measurements_and_notes() -> None:
    runs = measurements(1, ["wiki"], 1)
    page = render(runs, [Analysis("training", Report({}, notes=["Needs checkpoints."]))])
    assert "family0-0/wiki" in page
    assert "Needs checkpoints." in page
    assert 'id="chosen"' not in page


@pytest.fixture(scope="module")
def large_report() -> tuple[Runs, Report]:
    """Measurements of 24 models on 6 datasets, and the report of their laws at all k of a logarithmic grid."""
    runs = measurements(4, ["a", "b", "c", "d", "e", "f"], 6)
    report = law_report(runs, log_grid(50257).tolist())
    assert len(report.tables["points"]) > 7000
    return runs, report


@pytest.fixture(scope="module")
def large_page(large_report: tuple[Runs, Report]) -> str:
    """The page of the large report and nine other analyses."""
    runs, report = large_report
    slopes = slope_analysis("analyzer", runs)
    others = [replace(slopes, name=f"analyzer{i}") for i in range(9)]
    return render(runs, [Analysis("power_law", report, leads=True), *others])


def test_render_of_24_models_on_6_datasets_is_at_most_2_megabytes(large_page: str) -> None:
    assert len(large_page.encode()) <= 2_000_000


def test_render_compresses_large_tables_under_names_that_end_in_gz(
    large_report: tuple[Runs, Report], large_page: str
) -> None:
    for name, kind in re.findall(r'download="([^"]*)" href="data:([^;,]*)', large_page):
        assert name.endswith(".gz") == (kind == "application/gzip")
    compressed = re.search(r'download="power_law-laws.csv.gz" href="data:application/gzip;base64,([^"]*)"', large_page)
    assert compressed
    table = pd.read_csv(StringIO(unpack(compressed[1])))
    _, report = large_report
    assert len(table) == len(report.tables["laws"])


def test_render_shows_the_commits_of_models_and_datasets() -> None:
    runs = measurements(1, ["wiki"], 2)
    runs.frame["repo"] = "EleutherAI/pythia-70m"
    runs.frame["commit"] = "EleutherAI/pythia-70m@a1b2c3d4e5f6"
    runs.frame["dataset_commit"] = "sha256:0123456789ab"
    page = render(runs, [])
    assert ">EleutherAI/pythia-70m a1b2c3d4<" in page
    assert ">01234567<" in page


def test_render_writes_nan_and_infinity_in_a_figure_as_null() -> None:
    class ChartWithNan:
        def to_dict(self, *, validate: bool) -> dict[str, Any]:
            return {"datasets": {"data": [{"x": math.nan, "y": [math.inf, 1.5]}]}}

    analysis = Analysis("slopes", Report({"beta": "slope"}, figures={"beta": ChartWithNan()}))
    page = render(measurements(1, ["wiki"], 2), [analysis])
    assert vega_specs(page) == [{"datasets": {"data": [{"x": None, "y": [None, 1.5]}]}}]


def test_render_shows_no_controls_above_a_figure_that_is_not_an_explorer() -> None:
    runs = measurements(1, ["wiki"], 3)
    report = law_report(runs, [1])
    report.figures["laws"].usermeta = {"ks": [1, 2]}  # the page knows an explorer by another entry
    assert 'id="controls"' not in render(runs, [Analysis("power_law", report, leads=True)])


def test_render_writes_intervals_small_and_names_in_brackets_in_full_size() -> None:
    page = law_page(measurements(1, ["wiki (own)"], 3), [1])
    assert "<small>(own)" not in page
    assert "<small>(0" in page
