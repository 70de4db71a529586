from collections.abc import Iterator

import numpy as np
import pytest
from scipy import optimize, stats

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import DocumentCounts
from rbptrack.stats import bootstrap, linear
from rbptrack.stats.bootstrap import (
    BOOTSTRAP_SEED,
    bootstrap_metrics,
    document_weights,
    drawn_sums,
    paired_covariance,
)
from rbptrack.stats.power_law import (
    fit_power_law,
    fit_power_laws,
    held_out_error,
    hold_largest_out,
    huber_alpha,
    of_each,
    scatters,
)


def test_an_exact_law_is_found_exactly() -> None:
    s = np.array([1e4, 1e5, 1e6, 1e7])
    fit = fit_power_law(s, 7.5 * s**-0.11)
    assert fit.alpha == pytest.approx(0.11, abs=1e-12)
    assert np.exp(fit.log_a) == pytest.approx(7.5)
    assert fit.r2 == pytest.approx(1)
    assert fit.high - fit.low < 1e-9
    np.testing.assert_allclose(fit.predict([1e8]), 7.5 * 1e8**-0.11)


@pytest.mark.parametrize("m", [3, 4, 7, 12])
def test_the_estimate_is_ordinary_least_squares(m: int) -> None:
    rng = np.random.default_rng(m)
    s = np.geomspace(1e4, 1e9, m)
    y = 3 * s**-0.08 * np.exp(rng.normal(0, 0.02, m))
    fit, ols = fit_power_law(s, y), stats.linregress(np.log(s), np.log(y))
    assert fit.alpha == pytest.approx(-ols.slope, rel=1e-10)
    assert fit.log_a == pytest.approx(ols.intercept, rel=1e-10)
    assert fit.r2 == pytest.approx(ols.rvalue**2, rel=1e-10)
    assert fit.tau == pytest.approx(ols.stderr * np.sqrt(((np.log(s) - np.log(s).mean()) ** 2).sum()), rel=1e-8)
    if m == 3:  # one residual: the textbook's interval
        half = stats.t.ppf(0.975, 1) * ols.stderr
        assert (fit.low, fit.high) == pytest.approx((-ols.slope - half, -ols.slope + half), rel=1e-8)


@pytest.mark.parametrize("m", [4, 10])
@pytest.mark.parametrize("ends", [1.0, 3.6])
@pytest.mark.parametrize("scatter", [0.01, 0.03])
def test_nominal_95_percent_intervals_cover(m: int, scatter: float, ends: float) -> None:
    """Also where the smallest and the largest model scatter more than the others: by OLS and t 87 to 91% then."""
    rng = np.random.default_rng(m)
    each = scatter * np.where((np.arange(m) == 0) | (np.arange(m) == m - 1), ends, 1.0)
    s = np.geomspace(1e5, 1e10, m)
    sampling = 0.002**2 * (0.8 * np.ones((m, m)) + 0.2 * np.eye(m))  # shared texts: noise correlated at 0.8
    noise = np.linalg.cholesky(sampling)
    draws, hits = 1000, 0
    for _ in range(draws):
        logs = np.log(5) - 0.06 * np.log(s) + each * rng.normal(size=m) + noise @ rng.normal(size=m)
        fit = fit_power_law(s, np.exp(logs), covariance=sampling)
        hits += fit.low <= 0.06 <= fit.high
    assert 0.92 <= hits / draws <= 0.985


def test_noise_that_sizes_share_does_not_widen_alpha() -> None:
    """A paired bootstrap: an error common to all sizes moves A, not alpha."""
    s = np.geomspace(1e4, 1e7, 6)
    y = 4 * s**-0.1
    shared = fit_power_law(s, y, covariance=0.1**2 * np.ones((6, 6)))
    separate = fit_power_law(s, y, covariance=0.1**2 * np.eye(6))
    assert shared.high - shared.low < 1e-3 * (separate.high - separate.low)


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(RbptrackError, match="at least 3 sizes"):
        fit_power_law([1e3, 1e4], [1.0, 0.5])
    with pytest.raises(RbptrackError, match="differ"):
        fit_power_law([1e3, 1e3, 1e3], [1.0, 0.5, 0.4])
    with pytest.raises(RbptrackError, match="positive"):
        fit_power_law([1e3, 1e4, 1e5], [1.0, 0.5, 0.0])


