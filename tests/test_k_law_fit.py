from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.k_law.curves import beta_interval, k_curves, size_factor_read_off, worth_of_doubling
from scipy import stats

from rbptrack.ranks import DocumentCounts, log_grid
from rbptrack.stats.k_law import fit_k_law, k_slopes

KS = log_grid(100)


def test_a_law_is_recovered_for_every_size() -> None:
    y = np.array([[3.0], [2.0]]) * KS ** np.array([[-0.5], [-0.4]])
    fit = fit_k_law(KS, y)
    assert fit.beta == pytest.approx([0.5, 0.4])
    assert np.exp(fit.log_b) == pytest.approx([3, 2])
    assert fit.r2 == pytest.approx(1)
    assert fit.largest_deviation == pytest.approx(0, abs=1e-12)
    assert fit.local_beta(10) == pytest.approx([0.5, 0.4])
    np.testing.assert_allclose(fit.fitted, y)


def test_a_bend_is_the_parabola_s() -> None:
    t = np.log(KS)
    fit = fit_k_law(KS, np.exp(1 - 0.3 * t - 0.05 * t**2)[None])
    assert fit.local_beta(1)[0] == pytest.approx(0.3)
    assert fit.local_beta(100)[0] == pytest.approx(0.3 + 0.1 * np.log(100))


def test_the_line_is_plain_least_squares() -> None:
    y = np.random.default_rng(0).uniform(0.5, 2, size=(1, len(KS)))
    fit, line = fit_k_law(KS, y), stats.linregress(np.log(KS), np.log(y[0]))
    assert (fit.beta[0], fit.log_b[0], fit.r2[0]) == pytest.approx((-line.slope, line.intercept, line.rvalue**2))
    np.testing.assert_allclose(k_slopes(KS, np.stack([y, y])), [fit.beta, fit.beta])


def test_a_size_is_read_off_between_measured_ones() -> None:
    s = np.geomspace(1e4, 1e7, 4)
    factor, sizes = size_factor_read_off(s, 5 * s**-0.2, 5 * s**-0.2 / 2)  # 2 = factor^0.2
    assert factor == pytest.approx(32)
    assert sizes == 2  # a size 32 times the larger two was not measured


def test_nothing_is_read_off_where_a_larger_model_is_not_better() -> None:
    s = np.geomspace(1e4, 1e6, 3)
    factor, sizes = size_factor_read_off(s, np.array([2.0, 2.5, 1.0]), np.array([1.9, 2.4, 0.9]))
    assert np.isnan(factor)
    assert sizes == 0


def counted(y: np.ndarray, *, documents: int = 10, tokens: int = 10**6) -> list[DocumentCounts]:
    """Documents that are all alike, with -ln RBP_k = y, (m, ks): rounding to whole hits is the only error."""
    number, size = np.arange(documents), np.full(documents, tokens)
    hits = np.rint(tokens * np.exp(-y)).astype(int)
    every = tuple(int(k) for k in KS)
    return [DocumentCounts(every, number, size, size.astype(float), np.tile(one, (documents, 1))) for one in hits]


def test_a_surface_of_documents_that_are_alike_is_recovered_without_error() -> None:
    s = np.geomspace(1e4, 1e7, 4)
    curves = k_curves(counted(5 * s[:, None] ** -0.2 * KS**-0.4), KS, replicates=20, level=0.95)
    assert curves is not None
    assert curves.fit.beta == pytest.approx(0.4, abs=1e-4)
    np.testing.assert_allclose([one.high - one.low for one in curves.beta], 0, atol=1e-9)
    worth = worth_of_doubling(s, curves, 5, level=0.95)
    assert worth is not None
    assert (worth["alpha"].value, worth["beta"]) == pytest.approx((0.2, 0.4), abs=1e-4)
    assert worth["factor_in_s"] == pytest.approx(4, rel=1e-3)
    assert worth["factor_low"] < 4 < worth["factor_high"]
    assert worth_of_doubling(s, curves, 68, level=0.95) is None  # 136 was not counted


def test_too_few_usable_k_have_no_line() -> None:
    y = np.full((2, len(KS)), np.inf)
    y[:, :3] = 1.0
    with np.errstate(divide="ignore"):
        assert k_curves(counted(y), KS, replicates=5, level=0.95) is None


def test_one_document_has_no_interval() -> None:
    curves = k_curves(counted(2 * KS[None] ** -0.4, documents=1), KS, replicates=5, level=0.95)
    assert curves is not None
    assert np.isnan([one.low for one in curves.beta]).all()


def test_an_alpha_that_is_barely_visible_is_worth_an_infinite_factor_and_no_crash() -> None:
    s = np.geomspace(1e4, 1e7, 4)
    curves = k_curves(counted(2 * s[:, None] ** -1e-4 * KS**-0.4, tokens=10**9), KS, replicates=20, level=0.95)
    assert curves is not None
    worth = worth_of_doubling(s, curves, 5, level=0.95)  # beta/alpha is some 4000
    assert worth is not None
    assert worth["factor_high"] == np.inf


def heavy(rng: np.random.Generator, documents: int) -> DocumentCounts:
    """Documents of lognormal lengths whose difficulty and slope in k have heavy tails."""
    tokens = np.maximum(20, rng.lognormal(np.log(300), 0.8, size=documents)).astype(int)
    log_b, beta = 0.3 * rng.standard_t(3, documents), 0.4 + 0.3 * np.tanh(0.15 * rng.standard_t(3, documents))
    p = np.exp(-np.exp(np.clip(log_b[:, None] - beta[:, None] * np.log(KS), -8, 5)))
    p = np.diff(np.maximum.accumulate(p, axis=1), prepend=0, append=1)
    hits = np.cumsum(rng.multinomial(tokens, p)[:, :-1], axis=1)
    return DocumentCounts(tuple(KS.tolist()), np.arange(documents), tokens, tokens.astype(float), hits)


def test_documents_with_heavy_tails_are_covered() -> None:
    """Percentiles of the same bootstrap cover 86% of 300 draws (and 87% of these), this interval 92% (93)."""
    rng = np.random.default_rng(1)
    tokens = heavy(np.random.default_rng(0), 400_000)
    p = tokens.hits.sum(axis=0) / tokens.tokens.sum()
    true = fit_k_law(KS, -np.log(p)[None]).beta[0]
    intervals = [beta_interval(heavy(rng, 30), replicates=300, level=0.95) for _ in range(120)]
    assert np.mean([one.low <= true <= one.high for one in intervals]) > 0.9
