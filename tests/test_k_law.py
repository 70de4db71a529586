from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.k_law import KLaw
from scipy import stats

from rbptrack.analysis import Report
from rbptrack.analysis.findings import Verdict
from rbptrack.analysis.published import published_in_k
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import log_grid
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, family_runs, runs_of, unreadable

SIZES = np.geomspace(1e4, 1e7, 5)


def separable(alpha: float, beta: float, *, vocab_size: int = 256, sizes: np.ndarray = SIZES) -> Report:
    """-ln RBP_k = 40 S^-alpha k^-beta for every k < |V|, exactly but for sampling."""
    k = np.arange(1, vocab_size)
    pmfs = [np.diff(np.concatenate([[0], np.exp(-40 * s**-alpha * k**-beta), [1]])) for s in sizes]
    return KLaw(replicates=200).analyze(runs_of(sizes, pmfs, documents=40, tokens=5000))


def test_a_known_surface_is_recovered_and_a_doubling_of_k_is_worth_what_it_is_worth() -> None:
    report = separable(0.25, 0.4)
    slopes, worth = report.tables["slopes"].frame, report.tables["worth_of_k"].frame
    assert slopes["beta"].to_numpy() == pytest.approx(0.4, abs=0.02)
    assert (slopes["r2"] > 0.999).all()
    assert (slopes["largest_deviation"] < 0.03).all()
    assert ((slopes["beta_low"] < 0.4) & (slopes["beta_high"] > 0.4)).mean() >= 0.8
    assert worth["factor_in_s"].to_numpy() == pytest.approx(2 ** (0.4 / 0.25), rel=0.1)
    assert worth["factor_measured"].to_numpy() == pytest.approx(2 ** (0.4 / 0.25), rel=0.1)
    assert ((worth["factor_low"] < 2**1.6) & (worth["factor_high"] > 2**1.6)).mean() >= 0.8
    said = sentences_of(report.findings)
    assert said[0].startswith("-ln RBP_k follows B k^-beta within 10% up to k = 100 in all 5 measurements; beta is ")
    assert any("doubling k from 10 raises RBP" in sentence for sentence in said)


def test_a_law_that_points_do_not_follow_is_not_said_to_hold() -> None:
    """Points twice as high as the line: it was said to hold roughly, whatever the data."""
    k = np.arange(1, 256)
    y = [40 * s**-0.25 * k**-0.4 * (1 + (k > 20)) for s in SIZES]
    runs = runs_of(SIZES, [np.diff(np.concatenate([[0], np.exp(-np.minimum.accumulate(one)), [1]])) for one in y])
    report = KLaw(replicates=50).analyze(runs)
    assert report.findings[0].verdict == Verdict.NO
    assert report.findings[0].estimate > 0.1
    assert "in none of 5 measurements (points lie up to" in sentences_of(report.findings)[0]


def test_slopes_are_plain_least_squares_on_both_grids() -> None:
    runs = family_runs(SIZES, alpha=0.1, a=3.0)
    table = KLaw(largest=30, replicates=50, ks=[1]).analyze(runs).tables["slopes"].frame
    for row in table.itertuples():
        run_id = runs.frame.loc[runs.frame["size"] == row.size, "run_id"].item()
        for grid, beta, r2 in ((log_grid(30), row.beta, row.r2), (np.arange(1, 31), row.beta_every_k, row.r2_every_k)):
            y = -np.log(runs.histogram(run_id).rbp_curve(grid))
            line = stats.linregress(np.log(grid), np.log(y))
            assert (beta, r2) == pytest.approx((-line.slope, line.rvalue**2))


def test_few_sizes_have_slopes_but_no_trade_off() -> None:
    report = KLaw(largest=30, replicates=50).analyze(family_runs(SIZES[:1], alpha=0.1, a=3.0))
    assert len(report.tables["slopes"].frame) == 1
    assert "worth_of_k" not in report.tables
    assert "what a larger k is worth in S needs 3 sizes, and there is 1 size" in sentences_of(report.findings)[-1]


def test_where_rbp_is_one_nothing_is_fitted() -> None:
    pmf = np.eye(1, 64)[0]
    with pytest.raises(RbptrackError, match="0, 1 or unknown at nearly every k"):
        KLaw(replicates=20).analyze(runs_of([1e4], [pmf], documents=10, tokens=100))


def test_imported_numbers_without_ranks_are_fitted_at_the_k_they_have() -> None:
    whole = family_runs(SIZES, alpha=0.1, a=3.0)
    frame = whole.frame.assign(vocab_size=None)
    for k in (3, 30):
        frame[f"rbp_{k}"] = [whole.histogram(run_id).rbp(k) for run_id in frame["run_id"]]
    imported = changed(whole, frame, histogram=unreadable, ranks=unreadable)
    table = KLaw(replicates=20).analyze(imported).tables["slopes"].frame
    assert len(table) == len(SIZES)
    for row in table.itertuples():
        y = frame.loc[frame["size"] == row.size, ["rbp_1", "rbp_3", "rbp_10", "rbp_30"]].to_numpy(dtype=float)[0]
        assert row.beta == pytest.approx(-stats.linregress(np.log([1, 3, 10, 30]), np.log(-np.log(y))).slope)
    assert table[["beta_low", "beta_high", "beta_every_k"]].isna().all(axis=None)


def test_published_exponents_are_drawn_beside_the_measured_ones() -> None:
    table = published_in_k().query("family == 'pythia' and dataset == 'wiki'")
    runs = family_runs(np.geomspace(1e7, 1e9, len(table)), alpha=0.1, a=3.0, family="pythia", dataset="wiki")
    runs.frame["size"] = list(table["size"])
    drawings = KLaw(replicates=20).analyze(runs).drawings
    dotted = [line for line in drawings["against_k_pythia"].figure.axes[0].lines if line.get_lw() == 1.6]
    slopes = [-np.polyfit(np.log(line.get_xdata()), np.log(line.get_ydata()), 1)[0] for line in dotted]
    assert slopes == pytest.approx(list(table["beta"]))
    hollow = [line for line in drawings["beta_against_size"].figure.axes[0].lines if line.get_mfc() == "none"]
    assert list(hollow[0].get_ydata()) == pytest.approx(list(table["beta"]))
