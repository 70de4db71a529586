"""Tests of laws over sizes and of the law in k: exponents, predictions, bends and their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rbptrack.ranks import DocumentCounts, FloatArray
from rbptrack.stats import (
    cross_entropy,
    fit,
    independent_difference,
    ks_with_enough_misses,
    laws,
    neg_log_rbp,
    neg_log_rbp_over_ce,
)
from rbptrack.stats.estimate import DocumentInfluences
from rbptrack.stats.laws import law_in_k
from rbptrack.stats.sums import TOTALS

S = np.geomspace(1e5, 1e9, 6)


def points_near_law(sigma: float = 0.05, sizes: int = 6, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return sizes s and values y near the law y = 10 s^-0.2, both (sizes,).

    Normal noise with the standard deviation sigma is added to ln y.
    """
    s = np.geomspace(1e5, 1e9, sizes)
    return s, 10 * s**-0.2 * np.exp(np.random.default_rng(seed).normal(0, sigma, sizes))


def counts_of_sizes(sizes: FloatArray, documents: int = 40, hardness_sd: float = 0.0) -> list[DocumentCounts]:
    """Return the counts of each size s on the same documents. Their laws are CE = 8 s^-0.1 and -ln RBP_1 = 9 s^-0.15.

    The hardness of a document multiplies its CE and its -ln RBP_1 at all sizes by the same random factor. The logarithm
    of the factor is normal with the standard deviation hardness_sd.
    """
    rng = np.random.default_rng(0)
    tokens = rng.integers(100, 300, documents)
    hardness = rng.normal(0, hardness_sd, documents)
    counts = []
    for s in sizes:
        nats = tokens * 8 * s**-0.1 * np.exp(hardness)
        hits = tokens * np.exp(-9 * s**-0.15 * np.exp(hardness))
        counts.append(DocumentCounts((1,), np.arange(documents), tokens, nats, hits[:, None]))
    return counts


def influences_of_equal_lengths(u: FloatArray) -> list[DocumentInfluences]:
    """Return the influences u on ln y at each size, (m, documents), as those of documents of equal length."""
    return [DocumentInfluences(size_u, np.full(len(size_u), 1 / len(size_u))) for size_u in u]


@given(st.floats(-1, 1), st.floats(0.1, 100), st.integers(2, 9))
def test_fit_recovers_exact_law(alpha: float, a: float, sizes: int) -> None:
    s = np.geomspace(1e4, 1e9, sizes)
    law = fit(s, a * s**-alpha)
    assert law.alpha.value == pytest.approx(alpha, abs=1e-9)
    assert law.a == pytest.approx(a, rel=1e-7)
    assert law.ends == pytest.approx([a * 1e4**-alpha, a * 1e9**-alpha], rel=1e-7)


def test_fit_without_documents_is_ordinary_least_squares() -> None:
    s, y = points_near_law()
    reference = stats.linregress(np.log(s), np.log(y))
    law = fit(s, y)
    assert law.alpha.value == pytest.approx(-reference.slope)
    assert law.alpha.se == pytest.approx(reference.stderr)
    assert law.alpha.p() == pytest.approx(reference.pvalue, rel=1e-6)
    assert law.ln_a.se == pytest.approx(reference.intercept_stderr)
    assert law.r2 == pytest.approx(reference.rvalue**2)
    residual = np.log(y) - reference.intercept - reference.slope * np.log(s)
    assert law.largest_deviation == pytest.approx(np.abs(np.exp(residual) - 1).max())


def test_fit_does_not_depend_on_order_of_sizes() -> None:
    s, y = points_near_law()
    u = np.random.default_rng(1).normal(0, [[1e-3], [2e-3], [3e-3], [4e-3], [5e-3], [6e-3]], (6, 40))
    order = [3, 0, 5, 1, 4, 2]
    ascending = fit(s, y, influences_of_equal_lengths(u))
    shuffled = fit(s[order], y[order], influences_of_equal_lengths(u[order]))
    assert shuffled.alpha.value == pytest.approx(ascending.alpha.value)
    assert shuffled.alpha.sampling == pytest.approx(ascending.alpha.sampling)
    assert shuffled.alpha.sampling_df == pytest.approx(ascending.alpha.sampling_df)
    assert shuffled.held_out().value == pytest.approx(ascending.held_out().value)


