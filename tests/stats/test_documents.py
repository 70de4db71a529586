"""Tests of statistics of sums over documents, and of the jackknife over documents or groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from rbptrack.ranks import DocumentCounts, FloatArray
from rbptrack.stats import MIN_UNITS, Sums, ce_and_rbp, cross_entropy, estimate, neg_log_rbp, neg_log_rbp_over_ce, rbp
from rbptrack.stats.documents import (
    covariance,
    deciding_documents,
    degrees_of_freedom,
    estimate_from_influences,
    half_widths,
    influences,
    shares_of_tokens,
)


def counts_of(
    tokens: ArrayLike, nats: ArrayLike, hits: ArrayLike | None = None, ks: Sequence[int] = (1,)
) -> DocumentCounts:
    """Return the counts of documents with these tokens, nats and hits at each k; without `hits`, there are none."""
    tokens = np.asarray(tokens)
    if hits is None:
        hits = np.zeros((len(tokens), len(ks)))
    return DocumentCounts(tuple(ks), np.arange(len(tokens)), tokens, np.asarray(nats), np.asarray(hits))


def random_counts(documents: int) -> DocumentCounts:
    """Return counts at k = 1 and k = 10 of documents that differ in length and in their share of hits."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(50, 200, documents)
    share = rng.beta(4, 6, documents)
    hits = np.column_stack([rng.binomial(tokens, share), rng.binomial(tokens, share**0.5)])
    return counts_of(tokens, tokens * (3 - share) + rng.normal(0, 1, documents), hits, ks=(1, 10))


def test_statistics_of_two_documents_worked_out_by_hand() -> None:
    counts = counts_of([10, 30], [20.0, 40.0], [[1, 5], [9, 25]], ks=(1, 10))
    sums = counts.sums.sum(axis=0)
    assert cross_entropy(sums) == 1.5
    assert rbp(sums).tolist() == [0.25, 0.75]
    assert ce_and_rbp(sums).tolist() == [1.5, 0.25, 0.75]
    assert neg_log_rbp(sums) == pytest.approx(-np.log([0.25, 0.75]))
    assert neg_log_rbp_over_ce(sums) == pytest.approx(-np.log([0.25, 0.75]) / 1.5)


def test_estimate_of_mean_has_its_standard_error() -> None:
    values = np.random.default_rng(1).normal(2, 1, 40)
    number = estimate(counts_of(np.ones(40), values), cross_entropy)
    assert number.value == pytest.approx(values.mean())
    assert number.se == pytest.approx(values.std(ddof=1) / np.sqrt(40))


def change_without_document(counts: DocumentCounts, document: int) -> FloatArray:
    """Return the change of -ln RBP_k at each k if a document is left out."""
    other_counts = counts.take(np.arange(len(counts.tokens)) != document)
    return neg_log_rbp(counts.sums.sum(axis=0)) - neg_log_rbp(other_counts.sums.sum(axis=0))


def test_influences_are_changes_without_a_document_minus_a_constant() -> None:
    counts = random_counts(25)
    _, u = influences(counts, neg_log_rbp)
    assert u.shape == (25, 2)
    constant = change_without_document(counts, 3) - u[3]
    assert change_without_document(counts, 7) - u[7] == pytest.approx(constant)


def test_estimate_of_ratio_has_variance_of_jackknife() -> None:
    """The jackknife's variance is (n - 1) / n times the sum of squares of the values without one document."""
    counts = random_counts(25)
    values = np.array([change_without_document(counts, i)[0] for i in range(25)])
    number = estimate(counts.select([1]), lambda sums: neg_log_rbp(sums)[..., 0])
    assert number.sampling == pytest.approx(24 / 25 * ((values - values.mean()) ** 2).sum(), rel=1e-9)


def test_estimate_of_user_defined_sums_equals_estimate_of_counts() -> None:
    counts = random_counts(30)
    sums = Sums(counts.document, counts.sums)
    by_counts = estimate(counts, cross_entropy)
    by_sums = estimate(sums, lambda totals: totals[..., 1] / totals[..., 0])
    by_array = estimate(counts.sums, cross_entropy)
    assert (by_array.value, by_array.half_width()) == (by_sums.value, by_sums.half_width())
    assert (by_sums.value, by_sums.half_width()) == pytest.approx((by_counts.value, by_counts.half_width()))


