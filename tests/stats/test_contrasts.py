"""Differences and means of exponents: what laws share is taken out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rbptrack.ranks import DocumentCounts
from rbptrack.stats import Estimate, cross_entropy, estimate, fit, laws
from rbptrack.stats.contrasts import (
    difference_of_exponents,
    mean_over_datasets,
    mean_over_families,
    pooled_scatter,
    random_effects,
)

S = np.geomspace(1e6, 1e9, 5)
X = np.log(S) - np.log(S).mean()


def documents(rng, count=50):
    """Length, and how the CE of each document changes with size beyond the family's law."""
    return rng.integers(50, 500, count), rng.normal(0, 0.1, count)


def counts_of(rng, length, slope, alpha=0.1, tau=0.0, sign=1.0, s=S):
    x = np.log(s) - np.log(s).mean()
    counts = []
    for i in range(len(s)):
        ce = 3 * np.exp(-alpha * x[i] + sign * slope * x[i] / x[-1] + rng.normal(0, tau))
        nats = length * ce * np.exp(rng.normal(0, 0.02, len(length)))
        counts.append(DocumentCounts((), np.arange(len(length)), length, nats, np.zeros((len(length), 0))))
    return counts


def law_of(*given, **named):
    [law] = laws(named.get("s", S), counts_of(*given, **named), cross_entropy)
    return law


def test_two_families_on_the_same_documents_are_the_jackknife_of_the_difference() -> None:
    rng = np.random.default_rng(0)
    length, slope = documents(rng)
    sizes = np.geomspace(1e5, 1e8, 4)
    a = counts_of(rng, length, slope)
    b = counts_of(rng, length, slope, s=sizes)
    [one], [other] = laws(S, a, cross_entropy), laws(sizes, b, cross_entropy)
    together = np.stack([counts.sums for counts in (*a, *b)], axis=1).reshape(len(length), -1)

    def difference(sums):
        ln_y = np.log(sums[..., 1::2] / sums[..., 0::2])
        slopes = [np.log(each) - np.log(each).mean() for each in (S, sizes)]
        first, second = (-x / (x @ x) for x in slopes)
        return ln_y[..., : len(S)] @ first - ln_y[..., len(S) :] @ second

    reference = estimate(together, difference)
    found = difference_of_exponents(one, other)
    assert found.value == pytest.approx(reference.value)
    assert found.sampling == pytest.approx(reference.sampling)
    assert found.sampling_df == pytest.approx(reference.sampling_df)
    assert found.sampling < 0.2 * (one.alpha - other.alpha).sampling


