"""Tests of several estimates that share documents or models: adjusted p, bands, weighted sums and means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rbptrack.stats import (
    Estimate,
    Law,
    Row,
    adjust,
    combination,
    correlations,
    homogeneity,
    laws,
    simultaneous_level,
)
from rbptrack.stats.estimate import DocumentInfluences

M = 6
S = np.geomspace(1e6, 1e9, M)


def equal_correlation(rows: int, correlation: float) -> np.ndarray:
    return np.where(np.eye(rows) == 1, 1.0, correlation)


def test_adjust_without_correlations_is_holms_method_worked_out_by_hand() -> None:
    adjusted = adjust(np.array([0.01, 0.04, 0.03, 0.005]), np.eye(4))
    assert adjusted.tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(1e-12, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_adjust_is_between_p_and_holm_and_keeps_the_order(p: list[float], correlation: float) -> None:
    adjusted = adjust(np.array(p), equal_correlation(len(p), correlation))
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= adjust(np.array(p), np.eye(len(p))) + 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_adjust_of_two_correlated_scores_is_the_probability_of_a_larger_maximum() -> None:
    """P(max |Z_i| >= z) = 1 - P(|Z_1| < z, |Z_2| < z), from the distribution function of a bivariate normal."""
    p = np.array([0.02, 0.5])
    z = stats.norm.isf(0.01)
    both = stats.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]])
    inside = both.cdf([z, z], lower_limit=[-z, -z])
    assert adjust(p, equal_correlation(2, 0.8))[0] == pytest.approx(1 - inside, rel=0.06)


def test_adjust_of_perfectly_correlated_tests_counts_one_test() -> None:
    p = np.full(6, 0.03)
    assert adjust(p, np.ones((6, 6))) == pytest.approx(p, rel=0.1)


def test_adjust_adds_up_blocks_of_rows() -> None:
    """Two pairs of rows. The rows of a pair are one test, so there are two tests."""
    correlation = np.kron(np.eye(2), np.ones((2, 2)))
    assert adjust(np.full(4, 0.03), correlation) == pytest.approx(np.full(4, 0.06), rel=0.1)


def law_of(rng: np.random.Generator, shared: np.ndarray, scatter: float = 0.01) -> Law:
    """Return a law with exponent 0.1, whose documents have the influences `shared` and some of their own, (100, M)."""
    tokens = np.full(100, 200.0)
    own = rng.normal(0, 0.1, (100, M))
    nats = tokens[:, None] * 3 * S**-0.1 * np.exp(shared + own + rng.normal(0, scatter, M))
    sizes = [np.column_stack([tokens, nats[:, i]]) for i in range(M)]
    [law] = laws(S, sizes, lambda sums: sums[..., 1] / sums[..., 0])
    assert law is not None
    return law


def slopes(rng: np.random.Generator) -> np.ndarray:
    return np.outer(rng.normal(0, 0.2, 100), np.linspace(-1, 1, M))


def test_correlation_of_laws_on_the_same_documents_is_a_little_below_that_of_their_errors() -> None:
    """Two families share the slopes of documents, which cause most of the variance of their exponents.

    The scatter of the models still contains a part of the noise of the documents, which lowers the correlation.
    """
    rng = np.random.default_rng(1)
    exponents = []
    estimated = []
    for _ in range(300):
        shared = slopes(rng)
        pair = [law_of(rng, shared, 0.001).alpha for _ in range(2)]
        exponents.append([alpha.value for alpha in pair])
        estimated.append(correlations([Row(pair[0], "d", "a"), Row(pair[1], "d", "b")])[0, 1])
    assert 0 < np.corrcoef(np.array(exponents).T)[0, 1] - np.mean(estimated) < 0.15


def test_correlation_is_0_if_rows_share_neither_documents_nor_models() -> None:
    rng = np.random.default_rng(1)
    shared = slopes(rng)
    rows = [Row(law_of(rng, shared).alpha, "d", "a"), Row(law_of(rng, shared).alpha, "e", "b")]
    assert correlations(rows)[0, 1] == 0
    assert correlations([Row(Estimate(1.0, 1.0), "d", "a")] * 2)[0, 1] == 0


def test_correlation_of_three_residuals_is_0_because_they_span_one_dimension() -> None:
    rng = np.random.default_rng(1)
    rows = [Row(Estimate(0.1, scatter=1.0, df=1, residuals=rng.normal(size=3)), "d", "a") for _ in range(2)]
    assert correlations(rows)[0, 1] == 0


def test_at_least_one_of_several_true_hypotheses_is_rejected_in_at_most_5_percent() -> None:
    """18 rows: six correlated numbers in each of three families of 6 models, without influences of documents."""
    rng = np.random.default_rng(2)
    root = np.linalg.cholesky(equal_correlation(6, 0.9))
    x = np.linspace(-1, 1, M)
    w = x / (x @ x)
    rejected = 0
    rejected_by_holm = 0
    for _ in range(300):
        rows = []
        for family in "abc":
            y = rng.standard_normal((M, 6)) @ root.T
            residuals = y - y.mean(axis=0) - np.outer(x, w @ y)
            variances = (residuals**2).sum(axis=0) / (M - 2) * (w @ w)
            for slope, variance, row_residuals in zip(w @ y, variances, residuals.T, strict=True):
                rows.append(Row(Estimate(slope, 0.0, variance, M - 2, residuals=row_residuals), "d", family))
        p = np.array([row.estimate.p() for row in rows])
        rejected += bool((adjust(p, correlations(rows)) < 0.05).any())
        rejected_by_holm += bool((adjust(p, np.eye(18)) < 0.05).any())
    assert rejected_by_holm < rejected <= 25  # 5% are 15, and 25 are 2.7 standard deviations more


def test_simultaneous_level_is_between_those_of_one_and_of_independent_rows() -> None:
    rng = np.random.default_rng(3)
    shared = rng.standard_normal(200)
    shares = np.full(200, 1 / 200)
    rows = []
    for _ in range(10):
        u = shared + 0.3 * rng.standard_normal(200)
        rows.append(Row(Estimate(0.0, 1.0, documents=DocumentInfluences(u, shares)), "d", "a"))
    assert 0.95 < simultaneous_level(rows) < 0.99
    assert simultaneous_level(rows[:1]) == 0.95
    assert simultaneous_level([Row(Estimate(0.0, 1.0), "d", "a")] * 10) == pytest.approx(0.995)
    assert simultaneous_level([]) == 0.95


def test_combination_adds_standard_errors_of_the_same_documents_if_influences_are_unknown() -> None:
    rows = [Row(Estimate(1.0, 4.0, sampling_df=9), "d", "a"), Row(Estimate(2.0, 9.0, sampling_df=7), "d", "b")]
    mean = combination(rows, [0.5, 0.5])
    assert (mean.value, mean.sampling_df) == (1.5, 7)
    assert mean.sampling == pytest.approx(6.25)
    elsewhere = combination([rows[0], Row(rows[1].estimate, "e", "b")], [0.5, 0.5])
    assert elsewhere.sampling == pytest.approx((4 + 9) / 4)


def test_combination_without_intervals_has_none() -> None:
    rows = [Row(Estimate(1.0, 4.0), "d", "a"), Row(Estimate(2.0, df=np.nan), "e", "b")]
    assert not combination(rows, [0.5, 0.5]).has_interval


def test_mean_of_equal_values_is_precise_and_finds_no_difference() -> None:
    rows = [Row(Estimate(1.0 + 0.1 * i, 1.0), f"d{i}", f"f{i}") for i in range(4)]
    mean = combination(rows, [1 / 4] * 4)
    assert mean.value == pytest.approx(1.15)
    assert mean.se == pytest.approx(0.5)
    assert homogeneity(rows) > 0.9


def test_mean_with_one_law_that_scatters_more_than_the_others_covers() -> None:
    """One of four families scatters 4 times as much as the others, and each has its own exponent."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(300):
        truth = rng.normal(0.1, 0.02, 4)
        rows = []
        for i in range(4):
            y = -truth[i] * np.log(S) + rng.normal(0, 0.04 if i == 0 else 0.01, M)
            line = np.polyfit(np.log(S), y, 1)
            residuals = y - np.polyval(line, np.log(S))
            variance = residuals @ residuals / (M - 2) / ((np.log(S) - np.log(S).mean()) ** 2).sum()
            rows.append(Row(Estimate(-line[0], 0.0, variance, M - 2, residuals=residuals), f"d{i}", f"f{i}"))
        mean = combination(rows, [1 / 4] * 4)
        covered += abs(mean.value - truth.mean()) <= mean.half_width()
    assert covered / 300 > 0.92
