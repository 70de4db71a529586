"""Laws over sizes: exponents, predictions, bends and their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rbptrack.ranks import DocumentCounts
from rbptrack.stats import Estimate, cross_entropy, fit, laws, missed, missed_over_ce
from rbptrack.stats.documents import TOTALS
from rbptrack.stats.laws import ks_of_law_in_k, law_in_k

S = np.geomspace(1e5, 1e9, 6)


def noisy(sigma=0.05, alpha=0.2, sizes=6, seed=0):
    s = np.geomspace(1e5, 1e9, sizes)
    return s, 10 * s**-alpha * np.exp(np.random.default_rng(seed).normal(0, sigma, sizes))


def counts_over(sizes, documents=40, seed=0, noise=0.0):
    """Counts of one text by models with CE = 8 S^-0.1 and -ln RBP_1 = 9 S^-0.15 in expectation."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(100, 300, documents)
    hardness = rng.normal(0, noise, documents)
    made = []
    for s in sizes:
        nats = tokens * 8 * s**-0.1 * np.exp(hardness)
        hits = tokens * np.exp(-9 * s**-0.15 * np.exp(hardness))
        made.append(DocumentCounts((1,), np.arange(documents), tokens, nats, hits[:, None]))
    return made


@given(st.floats(-1, 1), st.floats(0.1, 100), st.integers(2, 9))
def test_an_exact_law_is_found(alpha, a, sizes):
    s = np.geomspace(1e4, 1e9, sizes)
    law = fit(s, a * s**-alpha)
    assert law.alpha.value == pytest.approx(alpha, abs=1e-9)
    assert law.a == pytest.approx(a, rel=1e-7)
    assert law.at(1e11) == pytest.approx(a * 1e11**-alpha, rel=1e-7)


def test_without_documents_it_is_ordinary_least_squares() -> None:
    s, y = noisy()
    reference = stats.linregress(np.log(s), np.log(y))
    law = fit(s, y)
    assert law.alpha.value == pytest.approx(-reference.slope)
    assert law.alpha.se == pytest.approx(reference.stderr)
    assert law.alpha.p() == pytest.approx(reference.pvalue, rel=1e-6)
    assert law.ln_a.se == pytest.approx(reference.intercept_stderr)
    assert law.r2 == pytest.approx(reference.rvalue**2)
    residual = np.log(y) - reference.intercept - reference.slope * np.log(s)
    assert law.largest_deviation == pytest.approx(np.abs(np.exp(residual) - 1).max())


def test_the_order_of_sizes_does_not_matter() -> None:
    s, y = noisy()
    u = np.random.default_rng(1).normal(0, [[1e-3], [2e-3], [3e-3], [4e-3], [5e-3], [6e-3]], (6, 40))
    order = [3, 0, 5, 1, 4, 2]
    straight, mixed = fit(s, y, u), fit(s[order], y[order], u[order])
    assert mixed.alpha.value == pytest.approx(straight.alpha.value)
    assert mixed.alpha.sampling == pytest.approx(straight.alpha.sampling)
    assert mixed.alpha.sampling_df == pytest.approx(straight.alpha.sampling_df)
    assert mixed.held_out().value == pytest.approx(straight.held_out().value)


def test_what_all_sizes_share_leaves_the_exponent_alone() -> None:
    s, y = noisy()
    u = np.random.default_rng(1).normal(0, 0.01, 40)
    shared = fit(s, y, [u] * 6)
    assert shared.alpha.sampling == pytest.approx(0, abs=1e-12)
    assert shared.ln_a.sampling == pytest.approx(u @ u * 39 / 40)
    assert fit(s, y, [np.roll(u, i) for i in range(6)]).alpha.sampling > 0


def test_one_document_that_decides_the_exponent_widens_its_interval() -> None:
    """Of 40 documents one moves the largest size: K is 1, and t has 3K - 1 degrees of freedom."""
    s, y = noisy(sigma=0.0)
    u = np.zeros((6, 40))
    u[-1, 7] = 0.01
    alpha = fit(s, y, u).alpha
    assert alpha.sampling_df == pytest.approx(2)
    assert alpha.half() == pytest.approx(stats.t.ppf(0.975, 2) * alpha.sampling**0.5, rel=1e-6)
    assert np.isnan(alpha.p())


def test_the_held_out_error_is_that_of_the_largest_size() -> None:
    s, y = noisy()
    predicted = fit(s[:-1], y[:-1]).at(s[-1])
    held_out = fit(s, y).held_out()
    assert held_out.value == pytest.approx(np.log(y[-1] / predicted))
    assert held_out.df == 3