def test_many_laws_at_once_are_each_law_alone() -> None:
    rng = np.random.default_rng(3)
    noise = 0.01**2 * (0.5 + 0.5 * np.eye(7))
    laws = []
    for m in (4, 7, 5):
        s, sampling = np.geomspace(1e4, 1e9, m), np.stack([noise[:m, :m], np.zeros((m, m)), 9 * noise[:m, :m]])
        y = 3 * s**-0.08 * np.exp(rng.normal(0, 0.02, (3, m)))
        laws += fit_power_laws(s, y, covariance=sampling)
    alone = [fit_power_law(one.s, one.y, covariance=one.covariance) for one in laws]
    assert [one.low for one in laws] == pytest.approx([one.low for one in alone], rel=1e-12)
    laws = [laws[i] for i in rng.permutation(9)]
    assert scatters(laws) == pytest.approx([one.tau for one in laws], rel=1e-12, abs=1e-15)
    huber, error = (of_each(laws, lambda s, y, _: f(s, y)) for f in (huber_alpha, held_out_error))  # noqa: B023
    assert huber == pytest.approx([float(huber_alpha(one.s, one.y)) for one in laws], rel=1e-12)
    assert error == pytest.approx([float(held_out_error(one.s, one.y)) for one in laws], rel=1e-12)


def test_scatter_and_huber_are_where_scipy_finds_them() -> None:
    rng, s = np.random.default_rng(5), np.geomspace(1e4, 1e9, 8)
    y = 3 * s**-0.08 * np.exp(rng.normal(0, [0.01, 0.01, 0.05, 0.01, 0.01, 0.01, 0.01, 0.03]))
    noise, design, logs = 0.01**2 * (0.5 + 0.5 * np.eye(8)), linear.centred(np.log(s)), np.log(y)
    contrasts = linear.free_of(design)

    def restricted(log_variance: float) -> float:
        spread = contrasts @ (noise + np.exp(log_variance) * np.eye(8)) @ contrasts.T
        return float(np.linalg.slogdet(spread)[1] + contrasts @ logs @ np.linalg.solve(spread, contrasts @ logs))

    best = optimize.minimize_scalar(restricted, bracket=(-12, -6)).x
    assert fit_power_law(s, y, covariance=noise).tau == pytest.approx(np.exp(best / 2), rel=1e-5)
    least = linear.least_squares(design, logs)
    turn = 1.345 * 1.4826 * np.median(np.abs(least[1] - np.median(least[1])))
    soft = optimize.least_squares(lambda b: logs - design @ b, least[0], loss="huber", f_scale=turn, xtol=1e-14)
    assert huber_alpha(s, y) == pytest.approx(-soft.x[1], rel=1e-6)


def test_the_largest_held_out_is_above_the_law_where_it_is_worse() -> None:
    s = np.array([1e3, 1e4, 1e5, 1e6])
    y = 2 * s**-0.2
    y[-1] *= 1.25
    assert held_out_error(s, y) == pytest.approx(0.25), "a larger loss than predicted is an error above 0"
    assert np.isnan(held_out_error(s[1:], y[1:]))
    assert np.isnan(hold_largest_out(fit_power_law(s[1:], y[1:])).error.value)
    exact = hold_largest_out(fit_power_law(s, y))
    assert exact.error.low == pytest.approx(0.25, abs=1e-6), "points on a line leave no scatter"
    assert exact.p < 1e-9


def test_the_interval_of_the_largest_held_out_is_that_of_regression() -> None:
    """Without sampling errors: that of a new observation by the smaller sizes' line, here with 3 of 5 left free."""
    rng = np.random.default_rng(11)
    s = np.geomspace(1e4, 1e9, 6)
    beyond = 0
    for _ in range(500):
        y = 3 * s**-0.08 * np.exp(rng.normal(0, 0.02, 6))
        largest = hold_largest_out(fit_power_law(s, y))
        assert (largest.p < 0.05) == (not largest.error.low <= 0 <= largest.error.high)
        beyond += largest.p < 0.05
    assert 0.01 <= beyond / 500 <= 0.07, "more than twice the noise of before in 13%"


