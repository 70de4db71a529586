from __future__ import annotations

import numpy as np
import pytest

from plugins.rank_and_ce import RankAndCe
from rbptrack.analysis import Runs
from rbptrack.errors import BadInput
from rbptrack.ranks import FloatArray, RankTable
from rbptrack.stats import (
    RankAndProbability,
    held_out_errors,
    quantiles_by_bin,
    rates_by_bin,
    sign_flip_p,
    split_of_gain,
)
from tests.synthetic import family_runs, runs_of_tables, together

SIZES = np.geomspace(1e4, 1e7, 5)


def table(rank: np.ndarray, nats: np.ndarray, *, documents: int = 1, field: int = 0) -> RankTable:
    n = len(rank)
    return RankTable.from_arrays(
        vocab_size=4096,
        document=np.repeat(np.arange(documents), n // documents),
        position=np.tile(np.arange(n // documents), documents),
        field=np.full(n, field),
        token=np.zeros(n),
        greater=np.asarray(rank) - 1,
        ties=np.zeros(n),
        logprob=-np.asarray(nats),
    )


def test_counts_by_hand() -> None:
    one = RankAndProbability.of(table([1, 1, 5, 1, 2000], [0.1, 0.3, 2.0, 0.6, 9.5]), lengths=[1, 2], ks=[1, 10])
    assert one.ce == pytest.approx(2.5)
    assert (one.rbp(1), one.rbp(10), one.rbp(3000)) == (0.6, 0.8, 1.0)
    np.testing.assert_array_equal(one.windows, [[5, 4]])
    np.testing.assert_array_equal(one.successes, [[[3, 4], [1, 3]]])
    products = np.exp([-0.4, -2.3, -2.6, -10.1])
    assert one.likelihood[0, 1] == pytest.approx(products.sum())
    both = one + one
    assert (both.ce, both.rbp(1)) == (one.ce, one.rbp(1))


def test_rank_follows_from_probability_or_not_at_all() -> None:
    rng = np.random.default_rng(0)
    nats = rng.choice([0.1, 1.1, 2.1, 4.1], size=4000)
    follows = RankAndProbability.of(table(np.rint(np.exp(nats)), nats), lengths=[1], ks=[1])
    assert follows.told_by_p == pytest.approx(1)
    apart = RankAndProbability.of(table(rng.integers(1, 50, 4000), nats), lengths=[1], ks=[1])
    assert apart.told_by_p < 0.01 > apart.told_by_rank


def drawn(rng: np.random.Generator, mean: float, hit: float, tokens: int = 40_000) -> RankTable:
    """Tokens of probability around exp(-mean), of which a share `hit` has rank 1 whatever the probability."""
    nats = rng.exponential(mean, tokens)
    return table(np.where(rng.random(tokens) < hit, 1, 30), nats, documents=40)


def split(first: RankAndProbability, second: RankAndProbability, weights: FloatArray) -> FloatArray:
    return split_of_gain(*(rates_by_bin(one.tokens, weights, 1) for one in (first, second)))


def test_a_gain_is_taken_apart_into_mix_and_within() -> None:
    rng = np.random.default_rng(1)
    once = np.ones((1, 40))
    a, b, c = (RankAndProbability.of(drawn(rng, m, h), lengths=[1], ks=[1]) for m, h in ((3, 0.4), (3, 0.6), (2, 0.4)))
    mix, within = split(a, b, once)[0]
    assert (mix, within) == pytest.approx((0, 0.2), abs=0.01)
    np.testing.assert_allclose(split(a, c, once)[0], [0, 0], atol=0.01)  # rank knows no p here
    assert mix + within == pytest.approx(b.rbp(1) - a.rbp(1))
    nats = rng.exponential(3, 40_000)
    by_p = [table(np.where(n < 1, 1, 30), n, documents=40) for n in (nats, nats * 0.8)]
    first, second = (RankAndProbability.of(t, lengths=[1], ks=[1]) for t in by_p)
    mix, within = split(first, second, once)[0]
    assert mix == pytest.approx(second.rbp(1) - first.rbp(1))
    assert within == pytest.approx(0, abs=1e-12)


def test_quantiles_and_held_out_errors_by_hand() -> None:
    counts = np.array([[1, 1, 2], [0, 0, 0]])
    found = quantiles_by_bin(counts, np.array([1.0, 2.0, 4.0]), (0.05, 0.5, 0.95))
    np.testing.assert_array_equal(found[0], [1, 2, 4])
    assert np.isnan(found[1]).all()
    x = np.arange(5.0)
    np.testing.assert_allclose(held_out_errors(x, 2 * x + 1, np.arange(5)), 0, atol=1e-12)
    bent = held_out_errors(x, x**2, np.array([0, 0, 0, 0, 1]))
    assert bent[4] == pytest.approx(3 * 4 - 1 - 16)
    assert np.isnan(bent[:4]).all(), "one point is left to predict four from"


def test_flipped_signs_have_the_size_that_they_say() -> None:
    assert sign_flip_p(np.ones(5)) == pytest.approx(2 / 32)
    assert sign_flip_p(np.array([1.0, -1.0, 1.0, -1.0])) == 1
    rng = np.random.default_rng(2)
    wrong = [sign_flip_p(rng.standard_t(3, n)) < 0.05 for n in (7, 10) for _ in range(300)]
    assert np.mean(wrong) <= 0.07
    assert sign_flip_p(rng.normal(1, 1, 30)) < 0.01


def test_equal_ranks_at_equal_probability_are_not_called_better() -> None:
    """Ranks depend on p alone; models differ in p: all of the gain is mix, in nearly every draw."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(60):
        pair = []
        for mean in (3.0, 2.5):
            nats = rng.exponential(mean, 4000) * np.repeat(np.exp(0.5 * rng.standard_t(3, 40).clip(-3, 3)), 100)
            rank = np.where(rng.random(4000) < np.exp(-np.floor(4 * nats) / 4), 1, 30)
            pair.append(RankAndProbability.of(table(rank, nats, documents=40), lengths=[1], ks=[1]))
        weights = rng.multinomial(40, np.full(40, 1 / 40), size=200).astype(float)
        low, high = np.quantile(split(*pair, weights)[:, 1], [0.025, 0.975])
        wrong += not low <= 0 <= high
    assert wrong <= 8


@pytest.fixture(scope="module")
def two_families() -> Runs:
    one = family_runs(SIZES, alpha=0.2, a=12.0, family="one", tokens=300)
    return together(one, family_runs(SIZES * 1.1, alpha=0.2, a=10.0, family="two", tokens=300, seed=1))


def test_the_report(two_families: Runs) -> None:
    report = RankAndCe(ks=[1, 2], shown=1).analyze(two_families)
    summary = report.tables["summary"].frame.set_index("family")
    assert (summary["gain"] > 0.2).all()
    gains = report.tables["gains"].frame.query("family == 'one' and k == 1")
    assert gains["gain"].sum() == pytest.approx(summary.loc["one", "gain"])
    np.testing.assert_allclose(gains["mix"] + gains["within"], gains["gain"])
    predictions = report.tables["predictions"].frame
    assert set(predictions["left_out"]) == {"sizes", "families"}
    assert {"8 tokens in a row", "whole answers"} == set(predictions["outcome"])
    windows = report.tables["windows"].frame.query("N == 4")
    np.testing.assert_allclose(windows["measured"], windows["independent"], rtol=0.35, atol=2e-3)
    assert "is predicted better by" in report.headline
    assert any("ranks at equal p make up" in note for note in report.notes)
    assert set(report.drawings) == {"rank_and_probability", "windows"}


def test_a_k_that_is_not_counted_is_refused(two_families: Runs) -> None:
    with pytest.raises(BadInput, match=r"analyzer.ks=\[7\].*expected k of 1, 2, 3, 5, 10"):
        RankAndCe(ks=[7], shown=7).analyze(two_families)


def test_one_size_has_no_gain() -> None:
    report = RankAndCe().analyze(runs_of_tables([1e5], {"r": drawn(np.random.default_rng(4), 2, 0.5)}))
    assert set(report.tables) == {"summary", "windows", "at_equal_p", "at_equal_rank"}
    assert "needs a second size" in report.notes[0]
    bounds = report.tables["at_equal_p"].frame
    assert (bounds["p"] * bounds["bound"] >= 1).all()
