"""Tests of the analyzer `power_law`: exponents in size, their differences, and errors of prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins import power_law
from plugins.power_law import PowerLaw
from rbptrack.analysis import BadInput, Report, Runs
from rbptrack.analysis.plugin import make_plugin_from_words
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes, example_runs
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import result
from tests.rank_tables import power_law_rank_table, rank_table

Rows = list[dict[str, Any]]


@pytest.fixture
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the functions that draw figures. Drawing takes most of the time of a small report."""
    monkeypatch.setattr(power_law, "draw_laws", lambda points, laws, k: None)
    monkeypatch.setattr(power_law, "intervals", lambda *frame, **look: None)


without_figures = pytest.mark.usefixtures("_no_figures")


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = PowerLaw(at=(1e12,))


def rows_of(
    family: str, alpha: float, ce_alpha: float, sizes: int, *, noise: float = 0.003, seed: int = 0, **columns: object
) -> Rows:
    """Return the rows of a family on wiki, without ranks. -ln RBP_k = 9 k^-0.3 S^-alpha, and CE = 20 S^-ce_alpha.

    Both are multiplied by exp(normal noise). The standard deviation of the noise is `noise`.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for s in np.geomspace(1e7, 1e10, sizes).round():
        scatter = np.exp(rng.normal(0, noise))
        row: dict[str, Any] = {
            "run_id": f"{family}{s:.0f}",
            "family": family,
            "size": f"{s:.0f}",
            "model": f"{family}-{s:.0f}",
        }
        row |= {"dataset": "wiki", "without_ranks": True, "non_embedding_params": s, "total_params": 2 * s}
        row |= {"ce": 20 * s**-ce_alpha * scatter, "documents_hash": "same"}
        for k in (1, 10, 100):
            row[f"rbp_{k}"] = math.exp(-9 * k**-0.3 * s**-alpha * scatter * np.exp(rng.normal(0, noise)))
        rows.append(row | columns)
    return rows


def report_of(rows: Rows, analyzer: PowerLaw | None = None) -> Report:
    return (analyzer or PowerLaw()).analyze(Runs(pd.DataFrame(rows), RankTables({})))


@without_figures
def test_power_law_recovers_exponent_and_factor() -> None:
    alpha = result(report_of(rows_of("f", 0.2, 0.1, 6)), "alpha", "rbp_10")
    assert alpha["alpha"] == pytest.approx(0.2, abs=0.01)
    assert alpha["A"] == pytest.approx(9 * 10**-0.3, rel=0.1)
    assert alpha["verdict"] == "above"
    assert alpha["alpha_incl"] == pytest.approx(alpha["alpha"])  # `total_params` is 2 S at every size


@without_figures
def test_forecast_of_rbp_and_ce_is_that_of_the_law() -> None:
    report = report_of(rows_of("f", 0.2, 0.1, 6), PowerLaw(at=(1e11,)))
    for metric in ("rbp_10", "ce"):
        law = result(report, "alpha", metric)
        y = law["A"] * 1e11 ** -law["alpha"]
        forecast = result(report, "forecast", metric)
        assert forecast["forecast"] == pytest.approx(y if metric == "ce" else math.exp(-y))
        assert forecast["beyond"] == pytest.approx(10)


@without_figures
def test_exponents_in_both_units_agree_if_the_sizes_have_another_order() -> None:
    rows = rows_of("f", 0.2, 0.1, 5, noise=0.05)
    for row, factor in zip(rows, (1000, 1.1, 50, 1.2, 1.3), strict=True):
        row["total_params"] = round(row["non_embedding_params"] * factor)
    excluding = result(report_of(rows), "alpha", "rbp_10")
    including = result(report_of(rows, PowerLaw(unit="total_params")), "alpha", "rbp_10")
    assert including["alpha"] != pytest.approx(excluding["alpha"], rel=0.05)
    assert excluding["alpha_incl"] == pytest.approx(including["alpha"])
    assert including["alpha_excl"] == pytest.approx(excluding["alpha"])


@without_figures
def test_held_out_error_is_that_of_the_law_of_the_smaller_sizes() -> None:
    rows = rows_of("f", 0.2, 0.1, 5, noise=0.1)
    s, ce = np.array([[row["non_embedding_params"], row["ce"]] for row in rows]).T
    line = np.polyfit(np.log(s[:-1]), np.log(ce[:-1]), 1)
    expected = ce[-1] / np.exp(np.polyval(line, np.log(s[-1]))) - 1
    report = report_of(rows)
    assert result(report, "held_out", "ce")["held_out"] == pytest.approx(expected)
    laws = report.tables["laws"].set_index("metric")
    assert laws.loc["ce", "held_out"] == pytest.approx(expected)


@without_figures
def test_interval_of_few_sizes_uses_the_scatter_of_other_families_and_shows_its_own() -> None:
    rows = rows_of("f", 0.2, 0.1, 3, noise=0.02) + rows_of("g", 0.2, 0.1, 3, noise=0.01)
    report = report_of(rows)
    alone = result(report_of(rows[:3]), "alpha", "ce")
    row = result(report, "alpha", "ce", family="f")
    assert (row["own_low"], row["own_high"]) == pytest.approx((alone["low"], alone["high"]))
    assert row["alpha"] == pytest.approx(alone["alpha"])
    assert row["high"] - row["low"] < 0.6 * (alone["high"] - alone["low"])
    assert "own_low" not in report_of(rows[:3]).frame("alpha")


@without_figures
def test_headline_of_three_sizes_begins_with_the_improvement() -> None:
    rows = rows_of("f", 0.2, 0.1, 3)
    report = report_of(rows)
    row = result(report, "improvement", "rbp_10")
    assert row["improvement"] == pytest.approx(rows[-1]["rbp_10"] - rows[0]["rbp_10"])
    assert f"{rows[0]['rbp_10']:.3f}" in report.headline
    assert report.headline.index(f"{rows[-1]['rbp_10']:.3f}") < report.headline.index("α")


@without_figures
def test_delta_is_difference_from_exponent_of_ce() -> None:
    report = report_of(rows_of("f", 0.2, 0.1, 6))
    delta = result(report, "delta", "rbp_10")
    rbp_10 = result(report, "alpha", "rbp_10")
    ce = result(report, "alpha", "ce")
    assert delta["delta"] == pytest.approx(rbp_10["alpha"] - ce["alpha"])
    assert delta["verdict"] == "above"
    assert "faster than cross-entropy" in report.headline


@without_figures
def test_delta_of_equal_exponents_is_same() -> None:
    report = report_of(rows_of("f", 0.1, 0.1, 8, noise=0.001))
    assert set(report.frame("delta")["verdict"]) == {"same"}
    assert "as fast as" in report.headline


@without_figures
def test_negative_exponent_is_below_0_and_below_that_of_ce() -> None:
    report = report_of(rows_of("f", -0.1, 0.1, 6))
    assert result(report, "alpha", "rbp_10")["verdict"] == "below"
    assert result(report, "delta", "rbp_10")["verdict"] == "below"


@without_figures
def test_headline_counts_laws_with_positive_exponent() -> None:
    report = report_of(rows_of("f", -0.1, 0.1, 6) + rows_of("g", 0.2, 0.1, 6, documents_hash="others"))
    assert "1 of 2 laws" in report.headline
    assert "α = 0.20" in report.headline


@without_figures
@pytest.mark.parametrize(
    ("sizes", "questions"),
    [
        (1, {"ce", "rbp_1", "rbp_10", "rbp_100"}),
        (2, {"ce", "rbp_1", "rbp_10", "rbp_100", "alpha", "delta", "improvement"}),
        (3, {"alpha", "delta", "improvement"}),
        (4, {"alpha", "delta", "held_out", "improvement"}),
        (6, {"alpha", "delta", "held_out", "improvement"}),
    ],
)
def test_power_law_answers_questions_for_which_there_are_enough_sizes(sizes: int, questions: set[str]) -> None:
    assert set(report_of(rows_of("f", 0.2, 0.1, sizes)).questions) == questions


@without_figures
@pytest.mark.parametrize(("sizes", "has_tests"), [(2, False), (3, True), (4, True), (6, True)])
def test_power_law_of_two_sizes_has_no_p_and_no_verdicts(sizes: int, has_tests: bool) -> None:
    results = report_of(rows_of("f", 0.2, 0.1, sizes)).results
    assert results["p"].notna().any() == has_tests
    assert (results["verdict"] != "").any() == has_tests


def test_power_law_of_one_size_has_points_and_a_note_but_no_law() -> None:
    report = report_of(rows_of("f", 0.2, 0.1, 1))
    assert report.notes
    assert len(report.tables["points"]) == 4
    assert list(report.figures) == ["curves"]
    assert report.frame("ce")["ce"].item() == pytest.approx(report.tables["points"].query("k == 0")["y"].item())
    assert report.frame("rbp_10")["rbp_10"].item() == report.tables["points"].query("k == 10")["value"].item()


@pytest.mark.parametrize(("families", "has_hint"), [("ab", False), ("abc", True)])
def test_headline_of_single_models_names_the_command_that_makes_them_one_family(families: str, has_hint: bool) -> None:
    rows = [row for family in families for row in rows_of(family, 0.2, 0.1, 1)]
    assert ("rbptrack label" in report_of(rows).headline) == has_hint


def test_values_without_a_law_have_intervals_over_documents() -> None:
    tables = {s: power_law_rank_table(s, alpha=0.1) for s in (1e5, 1e6)}
    report = PowerLaw(k=(5,)).analyze(family_runs(tables))
    values = report.frame("rbp_5")
    for s, row in zip(tables, values.to_dict("records"), strict=True):
        assert row["rbp_5"] == pytest.approx(tables[s].histogram().rbp(5))
        assert row["low"] < row["rbp_5"] < row["high"]
    assert not report.leading_columns


@without_figures
def test_table_of_laws_says_which_k_were_tested() -> None:
    tables = {s: power_law_rank_table(s, alpha=0.1) for s in (1e5, 1e6, 1e7, 1e8)}
    report = PowerLaw(k=(5,)).analyze(family_runs(tables))
    laws = report.tables["laws"].set_index("k")
    assert set(report.leading_columns) <= set(laws)
    assert laws.loc[5, "verdict_alpha"].startswith("above")
    assert laws.loc[0, "verdict_alpha"].startswith("above")
    assert "not tested" in str(laws.loc[4, "verdict_alpha"])
    assert set(report.frame("alpha")["metric"]) == {"ce", "rbp_5"}


@without_figures
def test_power_law_of_four_documents_has_intervals_of_scatter_alone_and_a_note() -> None:
    """They are the intervals of the same metrics without documents."""
    runs = example_runs(documents=4, families={"alpha": 6})
    report = PowerLaw(k=(1,)).analyze(runs)
    imported = runs.frame.assign(without_ranks=True).drop(columns="name")
    expected = PowerLaw(k=(1,)).analyze(Runs(imported, RankTables({}))).frame("alpha")
    np.testing.assert_allclose(report.frame("alpha")[["low", "high"]], expected[["low", "high"]])
    assert np.isfinite(expected[["low", "high"]]).all(axis=None)
    assert report.tables["points"][["low", "high"]].isna().all(axis=None)
    assert any("4 documents" in note for note in report.notes)


def add_floor(rows: Rows) -> Rows:
    """Return the rows with another RBP_10, whose law has a floor: -ln RBP_10 = 1 + 100 S^-0.3.

    Models scatter around this law by 0.1%.
    """
    scatter = np.exp(np.random.default_rng(1).normal(0, 1e-3, len(rows)))
    changed = []
    for i, row in enumerate(rows):
        y = (1 + 100 * row["non_embedding_params"] ** -0.3) * scatter[i]
        changed.append(row | {"rbp_10": math.exp(-y)})
    return changed


@without_figures
def test_headline_warns_of_law_with_floor() -> None:
    assert "caution" in report_of(add_floor(rows_of("f", 0.2, 0.1, 8, noise=1e-4))).headline


@without_figures
def test_headline_of_power_law_has_no_warning() -> None:
    assert "caution" not in report_of(rows_of("f", 0.2, 0.1, 8, noise=0.003, seed=4)).headline


@without_figures
def test_headline_counts_laws_with_floor() -> None:
    rows = add_floor(rows_of("f", 0.2, 0.1, 8)) + rows_of("g", 0.2, 0.1, 8, seed=4, documents_hash="others")
    assert "1 of 2" in report_of(rows).headline


@without_figures
def test_law_that_mispredicts_the_largest_size_is_in_doubt() -> None:
    rows = rows_of("f", 0.2, 0.1, 6, noise=0.01, seed=1)
    rows[-1]["rbp_10"] **= 1.1
    report = report_of(rows)
    laws = report.tables["laws"].set_index("k")
    assert result(report, "held_out", "rbp_10")["low"] > 0
    assert result(report, "held_out", "rbp_1")["low"] < 0 < result(report, "held_out", "rbp_1")["high"]
    assert laws["bend_low"].loc[10] < 0 < laws["bend_high"].loc[10]
    assert laws.loc[10, "doubt"]
    assert not laws.loc[1, "doubt"]


@without_figures
def test_tokens_above_k_is_the_smallest_number_over_models() -> None:
    rows = rows_of("f", 0.2, 0.1, 6, noise=0.01, seed=1, num_tokens=1000)
    laws = report_of(rows).tables["laws"].set_index("k")
    assert laws.loc[10, "tokens_above_k"] == pytest.approx(min(1000 * (1 - row["rbp_10"]) for row in rows))


@without_figures
def test_tokens_above_k_is_unknown_without_number_of_tokens() -> None:
    laws = report_of(rows_of("f", 0.2, 0.1, 6, noise=0.01, seed=1)).tables["laws"]
    assert laws["tokens_above_k"].isna().all()


@without_figures
def test_unit_total_params_fits_law_in_all_parameters() -> None:
    """`total_params` is the square root of S, so its exponent is twice that of S."""
    rows = rows_of("f", 0.2, 0.1, 5)
    for row in rows:
        row["total_params"] = round(row["non_embedding_params"] ** 0.5)
    alpha = result(report_of(rows, analyzer=PowerLaw(unit="total_params")), "alpha", "rbp_10")
    assert alpha["alpha"] == pytest.approx(2 * alpha["alpha_excl"], rel=1e-3)


@without_figures
def test_unit_total_params_adds_a_note_if_total_params_is_unknown() -> None:
    rows = rows_of("f", 0.2, 0.1, 5, total_params=None)
    assert report_of(rows, analyzer=PowerLaw(unit="total_params")).notes


@without_figures
def test_default_unit_does_not_need_total_params() -> None:
    assert "alpha" in report_of(rows_of("f", 0.2, 0.1, 5, total_params=None)).questions


@without_figures
def test_forecasts_are_on_the_laws_and_have_intervals() -> None:
    report = report_of(rows_of("f", 0.2, 0.1, 6, noise=1e-4), analyzer=PowerLaw(at=(1e11,)))
    ce = result(report, "forecast", "ce")
    rbp = result(report, "forecast", "rbp_10")
    assert ce["forecast"] == pytest.approx(20 * 1e11**-0.1, rel=0.01)
    assert rbp["forecast"] == pytest.approx(math.exp(-9 * 10**-0.3 * 1e11**-0.2), rel=0.01)
    assert rbp["low"] < rbp["forecast"] < rbp["high"]
    assert rbp["beyond"] == pytest.approx(10)


@pytest.mark.parametrize(
    "word",
    [
        "k=0",
        "k=1,x",
        "margin=0",
        "margin=-1",
        "margin=2",
        "level=95",
        "unit=flops",
        "at=-1",
        "at=inf",
        "ks",
    ],
)
def test_power_law_refuses_wrong_option(word: str) -> None:
    with pytest.raises(BadInput, match=word.partition("=")[0]):
        make_plugin_from_words(PowerLaw, [word])


@without_figures
def test_power_law_leaves_out_k_with_fewer_than_10_misses() -> None:
    rows = []
    tables = {}
    for i, s in enumerate((1e6, 1e7, 1e8)):
        rank = np.ones(3000, dtype=int)
        rank[: 600 - 100 * i] = 5  # missed at k = 1 to 4
        rank[:9] = 90  # nine tokens miss at k = 5 to 89
        tables[f"r{i}"] = rank_table(rank, documents=30, vocab_size=100, logprob=np.full(3000, -2.0 + 0.3 * i))
        row = {"run_id": f"r{i}", "family": "f", "size": str(i), "model": f"f-{i}", "dataset": "d", "vocab_size": 100}
        rows.append(row | {"non_embedding_params": s, "num_tokens": 3000, "ce": 2.0 - 0.3 * i})
    report = PowerLaw().analyze(Runs(pd.DataFrame(rows), RankTables(tables)))
    assert report.tables["laws"]["k"].max() == 4
    assert set(report.frame("alpha")["metric"]) == {"ce", "rbp_1"}
    assert any("10" in note for note in report.notes)


def test_tables_have_points_and_laws_of_all_k() -> None:
    report = PowerLaw().analyze(example_runs())
    points = report.tables["points"]
    laws = report.tables["laws"]
    assert set(points["metric"]) == set(laws["metric"]) == {"ce", "rbp"}
    assert (points.groupby(["dataset", "model"])["k"].nunique() > 10).all()
    assert (points["low"] <= points["y"]).all()
    rbp = points[points["metric"] == "rbp"]
    assert np.exp(-rbp["y"].to_numpy()) == pytest.approx(rbp["value"].to_numpy())
    assert next(iter(report.figures)) == "laws"


def test_power_law_of_imported_ce_alone_has_its_law_and_figure() -> None:
    rows = rows_of("a", 0.2, 0.1, 4)
    for row in rows:
        for k in (1, 10, 100):
            del row[f"rbp_{k}"]
    report = report_of(rows)
    assert result(report, "alpha", "ce")["alpha"] == pytest.approx(0.1, abs=0.01)
    assert result(report, "improvement", "ce")["improvement"] == pytest.approx(rows[-1]["ce"] - rows[0]["ce"])
    assert report.headline.startswith("CE improves with size, α = 0.10")
    assert "laws" in report.figures


def test_power_law_of_imported_rbp_alone_has_its_laws() -> None:
    report = report_of([row | {"ce": None} for row in rows_of("a", 0.2, 0.1, 4)])
    assert result(report, "alpha", "rbp_10")["alpha"] == pytest.approx(0.2, abs=0.01)
    assert set(report.frame("alpha")["metric"]) == {"rbp_1", "rbp_10", "rbp_100"}
    assert set(report.tables["points"]["metric"]) == {"rbp"}


def test_headline_of_one_model_has_its_value() -> None:
    rows = rows_of("a", 0.2, 0.1, 1)
    assert f"{rows[0]['rbp_10']:.3f}" in report_of(rows).headline
    assert f"{rows[0]['ce']:.3f}" in report_of([{**rows[0], "rbp_1": None, "rbp_10": None, "rbp_100": None}]).headline


def test_family_with_constant_ce_has_exponent_0_and_does_not_affect_another_family() -> None:
    report = report_of(rows_of("constant", 0.2, 0.1, 6, ce=2.0) + rows_of("b", 0.2, 0.1, 6))
    assert result(report, "alpha", "ce", family="b")["alpha"] == pytest.approx(0.1, abs=0.01)
    assert result(report, "alpha", "ce", family="constant")["alpha"] == pytest.approx(0, abs=1e-9)


def test_headline_of_negative_exponent_says_worse() -> None:
    assert "worse" in report_of(rows_of("a", -0.1, 0.1, 6, noise=1e-4)).headline
