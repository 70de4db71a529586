from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import BadInput, Runs
from rbptrack.analysis.plugin import import_file, with_options
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes, example_runs
from tests.rank_tables import rank_table

power_law = import_file(Path(__file__).parents[2] / "plugins" / "power_law.py")
PowerLaw = power_law.PowerLaw


@pytest.fixture
def _no_figures(monkeypatch):
    """Figures take most of a small report's time, and most tests are about numbers."""
    monkeypatch.setattr(power_law, "explorer", lambda points, laws: None)
    monkeypatch.setattr(power_law, "intervals", lambda *frame, **look: None)


numbers_only = pytest.mark.usefixtures("_no_figures")


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = PowerLaw(at=(1e12,))


def totals(family: str, alpha: float, ce_alpha: float, sizes: int, *, noise: float = 0.003, seed: int = 0, **columns):
    """Rows of metrics without ranks: -ln RBP_k = 9 k^-0.3 S^-alpha, CE = 20 S^-ce_alpha, with noise of models."""
    rng = np.random.default_rng(seed)
    rows = []
    for s in np.geomspace(1e7, 1e10, sizes).round():
        off = np.exp(rng.normal(0, noise))
        row = {"run_id": f"{family}{s:.0f}", "family": family, "size": f"{s:.0f}", "model": f"{family}-{s:.0f}"}
        row |= {"dataset": "wiki", "without_ranks": True, "non_embedding_params": s, "total_params": 2 * s}
        row |= {"ce": 20 * s**-ce_alpha * off, "documents_hash": "same"}
        row |= {
            f"rbp_{k}": math.exp(-9 * k**-0.3 * s**-alpha * off * np.exp(rng.normal(0, noise))) for k in (1, 10, 100)
        }
        rows.append(row | columns)
    return rows


def report_of(*rows, analyzer=None):
    return (analyzer or PowerLaw()).analyze(Runs(pd.DataFrame([row for some in rows for row in some]), Tables({})))


def answer(report, question, metric, **case):
    frame = report.frame(question)
    rows = frame[frame["metric"] == metric]
    for name, value in case.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return rows.iloc[0]


@numbers_only
def test_exponents_factors_and_their_difference():
    report = report_of(totals("f", 0.2, 0.1, 6))
    alpha = answer(report, "alpha", "rbp_10")
    assert alpha["alpha"] == pytest.approx(0.2, abs=0.01)
    assert alpha["A"] == pytest.approx(9 * 10**-0.3, rel=0.1)
    assert alpha["verdict"] == "above"
    assert alpha["alpha_incl"] == pytest.approx(alpha["alpha"])  # all parameters are twice S everywhere
    delta = answer(report, "delta", "rbp_10")
    assert delta["delta"] == pytest.approx(alpha["alpha"] - answer(report, "alpha", "ce")["alpha"])
    assert delta["verdict"] == "above"
    assert "faster than cross-entropy" in report.headline


@numbers_only
def test_equal_exponents_are_the_same_within_the_margin():
    report = report_of(totals("f", 0.1, 0.1, 8, noise=0.001))
    assert set(report.frame("delta")["verdict"]) == {"same"}
    assert "as fast as" in report.headline


@numbers_only
def test_an_inverse_law_is_below():
    report = report_of(totals("f", -0.1, 0.1, 6))
    assert answer(report, "alpha", "rbp_10")["verdict"] == "below"
    assert answer(report, "delta", "rbp_10")["verdict"] == "below"
    both = report_of(totals("f", -0.1, 0.1, 6), totals("g", 0.2, 0.1, 6, documents_hash="others"))
    assert "1 of 2 laws" in both.headline
    assert "α = 0.20" in both.headline


@numbers_only
@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        (2, {"alpha", "delta"}),
        (3, {"alpha", "delta"}),
        (4, {"alpha", "delta", "held_out"}),
        (6, {"alpha", "delta", "held_out"}),
    ],
)
def test_each_question_is_answered_if_the_sizes_are_enough_for_it(sizes, asked):
    report = report_of(totals("f", 0.2, 0.1, sizes))
    assert set(report.questions) == asked
    tested = report.results
    assert tested["p"].isna().all() == (sizes == 2)
    assert (tested["verdict"] == "").all() == (sizes == 2)


def test_one_size_is_said_to_have_no_law():
    report = report_of(totals("f", 0.2, 0.1, 1))
    assert not report.questions
    assert report.notes
    assert len(report.tables["points"]) == 4
    assert not report.figures


@numbers_only
def test_few_documents_leave_numbers_without_ends_and_a_headline_that_says_so():
    report = PowerLaw(at=(1e9,)).analyze(example_runs(documents=5, families={"alpha": 6}))
    assert report.results[["low", "high"]].isna().all(axis=None)
    assert report.tables["laws"][["low", "high"]].isna().all(axis=None)
    assert report.tables["points"][["low", "high"]].isna().all(axis=None)
    assert "none" not in report.headline
    assert "without" in report.headline or "too few" in report.headline


@numbers_only
def test_a_floor_puts_a_caution_into_the_headline():
    assert "caution" in report_of(with_floor(totals("f", 0.2, 0.1, 8, noise=1e-4))).headline
    assert "caution" not in report_of(totals("f", 0.2, 0.1, 8, noise=0.003, seed=4)).headline
    both = report_of(with_floor(totals("f", 0.2, 0.1, 8)), totals("g", 0.2, 0.1, 8, seed=4, documents_hash="others"))
    assert "1 of 2" in both.headline