def test_the_held_out_interval_is_the_textbook_prediction_interval() -> None:
    s, y = noisy()
    x = np.log(s[:-1])
    reference = stats.linregress(x, np.log(y[:-1]))
    residual = np.log(y[:-1]) - reference.intercept - reference.slope * x
    variance = residual @ residual / 3
    leverage = 1 / 5 + (np.log(s[-1]) - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    assert fit(s, y).held_out().scatter == pytest.approx(variance * (1 + leverage))


def test_a_prediction_is_wider_than_the_law_there() -> None:
    s, y = noisy()
    law = fit(s, y)
    assert law.predict(1e10).value == pytest.approx(np.log(law.at(1e10)))
    assert law.predict(s[0]).scatter > law.scatter


def test_a_bend_is_the_t_test_of_the_square_term() -> None:
    s, y = noisy(sizes=8)
    x = np.log(s)
    design = np.column_stack([np.ones(8), x - x.mean(), (x - x.mean()) ** 2])
    coefficients, squares, *_ = np.linalg.lstsq(design, np.log(y), rcond=None)
    se = np.sqrt(squares[0] / 5 * np.linalg.inv(design.T @ design)[2, 2])
    bend = fit(s, y).bend()
    assert bend.value == pytest.approx(coefficients[2])
    assert bend.p() == pytest.approx(2 * stats.t.sf(abs(coefficients[2] / se), 5), rel=1e-6)


def test_a_floor_bends_the_law_upwards() -> None:
    s = np.geomspace(1e5, 1e9, 8)
    assert fit(s, 0.5 + 10 * s**-0.2).bend().value > 0


def test_two_sizes_have_an_exponent_and_nothing_that_scatter_decides() -> None:
    law = fit(S[:2], 5 * S[:2] ** -0.3)
    assert law.alpha.value == pytest.approx(0.3)
    assert np.isnan([law.alpha.half(), law.alpha.p(), law.r2, law.largest_deviation]).all()


def test_three_sizes_have_no_held_out_interval_and_no_bend() -> None:
    law = fit(S[:3], np.array([3.0, 2.0, 1.9]))
    assert np.isfinite(law.alpha.half())
    assert np.isnan([law.held_out().half(), law.bend().half()]).all()


def test_the_law_of_a_statistic_over_documents() -> None:
    [law] = laws(S, counts_over(S), cross_entropy)
    assert law.alpha.value == pytest.approx(0.1)
    assert law.a == pytest.approx(8)


def test_the_law_of_the_ratio_is_the_difference_of_exponents() -> None:
    counts = counts_over(S, noise=0.3)
    [of_ranks], [of_ce] = laws(S, counts, missed), laws(S, counts, cross_entropy)
    [ratio] = laws(S, counts, missed_over_ce)
    assert ratio.alpha.value == pytest.approx(of_ranks.alpha.value - of_ce.alpha.value)
    assert ratio.alpha.sampling < of_ranks.alpha.sampling + of_ce.alpha.sampling


def test_the_documents_are_paired_over_sizes() -> None:
    # every size has the same hard documents, so that they move A and hardly alpha
    [law] = laws(S, counts_over(S, noise=0.5), cross_entropy)
    assert law.alpha.sampling < 1e-16
    assert law.ln_a.sampling > 1e-4


def test_few_documents_leave_the_law_without_an_interval() -> None:
    [law] = laws(S, counts_over(S, documents=19), cross_entropy)
    assert law.alpha.value == pytest.approx(0.1)
    for number in (law.alpha, law.ln_a, law.held_out(), law.bend(), law.predict(1e12)):
        assert np.isnan([number.half(), number.p()]).all()


def test_totals_alone_leave_the_scatter_of_models() -> None:
    rng = np.random.default_rng(0)
    counts = [
        DocumentCounts((1,), np.array([TOTALS]), np.array([1.0]), np.array([8 * s**-0.1 * e]), np.array([[0.3]]))
        for s, e in zip(S, np.exp(rng.normal(0, 0.01, 6)), strict=True)
    ]
    [law] = laws(S, counts, cross_entropy)
    assert not law.sigma.any()
    assert np.isfinite(law.alpha.half())


def test_sizes_with_other_numbers_of_documents_count_as_independent() -> None:
    counts = [*counts_over(S[:5], noise=0.3), *counts_over(S[5:], documents=60, noise=0.3)]
    [law] = laws(S, counts, cross_entropy)
    sigma = law.sigma
    assert (np.diag(sigma) > 0).all()
    assert not (sigma - np.diag(np.diag(sigma))).any()


def test_a_value_that_has_no_logarithm_has_no_law() -> None:
    counts = counts_over(S)
    none = [DocumentCounts((1,), c.document, c.tokens, c.nats, 0 * c.hits) for c in counts]
    every = [DocumentCounts((1,), c.document, c.tokens, c.nats, c.tokens[:, None]) for c in counts]
    assert laws(S, none, missed) == [None]
    assert laws(S, every, missed) == [None]
    both = laws(S, [c.select([1, 1]) for c in counts], missed)
    assert [law.alpha.value for law in both] == pytest.approx([0.15, 0.15])


def test_sums_of_ones_own_have_the_same_law() -> None:
    counts = counts_over(S, noise=0.3)
    [by_sums] = laws(S, [c.sums for c in counts], lambda totals: totals[..., 1] / totals[..., 0])
    [by_counts] = laws(S, counts, cross_entropy)
    assert by_sums.alpha.value == pytest.approx(by_counts.alpha.value)
    assert by_sums.sigma == pytest.approx(by_counts.sigma)


def test_the_law_in_k_of_an_exact_curve_and_none_where_every_token_is_a_hit() -> None:
    ks = (1, 2, 5, 10, 100)
    tokens = np.full(30, 1000)
    hits = np.tile(1000 * np.exp(-2.0 * np.array(ks) ** -0.4), (30, 1))
    beta, line = law_in_k(DocumentCounts(ks, np.arange(30), tokens, tokens, hits))
    assert (beta.value, line.a, line.r2) == pytest.approx((0.4, 2.0, 1.0))
    assert line.largest_deviation == pytest.approx(0, abs=1e-12)
    assert beta.half() == pytest.approx(0, abs=1e-12)  # every document has the same
    hits[:, -1] = 1000
    assert law_in_k(DocumentCounts(ks, np.arange(30), tokens, tokens, hits)) is None


def test_the_interval_of_alpha_covers_with_documents_and_scatter() -> None:
    rng = np.random.default_rng(5)
    s = np.geomspace(1e6, 1e9, 5)
    covered = 0
    for _ in range(200):
        hardness = rng.standard_t(3, 50) * 0.2
        scatter = rng.normal(0, 0.02, 5)
        counts = []
        for size, off in zip(s, scatter, strict=True):
            nats = 100 * 8 * size**-0.1 * np.exp(hardness + rng.normal(0, 0.1, 50) + off)
            counts.append(DocumentCounts((), np.arange(50), np.full(50, 100), nats, np.zeros((50, 0))))
        [law] = laws(s, counts, cross_entropy)
        covered += abs(law.alpha.value - 0.1) < law.alpha.half()
    assert covered / 200 > 0.92


def test_two_exponents_are_compared_by_welch() -> None:
    first, second = fit(*noisy(seed=1)), fit(*noisy(seed=2, sizes=8))
    difference: Estimate = first.alpha - second.alpha
    assert difference.scatter == pytest.approx(first.alpha.scatter + second.alpha.scatter)
    assert 4 <= difference.df <= 10


def test_the_law_in_k_leaves_out_a_k_without_hits_and_needs_three() -> None:
    """RBP_1 is 0, and 5 tokens of 3,000 miss at k = 10: the law goes through k = 2, 3, 4; of two k there is none."""
    hits = np.tile([0, 40, 50, 60, 99], (30, 1))
    hits[:25, 4] = 100
    counts = DocumentCounts((1, 2, 3, 4, 10), np.arange(30), np.full(30, 100), np.full(30, 100.0), hits)
    assert ks_of_law_in_k(counts, 100) == [2, 3, 4]
    assert law_in_k(counts.select([2, 3, 4])) is not None
    assert law_in_k(counts.select([2, 3])) is None


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_alpha_is_covered_where_the_seeds_of_a_size_have_something_in_common(seeds):
    rng = np.random.default_rng(seeds)
    s = np.geomspace(1e6, 1e9, 4)
    covered = 0
    for _ in range(500):
        of_size = rng.normal(0, 0.015, len(s))
        sizes = []
        for i in range(len(s)):
            ce = 5 * s[i] ** -0.1 * np.exp(of_size[i] + rng.normal(0, 0.015, seeds))
            totals = [DocumentCounts((), np.array([TOTALS]), np.ones(1), np.array([y]), np.ones((1, 0))) for y in ce]
            sizes.append(sum(totals[1:], start=totals[0]))
        [law] = laws(s, sizes, cross_entropy)
        low, high = law.alpha.interval()
        covered += low < 0.1 < high
    assert 0.92 < covered / 500 < 0.98