def counts(tokens: np.ndarray, p: float, rng: np.random.Generator) -> DocumentCounts:
    hits = rng.binomial(tokens, p)[:, None]
    return DocumentCounts((1,), np.arange(len(tokens)), tokens, tokens * 2.0, hits)


def test_bootstrap_gives_the_binomial_error_where_tokens_are_independent() -> None:
    rng = np.random.default_rng(1)
    tokens = np.full(400, 250)
    c = counts(tokens, 0.3, rng)
    replicates = bootstrap_metrics(c, document_weights(400, replicates=2000))
    assert replicates[:, 1].std() == pytest.approx(np.sqrt(0.3 * 0.7 / tokens.sum()), rel=0.15)
    assert replicates[:, 0] == pytest.approx(2.0)  # CE is the same in every document: no error at all


def test_bootstrap_sees_documents_that_differ() -> None:
    rng = np.random.default_rng(2)
    tokens, p = np.full(200, 500), np.repeat([0.1, 0.5], 100)
    c = DocumentCounts((1,), np.arange(200), tokens, tokens * 1.0, rng.binomial(tokens, p)[:, None])
    replicates = bootstrap_metrics(c, document_weights(200))
    assert replicates[:, 1].std() == pytest.approx(0.2 / np.sqrt(200), rel=0.15)


def test_replicates_are_paired_and_reproducible() -> None:
    np.testing.assert_array_equal(document_weights(30), document_weights(30))
    assert (document_weights(30).sum(1) == 30).all()
    drawn = np.random.default_rng(BOOTSTRAP_SEED).multinomial(30, np.full(30, 1 / 30), size=1000)
    np.testing.assert_array_equal(document_weights(30), drawn)  # the same numbers as ever
    draws = np.random.default_rng(0).normal(size=200)
    covariance = paired_covariance([draws, 2 * draws])
    np.testing.assert_allclose(covariance, draws.var(ddof=1) * np.array([[1, 2], [2, 4]]))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """300 documents count as many."""
    monkeypatch.setattr(bootstrap, "_MOST_FLOATS", 300 * 7)
    monkeypatch.setattr(bootstrap, "_AT_ONCE", 37 * 1000)
    yield
    bootstrap._kept_once.cache_clear()


@pytest.mark.usefixtures("many")
def test_weights_of_many_documents_take_a_byte_each() -> None:
    weights = document_weights(300)
    assert weights.nbytes == 300 * 1000
    assert (weights.sum(1) == 300).all()
    # multinomial: each is 1 on average, with variance 1 - 1/D, and any two have covariance -1/D
    assert weights.mean(0).std() == pytest.approx(1 / np.sqrt(1000), rel=0.1)
    assert weights.astype(float).var(0).mean() == pytest.approx(1 - 1 / 300, rel=0.01)
    assert document_weights(300) is weights


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(("shape", "dtype"), [((300,), np.int32), ((300, 5), np.int64), ((300, 4, 3), np.float64)])
def test_sums_over_drawn_documents_need_no_copy_as_floats(shape: tuple[int, ...], dtype: type) -> None:
    values = (np.random.default_rng(4).random(shape) * 1e5).astype(dtype)
    weights = document_weights(300)
    expected = np.tensordot(weights.astype(float), values, axes=1)
    np.testing.assert_allclose(drawn_sums(weights, values), expected, rtol=1e-13)
    np.testing.assert_allclose(drawn_sums(np.ones((1, 300)), values)[0], values.sum(0), rtol=1e-13)
    assert drawn_sums(weights, values).dtype == np.float64


def test_weights_of_other_documents_are_refused() -> None:
    with pytest.raises(RbptrackError, match="weights for 30 documents, values of 29"):
        drawn_sums(document_weights(30), np.ones(29))


@pytest.mark.usefixtures("many")
def test_many_documents_are_resampled_in_parts() -> None:
    tokens = np.arange(1, 301)
    counts = DocumentCounts((1,), np.arange(300), tokens, tokens * 2.0 + 1, (tokens // 2)[:, None])
    resampled = bootstrap.resampled_metrics(counts)
    np.testing.assert_allclose(resampled, bootstrap_metrics(counts, document_weights(300)), rtol=1e-13)
    assert resampled.shape == (1000, 2)