def test_influences_equal_at_all_sizes_add_no_variance_to_alpha() -> None:
    s, y = points_near_law()
    u = np.random.default_rng(1).normal(0, 0.01, 40)
    law = fit(s, y, influences_of_equal_lengths([u] * 6))
    assert law.alpha.sampling == pytest.approx(0, abs=1e-12)
    assert law.ln_a.sampling == pytest.approx(u @ u * 39 / 40)


def test_influences_that_differ_between_sizes_add_variance_to_alpha() -> None:
    s, y = points_near_law()
    u = np.random.default_rng(1).normal(0, 0.01, 40)
    law = fit(s, y, influences_of_equal_lengths([np.roll(u, i) for i in range(6)]))
    assert law.alpha.sampling > 0


def test_alpha_that_one_document_decides_has_wide_interval() -> None:
    """Only one of 40 documents has an influence, at the largest size. So K is 1, and t has 3K - 1 = 2 df."""
    s, y = points_near_law(sigma=0.0)
    u = np.zeros((6, 40))
    u[-1, 7] = 0.01
    alpha = fit(s, y, influences_of_equal_lengths(u)).alpha
    assert alpha.sampling_df == pytest.approx(2)
    assert alpha.half_width() == pytest.approx(stats.t.ppf(0.975, 2) * alpha.sampling**0.5, rel=1e-6)


def test_held_out_is_error_of_prediction_at_largest_size() -> None:
    s, y = points_near_law()
    predicted = fit(s[:-1], y[:-1]).predict(s[-1])
    held_out = fit(s, y).held_out()
    assert held_out.value == pytest.approx(np.log(y[-1]) - predicted.value)
    assert held_out.df == 3