@numbers_only
def test_a_mispredicted_largest_size_is_a_doubt_about_the_law():
    rows = totals("f", 0.2, 0.1, 6, noise=0.01, seed=1)
    rows[-1]["rbp_10"] **= 1.1
    report = report_of(rows)
    laws = report.tables["laws"].set_index("k")
    assert answer(report, "held_out", "rbp_10")["low"] > 0
    assert answer(report, "held_out", "rbp_1")["low"] < 0 < answer(report, "held_out", "rbp_1")["high"]
    assert laws.loc[10, "bend_low"] < 0 < laws.loc[10, "bend_high"]
    assert laws.loc[10, "doubt"]
    assert not laws.loc[1, "doubt"]


@numbers_only
def test_misses_of_an_unknown_number_of_tokens_are_unknown():
    laws = report_of(totals("f", 0.2, 0.1, 6, noise=0.01, seed=1)).tables["laws"]
    assert laws["missed"].isna().all()
    rows = totals("f", 0.2, 0.1, 6, noise=0.01, seed=1, num_tokens=1000)
    laws = report_of(rows).tables["laws"].set_index("k")
    assert laws.loc[10, "missed"] == pytest.approx(min(1000 * (1 - row["rbp_10"]) for row in rows))


def with_floor(rows):
    """The same rows with -ln RBP_10 = 1 + 100 S^-0.3: R^2 stays above .95."""
    scatter = np.exp(np.random.default_rng(1).normal(0, 1e-3, len(rows)))
    y = [(1 + 100 * row["non_embedding_params"] ** -0.3) * off for row, off in zip(rows, scatter, strict=True)]
    return [row | {"rbp_10": math.exp(-value)} for row, value in zip(rows, y, strict=True)]


@numbers_only
def test_the_other_unit_of_size():
    rows = totals("f", 0.2, 0.1, 5)
    rows = [row | {"total_params": round(row["non_embedding_params"] ** 0.5)} for row in rows]
    report = report_of(rows, analyzer=PowerLaw(unit="total_params"))
    row = answer(report, "alpha", "rbp_10")
    assert row["alpha"] == pytest.approx(2 * row["alpha_excl"], rel=1e-3)
    unknown = [row | {"total_params": None} for row in rows]
    assert report_of(unknown, analyzer=PowerLaw(unit="total_params")).notes
    assert "alpha" in report_of(unknown).questions


@numbers_only
def test_forecasts_are_in_the_metrics_own_unit():
    report = report_of(totals("f", 0.2, 0.1, 6, noise=1e-4), analyzer=PowerLaw(at=(1e11,)))
    ce = answer(report, "forecast", "ce")
    rbp = answer(report, "forecast", "rbp_10")
    assert ce["forecast"] == pytest.approx(20 * 1e11**-0.1, rel=0.01)
    assert rbp["forecast"] == pytest.approx(math.exp(-9 * 10**-0.3 * 1e11**-0.2), rel=0.01)
    assert rbp["low"] < rbp["forecast"] < rbp["high"]
    assert rbp["beyond"] == pytest.approx(10)


@pytest.mark.parametrize(
    "word",
    [
        "ks=0",
        "ks=1,x",
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
def test_wrong_options_are_refused_when_they_are_set(word):
    with pytest.raises(BadInput):
        with_options(PowerLaw, [word])


@numbers_only
def test_the_grid_of_k_ends_where_fewer_than_ten_tokens_miss():
    rows, tables = [], {}
    for i, s in enumerate((1e6, 1e7, 1e8)):
        rank = np.ones(3000, dtype=int)
        rank[: 600 - 100 * i] = 5  # missed at k = 1 to 4
        rank[:9] = 90  # nine tokens miss at k = 5 to 89
        tables[f"r{i}"] = rank_table(rank, documents=30, vocab_size=100, logprob=np.full(3000, -2.0 + 0.3 * i))
        row = {"run_id": f"r{i}", "family": "f", "size": str(i), "model": f"f-{i}", "dataset": "d", "vocab_size": 100}
        rows.append(row | {"non_embedding_params": s, "num_tokens": 3000, "ce": 2.0 - 0.3 * i})
    report = PowerLaw().analyze(Runs(pd.DataFrame(rows), Tables(tables)))
    assert report.tables["laws"]["k"].max() == 4
    assert set(report.frame("alpha")["metric"]) == {"ce", "rbp_1"}
    assert any("10" in note for note in report.notes)


def test_tables_hold_what_the_explorer_draws():
    report = PowerLaw().analyze(example_runs())
    points, laws = report.tables["points"], report.tables["laws"]
    assert set(points["metric"]) == set(laws["metric"]) == {"ce", "rbp"}
    assert (points.groupby(["dataset", "model"])["k"].nunique() > 10).all()
    assert (points["low"] <= points["y"]).all()
    rbp = points[points["metric"] == "rbp"]
    assert np.exp(-rbp["y"].to_numpy()) == pytest.approx(rbp["value"].to_numpy())
    assert next(iter(report.figures)) == "laws"


def test_imports_of_cross_entropy_alone_have_their_law_and_figure():
    rows = [{name: value for name, value in row.items() if "rbp" not in name} for row in totals("a", 0.2, 0.1, 4)]
    report = report_of(rows)
    assert answer(report, "alpha", "ce")["alpha"] == pytest.approx(0.1, abs=0.01)
    assert "laws" in report.figures


def test_a_family_that_does_not_change_takes_no_other_with_it():
    flat = [row | {"ce": 2.0} for row in totals("flat", 0.2, 0.1, 6)]
    report = report_of(flat, totals("b", 0.2, 0.1, 6))
    assert answer(report, "alpha", "ce", family="b")["alpha"] == pytest.approx(0.1, abs=0.01)
    assert answer(report, "alpha", "ce", family="flat")["alpha"] == pytest.approx(0, abs=1e-9)


def test_ranks_that_get_worse_are_said_to():
    assert "worse" in report_of(totals("a", -0.1, 0.1, 6, noise=1e-4)).headline