def test_sums_of_two_runs_are_added_by_document() -> None:
    sums = Sums(np.arange(4), np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]]))
    assert (sums + sums).sums.tolist() == [[2, 4], [6, 8], [10, 12], [14, 16]]


def test_in_groups_adds_sums_of_documents_in_order_of_first_documents() -> None:
    sums = Sums(np.arange(4), np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]]))
    grouped = sums.in_groups(["b", "a", "b", "a"])
    assert grouped.grouped
    assert grouped.sums.tolist() == [[6, 8], [10, 12]]
    assert grouped.document.tolist() == [0, 1]


@pytest.mark.parametrize("documents", [1, 2, MIN_UNITS - 1])
def test_estimate_of_fewer_than_5_documents_has_no_error(documents: int) -> None:
    number = estimate(random_counts(documents), cross_entropy)
    assert np.isfinite(number.value)
    assert np.isnan([number.half_width(), number.p(), number.se]).all()


def test_estimate_of_4_groups_of_200_documents_has_no_interval() -> None:
    counts = random_counts(200)
    assert np.isfinite(estimate(counts, cross_entropy).half_width())
    grouped = counts.in_groups([i % 4 for i in range(200)])
    assert np.isnan(estimate(grouped, cross_entropy).half_width())


def test_estimate_of_5_documents_has_interval() -> None:
    assert np.isfinite(estimate(random_counts(MIN_UNITS), cross_entropy).half_width())


def test_deciding_documents_of_equal_influences_is_their_number() -> None:
    assert deciding_documents(np.ones(50)) == pytest.approx(50)
    assert deciding_documents(np.array([1.0, 1.0, 1.0, *np.zeros(47)])) == pytest.approx(3)
    assert deciding_documents(np.zeros(8)) == 8


def test_degrees_of_freedom_of_documents_of_equal_length_are_3_k_minus_1_and_at_most_n_minus_1() -> None:
    """For n normal influences, E[u^4] = 3 sd^4. So K is near n / 3, and 3K - 1 is near n - 1 as in Student's test."""
    equal = np.full(30, 1 / 30)
    assert degrees_of_freedom(np.ones(30), equal) == 29
    assert degrees_of_freedom(np.array([1.0, 1.0, *np.zeros(28)]), equal) == pytest.approx(5)
    assert degrees_of_freedom(np.zeros(30), equal) == 29
    u = np.random.default_rng(5).normal(size=(3000, 20))
    assert degrees_of_freedom(u, np.full(3000, 1 / 3000)) == pytest.approx(2999, rel=0.1)


@pytest.mark.parametrize(("long", "expected"), [(1, 1.0), (2, 2.0), (5, 5.0)])
def test_degrees_of_freedom_are_at_most_the_number_of_long_documents(long: int, expected: float) -> None:
    tokens = np.ones(100)
    tokens[:long] = 1000.0
    u = np.ones(100)
    assert degrees_of_freedom(u, tokens / tokens.sum()) == pytest.approx(expected, rel=1e-3)


def test_shares_of_tokens_of_two_documents_add_up_to_1() -> None:
    counts = counts_of([10, 30], [20.0, 40.0])
    assert shares_of_tokens(counts).tolist() == [0.25, 0.75]


def test_shares_of_tokens_of_two_parts_are_those_of_the_part_in_fewer_documents() -> None:
    part_in_one_document = np.array([[1.0, 0], [0, 0], [0, 0]])
    part_in_three_documents = np.array([[5.0, 0], [5, 0], [10, 0]])
    assert shares_of_tokens(np.stack([part_in_one_document, part_in_three_documents], axis=1)).tolist() == [1, 0, 0]
    assert shares_of_tokens(np.stack([part_in_three_documents, part_in_one_document], axis=1)).tolist() == [1, 0, 0]


def test_shares_of_tokens_refuses_a_first_column_that_is_not_the_number_of_tokens() -> None:
    with pytest.raises(ValueError, match="column"):
        shares_of_tokens(np.array([[-1.0, 5], [1, 5]]))
    with pytest.raises(ValueError, match="column"):
        shares_of_tokens(np.ones(30))


def test_shares_of_tokens_ignores_a_part_without_tokens() -> None:
    some = np.array([[6.0, 0], [1, 0], [1, 0]])
    assert shares_of_tokens(np.stack([some, 0 * some], axis=1)).tolist() == [0.75, 0.125, 0.125]