def test_documents_that_pull_two_families_apart_widen_the_difference() -> None:
    """Independent sums cover 84.5% here: slopes of documents have opposite signs in the two families."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        length, slope = documents(rng)
        difference = difference_of_exponents(law_of(rng, length, slope), law_of(rng, length, slope, sign=-1.0))
        covered += abs(difference.value) < difference.half()
    assert covered / 200 > 0.9


def test_laws_without_documents_are_compared_by_their_scatter() -> None:
    rng = np.random.default_rng(2)
    one, other = (fit(S, np.exp(rng.normal(0, 0.1, 5) - alpha * X)) for alpha in (0.1, 0.2))
    assert difference_of_exponents(one, other) == one.alpha - other.alpha


def test_one_family_on_two_datasets_loses_the_scatter_of_its_models() -> None:
    rng = np.random.default_rng(3)
    off = rng.normal(0, 0.1, 5)
    made = []
    for alpha in (0.1, 0.15):
        length, slope = documents(rng)
        [law] = laws(S, counts_of(rng, length, slope, alpha=alpha), cross_entropy)
        made.append(fit(S, law.y * np.exp(off), list(law.u.T)))
    ratio = made[1].over(made[0])
    assert ratio.alpha.value == pytest.approx(made[1].alpha.value - made[0].alpha.value)
    assert ratio.alpha.sampling == pytest.approx(made[0].alpha.sampling + made[1].alpha.sampling)
    assert ratio.alpha.scatter < 0.01 * (made[1].alpha - made[0].alpha).scatter
    assert ratio.alpha.half() < 0.5 * (made[1].alpha - made[0].alpha).half()


def test_several_models_of_one_size_are_points_of_a_law() -> None:
    rng = np.random.default_rng(4)
    s = np.repeat(S, 3)
    y = 20 * s**-0.2 * np.exp(rng.normal(0, 0.05, 15))
    reference = stats.linregress(np.log(s), np.log(y))
    law = fit(s, y)
    assert law.alpha.value == pytest.approx(-reference.slope)
    assert law.alpha.half() == pytest.approx(stats.t.ppf(0.975, 13) * reference.stderr)


def test_pooled_scatter_is_that_of_all_residuals() -> None:
    rng = np.random.default_rng(5)
    fitted = [fit(S[:m], np.exp(rng.normal(0, 0.1, m))) for m in (2, 3, 5)]
    variance, df = pooled_scatter(fitted)
    assert df == 0 + 1 + 3
    assert variance == pytest.approx(sum(law.residuals @ law.residuals for law in fitted) / 4)
    pooled = fitted[1].alpha_with_scatter(variance, df)
    weights = fitted[1].alpha_weights
    assert pooled.half() == pytest.approx(stats.t.ppf(0.975, 4) * np.sqrt(variance * weights @ weights))


def test_equally_sure_numbers_have_the_t_interval_of_their_mean() -> None:
    values = np.array([0.1, 0.14, 0.22, 0.08])
    mean = random_effects([Estimate(value, scatter=1e-4, df=9) for value in values], Estimate(0.0))
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert mean.mean.interval() == pytest.approx((low, high))
    assert mean.tau == pytest.approx(np.sqrt(values.var(ddof=1) - 1e-4))
    half = stats.t.ppf(0.975, 2) * np.sqrt(mean.tau**2 + stats.sem(values) ** 2)
    assert (mean.low, mean.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_homogeneity_is_welchs_test_and_with_known_variances_cochrans() -> None:
    values = [0.1, 0.13, 0.12]
    known = random_effects([Estimate(value, scatter=1e-4) for value in values], Estimate(0.0))
    q = np.var(values) * 3 / 1e-4
    assert known.homogeneity == pytest.approx(stats.chi2.sf(q, 2))
    rng = np.random.default_rng(6)
    false = 0
    for _ in range(400):
        samples = [rng.normal(0, sd, n) for sd, n in ((1.0, 6), (3.0, 8), (0.3, 5), (1.0, 12))]
        means = [Estimate(x.mean(), scatter=x.var(ddof=1) / len(x), df=len(x) - 1) for x in samples]
        false += random_effects(means, Estimate(0.0)).homogeneity < 0.05
    assert 0.02 < false / 400 < 0.09


def test_few_or_unknown_numbers_have_no_mean() -> None:
    sure = Estimate(0.1, scatter=1e-4, df=5)
    assert random_effects([sure] * 2, Estimate(0.0)) is None
    assert random_effects([sure, sure, sure.without_error()], Estimate(0.0)) is None
    assert random_effects([sure] * 3, Estimate(0.0)) is not None


def test_scatter_that_all_datasets_share_stays_in_the_mean() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        off = np.exp(rng.normal(0, 0.05, 5))
        fitted = [fit(S, np.exp(-0.1 * X) * off * np.exp(rng.normal(0, 0.01, 5))) for _ in range(5)]
        mean = mean_over_datasets(fitted).mean
        covered += abs(mean.value - 0.1) < mean.half()
    assert covered / 200 > 0.92


def test_documents_that_all_families_share_stay_in_the_mean() -> None:
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(150):
        length, slope = documents(rng)
        mean = mean_over_families([law_of(rng, length, slope) for _ in range(4)]).mean
        covered += abs(mean.value - 0.1) < mean.half()
    assert covered / 150 > 0.9
