"""Tests of differences, homogeneity and means of exponents whose laws share models or documents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rbptrack.ranks import DocumentCounts, FloatArray, IntArray
from rbptrack.stats import (
    Estimate,
    Law,
    Row,
    cross_entropy,
    estimate,
    fit,
    homogeneity,
    independent_difference,
    laws,
    mean_over_datasets,
    mean_over_families,
    paired_difference,
    random_effects,
)
from rbptrack.stats.estimate import DocumentInfluences
from rbptrack.stats.laws import Scatter

S = np.geomspace(1e6, 1e9, 5)
X = np.log(S) - np.log(S).mean()


def random_documents(rng: np.random.Generator, documents: int = 50) -> tuple[IntArray, FloatArray]:
    """Return the number of tokens and the slope of each document, both (documents,).

    Between the mean and the largest ln S, ln CE of a document grows by its slope, in addition to the family's law.
    """
    return rng.integers(50, 500, documents), rng.normal(0, 0.1, documents)


def counts_of_family(
    rng: np.random.Generator,
    tokens: IntArray,
    slope: FloatArray,
    alpha: float = 0.1,
    sign: float = 1.0,
    s: FloatArray = S,
) -> list[DocumentCounts]:
    """Return the counts of each size s of a family: CE falls as S^-alpha, and each document adds sign * slope."""
    x = np.log(s) - np.log(s).mean()
    documents = len(tokens)
    counts = []
    for i in range(len(s)):
        ce = 3 * np.exp(-alpha * x[i] + sign * slope * x[i] / x[-1])
        nats = tokens * ce * np.exp(rng.normal(0, 0.02, documents))
        counts.append(DocumentCounts((), np.arange(documents), tokens, nats, np.zeros((documents, 0))))
    return counts


def law_of_family(rng: np.random.Generator, tokens: IntArray, slope: FloatArray, sign: float = 1.0) -> Law:
    """Return the law of CE in the sizes `S` of the family that `counts_of_family` simulates."""
    [law] = laws(S, counts_of_family(rng, tokens, slope, sign=sign), cross_entropy)
    assert law is not None
    return law


def alpha_weights(s: FloatArray) -> FloatArray:
    """Return the weights of ln y in the exponent of the least-squares law over the sizes s, (sizes,)."""
    x = np.log(s) - np.log(s).mean()
    return -x / (x @ x)


def test_paired_difference_on_same_documents_equals_joint_jackknife() -> None:
    rng = np.random.default_rng(0)
    tokens, slope = random_documents(rng)
    sizes_b = np.geomspace(1e5, 1e8, 4)
    counts_a = counts_of_family(rng, tokens, slope)
    counts_b = counts_of_family(rng, tokens, slope, s=sizes_b)
    [law_a] = laws(S, counts_a, cross_entropy)
    [law_b] = laws(sizes_b, counts_b, cross_entropy)
    sums = np.stack([counts.sums for counts in (*counts_a, *counts_b)], axis=1).reshape(len(tokens), -1)

    def difference_of_slopes(totals: FloatArray) -> FloatArray:
        ln_ce = np.log(totals[..., 1::2] / totals[..., 0::2])
        return ln_ce[..., : len(S)] @ alpha_weights(S) - ln_ce[..., len(S) :] @ alpha_weights(sizes_b)

    expected = estimate(sums, difference_of_slopes)
    difference = paired_difference(law_a.alpha, law_b.alpha)
    assert difference.value == pytest.approx(expected.value)
    assert difference.sampling == pytest.approx(expected.sampling)
    assert difference.sampling_df == pytest.approx(expected.sampling_df)
    assert difference.sampling < 0.2 * independent_difference(law_a.alpha, law_b.alpha).sampling


def test_paired_difference_covers_0_if_documents_move_the_exponents_apart() -> None:
    """The slopes of a document have opposite signs in the two families.

    An interval that treats the exponents as independent contains 0 in only 84.5% of the samples.
    """
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        tokens, slope = random_documents(rng)
        law_a = law_of_family(rng, tokens, slope)
        law_b = law_of_family(rng, tokens, slope, sign=-1.0)
        difference = paired_difference(law_a.alpha, law_b.alpha)
        covered += abs(difference.value) < difference.half_width()
    assert covered / 200 > 0.9


def test_law_over_removes_scatter_of_models_that_two_datasets_share() -> None:
    rng = np.random.default_rng(3)
    scatter = rng.normal(0, 0.1, 5)
    laws_of_datasets = []
    for alpha in (0.1, 0.15):
        tokens, slope = random_documents(rng)
        [law] = laws(S, counts_of_family(rng, tokens, slope, alpha=alpha), cross_entropy)
        influences = [DocumentInfluences(u, law.documents.shares) for u in law.documents.u.T]
        laws_of_datasets.append(fit(S, law.y * np.exp(scatter), influences))
    law_a, law_b = laws_of_datasets
    ratio = law_b.over(law_a)
    independent = independent_difference(law_b.alpha, law_a.alpha)
    assert ratio.alpha.value == pytest.approx(law_b.alpha.value - law_a.alpha.value)
    assert ratio.alpha.sampling == pytest.approx(law_a.alpha.sampling + law_b.alpha.sampling)
    assert ratio.alpha.deciding_documents == pytest.approx(independent.deciding_documents, rel=0.3)
    assert ratio.alpha.scatter < 0.01 * independent.scatter
    assert ratio.alpha.half_width() < 0.5 * independent.half_width()


def test_fit_takes_several_models_of_one_size_as_points() -> None:
    rng = np.random.default_rng(4)
    s = np.repeat(S, 3)
    y = 20 * s**-0.2 * np.exp(rng.normal(0, 0.05, 15))
    reference = stats.linregress(np.log(s), np.log(y))
    law = fit(s, y)
    assert law.alpha.value == pytest.approx(-reference.slope)
    assert law.alpha.half_width() == pytest.approx(stats.t.ppf(0.975, 13) * reference.stderr)


def test_alpha_with_shared_scatter_has_t_interval_of_that_scatter() -> None:
    law = fit(S[:3], np.exp(np.random.default_rng(5).normal(0, 0.1, 3)))
    alpha = replace(law, shared=Scatter(0.01, 4)).alpha
    weights = alpha_weights(S[:3])
    assert alpha.half_width() == pytest.approx(stats.t.ppf(0.975, 4) * np.sqrt(0.01 * weights @ weights))


def test_random_effects_of_equal_errors_has_t_interval_of_mean() -> None:
    values = np.array([0.1, 0.14, 0.22, 0.08])
    mean = random_effects([Estimate(value, scatter=1e-4, df=9) for value in values], Estimate(0.0))
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert mean.mean.interval() == pytest.approx((low, high))
    assert mean.tau == pytest.approx(np.sqrt(values.var(ddof=1) - 1e-4))
    half_width = stats.t.ppf(0.975, 2) * np.sqrt(mean.tau**2 + stats.sem(values) ** 2)
    assert (mean.low, mean.high) == pytest.approx((values.mean() - half_width, values.mean() + half_width))


def test_homogeneity_of_two_independent_values_is_the_test_of_their_difference() -> None:
    rows = [Row(Estimate(value, scatter=1e-4, df=5), name, name) for value, name in ((0.1, "a"), (0.13, "b"))]
    assert homogeneity(rows) == pytest.approx(independent_difference(rows[0].estimate, rows[1].estimate).p(), rel=0.1)
    assert np.isnan(homogeneity(rows[:1]))


def test_homogeneity_of_equal_means_is_rejected_in_at_most_5_percent_of_samples() -> None:
    rng = np.random.default_rng(6)
    rejected = 0
    for _ in range(400):
        rows = []
        for i, (sd, n) in enumerate(((1.0, 6), (3.0, 8), (0.3, 5), (1.0, 12))):
            x = rng.normal(0, sd, n)
            mean = Estimate(x.mean(), scatter=x.var(ddof=1) / n, df=n - 1, residuals=x - x.mean())
            rows.append(Row(mean, f"d{i}", f"f{i}"))
        rejected += homogeneity(rows) < 0.05
    assert rejected / 400 < 0.07


def test_random_effects_needs_three_estimates_with_known_errors() -> None:
    estimate = Estimate(0.1, scatter=1e-4, df=5)
    assert random_effects([estimate] * 2, Estimate(0.0)) is None
    assert random_effects([estimate, estimate, estimate.without_error()], Estimate(0.0)) is None
    assert random_effects([estimate] * 3, Estimate(0.0)) is not None


def test_prediction_interval_includes_the_error_that_all_estimates_share() -> None:
    values = np.array([0.1, 0.14, 0.22, 0.08])
    mean = random_effects([Estimate(value, scatter=1e-4, df=9) for value in values], Estimate(0.0, sampling=4e-4))
    half = stats.t.ppf(0.975, 2) * np.sqrt(mean.tau**2 + stats.sem(values) ** 2 + 4e-4)
    assert (mean.low, mean.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_mean_over_datasets_has_interval_of_one_law_if_datasets_share_all_scatter() -> None:
    rng = np.random.default_rng(7)
    scatter = rng.normal(0, 0.05, 5)
    fitted = [fit(S, np.exp(-0.1 * X + scatter + rng.normal(0, 1e-5, 5))) for _ in range(4)]
    mean = mean_over_datasets(fitted).mean
    assert mean.half_width() == pytest.approx(fitted[0].alpha.half_width(), rel=1e-2)


def test_mean_over_datasets_has_error_of_independent_scatter_if_residuals_cancel() -> None:
    """The residuals are r, -r, q and -q with equal squares, so all exponents are 0.1 and the mean residuals are 0.

    The variance of one exponent is w'w r'r / 3 over four datasets instead of three, and that of the mean a fourth.
    """
    r = np.array([1.0, -2, 0, 2, -1]) * 0.01  # orthogonal to 1 and to ln S
    q = np.array([2.0, -1, -2, -1, 2]) * 0.01 * np.sqrt(10 / 14)
    fitted = [fit(S, np.exp(-0.1 * X + residuals)) for residuals in (r, -r, q, -q)]
    mean = mean_over_datasets(fitted).mean
    weights = alpha_weights(S)
    assert mean.scatter == pytest.approx(weights @ weights * (r @ r) / 3 * 4 / 3 / 4)
    assert mean.sampling == pytest.approx(0, abs=1e-12)


def test_mean_over_datasets_counts_independent_scatter_once() -> None:
    """The residuals are orthogonal and of equal length. Their mean is what independent scatter alone gives."""
    s = np.geomspace(1e6, 1e9, 8)
    x = np.log(s) - np.log(s).mean()
    basis = np.linalg.qr(np.column_stack([np.ones(8), x, np.random.default_rng(0).normal(size=(8, 4))]))[0][:, 2:]
    fitted = [fit(s, np.exp(-0.1 * x + 0.02 * residuals)) for residuals in basis.T]
    assert mean_over_datasets(fitted).mean.sampling == pytest.approx(0, abs=1e-12)


def test_mean_over_datasets_covers_alpha_if_datasets_share_scatter_of_models() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        scatter = np.exp(rng.normal(0, 0.05, 5))
        fitted = [fit(S, np.exp(-0.1 * X) * scatter * np.exp(rng.normal(0, 0.01, 5))) for _ in range(5)]
        mean = mean_over_datasets(fitted).mean
        covered += abs(mean.value - 0.1) < mean.half_width()
    assert covered / 200 > 0.92


def test_mean_over_families_counts_the_influences_that_families_share_once() -> None:
    """All families have the influences of one law, so nothing of their error over documents is independent."""
    rng = np.random.default_rng(8)
    law = law_of_family(rng, *random_documents(rng))
    influences = [DocumentInfluences(u, law.documents.shares) for u in law.documents.u.T]
    fitted = [fit(S, np.exp(-0.1 * X + rng.normal(0, 0.05, 5)), influences) for _ in range(4)]
    mean = mean_over_families(fitted).mean
    independent = random_effects([replace(each.alpha, sampling=0.0) for each in fitted], Estimate(0.0)).mean
    assert mean.sampling == pytest.approx(law.alpha.sampling)
    assert mean.scatter == pytest.approx(independent.scatter)


def test_mean_over_families_covers_alpha_if_families_share_documents() -> None:
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(150):
        tokens, slope = random_documents(rng)
        mean = mean_over_families([law_of_family(rng, tokens, slope) for _ in range(4)]).mean
        covered += abs(mean.value - 0.1) < mean.half_width()
    assert covered / 150 > 0.9