def test_held_out_has_variance_of_textbook_prediction_interval() -> None:
    s, y = points_near_law()
    x = np.log(s[:-1])
    reference = stats.linregress(x, np.log(y[:-1]))
    residual = np.log(y[:-1]) - reference.intercept - reference.slope * x
    variance = residual @ residual / 3
    leverage = 1 / 5 + (np.log(s[-1]) - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    assert fit(s, y).held_out().scatter == pytest.approx(variance * (1 + leverage))


def test_predict_has_value_of_law_and_more_than_its_scatter() -> None:
    s, y = points_near_law()
    law = fit(s, y)
    assert law.predict(1e10).value == pytest.approx(np.log(law.a) - law.alpha.value * np.log(1e10))
    assert law.predict(s[0]).scatter > law.scatter


def test_bend_is_coefficient_of_square_term_with_its_t_test() -> None:
    s, y = points_near_law(sizes=8)
    x = np.log(s)
    design = np.column_stack([np.ones(8), x - x.mean(), (x - x.mean()) ** 2])
    coefficients, squares, *_ = np.linalg.lstsq(design, np.log(y), rcond=None)
    se = np.sqrt(squares[0] / 5 * np.linalg.inv(design.T @ design)[2, 2])
    bend = fit(s, y).bend()
    assert bend.value == pytest.approx(coefficients[2])
    assert bend.p() == pytest.approx(2 * stats.t.sf(abs(coefficients[2] / se), 5), rel=1e-6)


def test_bend_of_law_with_floor_is_positive() -> None:
    s = np.geomspace(1e5, 1e9, 8)
    assert fit(s, 0.5 + 10 * s**-0.2).bend().value > 0


def test_fit_of_two_sizes_has_alpha_without_interval_p_r2_or_deviation() -> None:
    law = fit(S[:2], 5 * S[:2] ** -0.3)
    assert law.alpha.value == pytest.approx(0.3)
    assert np.isnan([law.alpha.half_width(), law.alpha.p(), law.r2, law.largest_deviation]).all()


def test_fit_of_three_sizes_has_no_interval_of_held_out_error_and_bend() -> None:
    law = fit(S[:3], np.array([3.0, 2.0, 1.9]))
    assert np.isfinite(law.alpha.half_width())
    assert np.isnan([law.held_out().half_width(), law.bend().half_width()]).all()


def test_laws_fits_statistic_of_counts() -> None:
    [law] = laws(S, counts_of_sizes(S), cross_entropy)
    assert law.alpha.value == pytest.approx(0.1)
    assert law.a == pytest.approx(8)


def test_laws_has_interval_of_each_value_if_an_earlier_value_has_no_law() -> None:
    counts = counts_of_sizes(S, hardness_sd=0.3)
    [expected] = laws(S, counts, cross_entropy)
    without_law, law = laws(S, counts, lambda x: np.stack([0 * x[..., 2] / x[..., 0], cross_entropy(x)], axis=-1))
    assert without_law is None
    assert law.alpha.interval() == pytest.approx(expected.alpha.interval())


def test_fit_of_sizes_on_different_documents_adds_their_variances() -> None:
    """The influences of n documents are c or -c. The variance of ln y is then (n - 1) c^2."""
    s, y = points_near_law(sizes=3)
    numbers = (30, 40, 60)
    u = [c * np.where(np.arange(n) % 2, 1.0, -1.0) for n, c in zip(numbers, (1e-3, 2e-3, 3e-3), strict=True)]
    alpha = fit(s, y, influences_of_equal_lengths(u)).alpha
    weights = -(np.log(s) - np.log(s).mean()) / np.var(np.log(s)) / 3
    assert alpha.sampling == pytest.approx(
        weights[0] ** 2 * 29e-6 + weights[1] ** 2 * 39 * 4e-6 + weights[2] ** 2 * 59 * 9e-6
    )
    squares = np.repeat(weights**2 * np.array([1e-6, 4e-6, 9e-6]), numbers)
    assert alpha.deciding_documents == pytest.approx(squares.sum() ** 2 / (squares**2).sum())


def test_laws_of_ratio_has_difference_of_exponents() -> None:
    counts = counts_of_sizes(S, hardness_sd=0.3)
    [rbp_law] = laws(S, counts, neg_log_rbp)
    [ce_law] = laws(S, counts, cross_entropy)
    [ratio_law] = laws(S, counts, neg_log_rbp_over_ce)
    assert ratio_law.alpha.value == pytest.approx(rbp_law.alpha.value - ce_law.alpha.value)
    assert ratio_law.alpha.sampling < rbp_law.alpha.sampling + ce_law.alpha.sampling


def test_laws_pairs_documents_over_sizes() -> None:
    """Hard documents are hard at all sizes: they move the factor A, but not the exponent."""
    [law] = laws(S, counts_of_sizes(S, hardness_sd=0.5), cross_entropy)
    assert law.alpha.sampling < 1e-16
    assert law.ln_a.sampling > 1e-4


def test_laws_over_4_documents_have_scatter_of_models_as_their_error() -> None:
    [law] = laws(S, counts_of_sizes(S, documents=4), cross_entropy)
    without_documents = fit(S, law.y)
    assert law.alpha == without_documents.alpha
    assert law.alpha.has_interval
    assert law.held_out() == without_documents.held_out()


def test_laws_of_totals_alone_have_scatter_of_models_as_their_error() -> None:
    scatter = np.random.default_rng(0).normal(0, 0.01, 6)
    counts = []
    for ce in 8 * S**-0.1 * np.exp(scatter):
        totals = DocumentCounts((1,), np.array([TOTALS]), np.array([1.0]), np.array([ce]), np.array([[0.3]]))
        counts.append(totals)
    [law] = laws(S, counts, cross_entropy)
    assert not law.sigma.any()
    assert np.isfinite(law.alpha.half_width())


def test_laws_takes_sizes_with_unequal_numbers_of_documents_as_independent() -> None:
    counts = [*counts_of_sizes(S[:5], hardness_sd=0.3), *counts_of_sizes(S[5:], documents=60, hardness_sd=0.3)]
    [law] = laws(S, counts, cross_entropy)
    sigma = law.sigma
    assert (np.diag(sigma) > 0).all()
    assert not (sigma - np.diag(np.diag(sigma))).any()


def test_laws_of_missed_share_without_logarithm_is_none() -> None:
    """If no token or every token is a hit, ln(-ln RBP_1) is infinite."""
    counts = counts_of_sizes(S)
    without_hits = [replace(size_counts, hits=0 * size_counts.hits) for size_counts in counts]
    all_hits = [replace(size_counts, hits=size_counts.tokens[:, None]) for size_counts in counts]
    assert laws(S, without_hits, neg_log_rbp) == [None]
    assert laws(S, all_hits, neg_log_rbp) == [None]


def test_laws_fits_one_law_for_each_value_of_statistic() -> None:
    counts = [size.select([1, 1]) for size in counts_of_sizes(S)]
    assert [law.alpha.value for law in laws(S, counts, neg_log_rbp)] == pytest.approx([0.15, 0.15])


def test_laws_of_user_defined_sums_equals_laws_of_counts() -> None:
    counts = counts_of_sizes(S, hardness_sd=0.3)
    [by_sums] = laws(S, [size.sums for size in counts], lambda totals: totals[..., 1] / totals[..., 0])
    [by_counts] = laws(S, counts, cross_entropy)
    assert by_sums.alpha.value == pytest.approx(by_counts.alpha.value)
    assert by_sums.sigma == pytest.approx(by_counts.sigma)


def test_law_in_k_recovers_exact_law() -> None:
    ks = (1, 2, 5, 10, 100)
    tokens = np.full(30, 1000)
    hits = np.tile(1000 * np.exp(-2.0 * np.array(ks) ** -0.4), (30, 1))
    beta, line = law_in_k(DocumentCounts(ks, np.arange(30), tokens, tokens, hits), 100)
    assert line.s.tolist() == list(ks)
    assert (beta.value, line.a, line.r2) == pytest.approx((0.4, 2.0, 1.0))
    assert line.largest_deviation == pytest.approx(0, abs=1e-12)
    assert beta.half_width() == pytest.approx(0, abs=1e-12)  # all documents are equal


def test_interval_of_alpha_covers_with_heavy_tailed_documents_and_scatter_of_models() -> None:
    rng = np.random.default_rng(5)
    s = np.geomspace(1e6, 1e9, 5)
    covered = 0
    for _ in range(200):
        hardness = rng.standard_t(3, 50) * 0.2
        scatter = rng.normal(0, 0.02, 5)
        counts = []
        for i in range(5):
            nats = 100 * 8 * s[i] ** -0.1 * np.exp(hardness + rng.normal(0, 0.1, 50) + scatter[i])
            counts.append(DocumentCounts((), np.arange(50), np.full(50, 100), nats, np.zeros((50, 0))))
        [law] = laws(s, counts, cross_entropy)
        covered += abs(law.alpha.value - 0.1) < law.alpha.half_width()
    assert covered / 200 > 0.92


def test_difference_of_exponents_adds_scatters_and_has_degrees_of_freedom_between_4_and_10() -> None:
    alpha_of_6_sizes = fit(*points_near_law(seed=1)).alpha
    alpha_of_8_sizes = fit(*points_near_law(seed=2, sizes=8)).alpha
    difference = independent_difference(alpha_of_6_sizes, alpha_of_8_sizes)
    assert difference.scatter == pytest.approx(alpha_of_6_sizes.scatter + alpha_of_8_sizes.scatter)
    assert 4 <= difference.df <= 10


def counts_with_few_hits_and_few_misses() -> DocumentCounts:
    """Return counts of 3,000 tokens: no hit at k = 1, and only 5 misses at k = 10."""
    hits = np.tile([0, 40, 50, 60, 99], (30, 1))
    hits[:25, 4] = 100
    return DocumentCounts((1, 2, 3, 4, 10), np.arange(30), np.full(30, 100), np.full(30, 100.0), hits)


def test_law_in_k_leaves_out_k_with_no_hits_or_few_misses() -> None:
    _, line = law_in_k(counts_with_few_hits_and_few_misses(), 100)
    assert line.s.tolist() == [2, 3, 4]


def test_law_in_k_needs_three_ks() -> None:
    counts = counts_with_few_hits_and_few_misses()
    assert law_in_k(counts.select([2, 3, 4]), 100) is not None
    assert law_in_k(counts.select([2, 3]), 100) is None


def test_ks_with_enough_misses_are_those_of_every_model() -> None:
    """Of 100 tokens, 10 and 9 have a rank above 5 in the first model, and 9 and 10 in the second."""
    models = [
        DocumentCounts((1, 5), np.arange(1), np.array([100]), np.ones(1), np.array([hits]))
        for hits in ([90, 91], [91, 90])
    ]
    assert ks_with_enough_misses(models[:1]) == [1]
    assert ks_with_enough_misses(models[1:]) == [5]
    assert ks_with_enough_misses(models) == ks_with_enough_misses(models[::-1]) == []


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_interval_of_alpha_covers_if_models_of_one_size_share_a_deviation(seeds: int) -> None:
    """The counts of the models of one size are added; `seeds` is their number.

    A model's deviation from the law is the sum of its own deviation and of one that all models of its size share.
    """
    rng = np.random.default_rng(seeds)
    s = np.geomspace(1e6, 1e9, 4)
    covered = 0
    for _ in range(500):
        deviation_of_size = rng.normal(0, 0.015, len(s))
        counts = []
        for i in range(len(s)):
            ce = 5 * s[i] ** -0.1 * np.exp(deviation_of_size[i] + rng.normal(0, 0.015, seeds))
            totals = [DocumentCounts((), np.array([TOTALS]), np.ones(1), np.array([y]), np.ones((1, 0))) for y in ce]
            counts.append(sum(totals[1:], start=totals[0]))
        [law] = laws(s, counts, cross_entropy)
        low, high = law.alpha.interval()
        covered += low < 0.1 < high
    assert 0.92 < covered / 500 < 0.98


def test_scatter_of_law_is_without_the_noise_of_documents() -> None:
    """The residual maker M of a line through 4 equal steps of ln S: tr(M Sigma) is the sum of M * Sigma."""
    rng = np.random.default_rng(3)
    s = np.geomspace(1e6, 1e9, 4)
    u = rng.normal(0, 0.002, (4, 50))
    y = s**-0.1 * np.exp([0.02, -0.02, -0.02, 0.02])
    law = fit(s, y, influences_of_equal_lengths(u))
    design = np.stack([np.ones(4), np.log(s)], axis=1)
    maker = np.eye(4) - design @ np.linalg.pinv(design)
    noise = np.trace(maker @ law.sigma)
    assert law.noise == pytest.approx(noise)
    assert law.scatter == pytest.approx((4 * 0.02**2 - noise / 2) / 2)
    assert fit(s, y).scatter == pytest.approx(4 * 0.02**2 / 2)


def test_scatter_of_law_that_documents_explain_is_0() -> None:
    s = np.geomspace(1e6, 1e9, 7)
    u = np.random.default_rng(3).normal(0, 0.02, (7, 50))
    law = fit(s, s**-0.1, influences_of_equal_lengths(u))
    assert law.scatter == law.alpha.scatter == law.bend().scatter == 0
    assert law.alpha.half_width() > 0


def test_bend_is_without_the_noise_of_documents() -> None:
    s = np.geomspace(1e6, 1e9, 5)
    rng = np.random.default_rng(3)
    u = rng.normal(0, 0.002, (5, 50))
    law = fit(s, s**-0.1 * np.exp(rng.normal(0, 0.05, 5)), influences_of_equal_lengths(u))
    x = np.log(s) - np.log(s).mean()
    design = np.stack([np.ones(5), x, x**2], axis=1)
    inverse = np.linalg.pinv(design)
    maker = np.eye(5) - design @ inverse
    variance = (law.lines.ln_y[0] @ maker @ law.lines.ln_y[0] - np.trace(maker @ law.sigma) / 2) / 2
    assert law.bend().value == pytest.approx(inverse[2] @ law.lines.ln_y[0])
    assert law.bend().scatter == pytest.approx(variance * inverse[2] @ inverse[2])