def test_degrees_of_freedom_of_groups_are_at_most_the_number_of_groups_with_most_tokens() -> None:
    """One group holds 960 of 1,000 documents, and 40 groups hold one document each."""
    counts = random_counts(1000)
    grouped = counts.in_groups([0] * 960 + list(range(1, 41)))
    assert estimate(counts, cross_entropy).sampling_df > 100
    assert estimate(grouped, cross_entropy).sampling_df == pytest.approx(1, rel=0.01)


def test_interval_covers_if_a_few_documents_hold_most_tokens() -> None:
    """The true mean is 0. If K_L did not limit the degrees of freedom, 91% of these intervals would contain it."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        tokens = rng.lognormal(0, 2.75, 20)
        number = estimate(counts_of(tokens, tokens * rng.normal(size=20)), cross_entropy)
        covered += abs(number.value) < number.half_width()
    assert covered / 400 > 0.95


@pytest.mark.parametrize("documents", [1, 3, 30])
def test_number_that_few_documents_decide_has_interval_and_p(documents: int) -> None:
    u = np.zeros(40)
    u[:documents] = np.where(np.arange(documents) % 2, 1.0, -1.0)
    number = estimate_from_influences(np.array(1.0), u, np.full(40, 1 / 40))
    assert number.deciding_documents == pytest.approx(documents)
    assert number.p(number.value + number.half_width()) == pytest.approx(0.05)


def test_interval_of_number_that_one_document_decides_is_wide() -> None:
    u = np.full(30, 1e-6)
    u[0] = 1.0
    number = estimate(counts_of(np.ones(30), 1 + u), cross_entropy)
    assert number.half_width() == pytest.approx(stats.t.ppf(0.975, 3 * number.deciding_documents - 1) * number.se)
    assert number.half_width() > 2 * 1.96 * number.se


def test_estimate_of_logarithm_of_0_has_no_interval_and_no_warning() -> None:
    """If all tokens are hits, -ln RBP_1 is 0. A warning would fail this test."""
    counts = counts_of(np.full(30, 10), np.ones(30), np.full((30, 1), 10))
    number = estimate(counts, lambda sums: np.log(neg_log_rbp(sums)))
    assert np.isnan(number.half_width())


def test_covariance_of_influences_on_means_is_that_of_paired_means() -> None:
    x = np.random.default_rng(2).normal(size=(60, 2))
    x[:, 1] += x[:, 0]
    u = (x - x.mean(axis=0)) / 59
    expected = np.cov(x.T) / 60
    assert covariance(u) == pytest.approx(expected, rel=0.02)


def test_interval_covers_mean_of_20_skewed_documents() -> None:
    """An interval by plain percentiles covers only 66 to 87% here."""
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        number = estimate(counts_of(np.ones(20), rng.lognormal(0, 1, 20)), cross_entropy)
        covered += abs(number.value - np.exp(0.5)) < number.half_width()
    assert covered / 300 > 0.88


def test_estimate_has_no_interval_if_one_document_has_all_hits() -> None:
    """Without this document, -ln RBP_1 is infinite."""
    hits = np.zeros((30, 1))
    hits[0] = 3
    number = estimate(counts_of(np.full(30, 10), np.ones(30), hits), neg_log_rbp)
    assert np.isfinite(number.value)
    assert np.isnan([number.half_width(), number.p()]).all()


def test_half_widths_have_the_deciding_documents_as_degrees_of_freedom() -> None:
    u = np.random.default_rng(1).standard_exponential((30, 4))
    u[:, 2] = 0.0
    u[3, 3] = np.inf
    standard_errors = np.sqrt((u[:, :2] ** 2).sum(axis=0) * 29 / 30)
    deciding = (u[:, :2] ** 2).sum(axis=0) ** 2 / (u[:, :2] ** 4).sum(axis=0)
    expected = [*stats.t.ppf(0.975, deciding) * standard_errors, 0.0, np.nan]
    np.testing.assert_allclose(half_widths(u, np.full(30, 1 / 30)), expected)


def test_half_widths_of_4_documents_are_nan() -> None:
    u = np.random.default_rng(1).standard_exponential((4, 4))
    assert np.isnan(half_widths(u, np.full(4, 1 / 4))).all()
