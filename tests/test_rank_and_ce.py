from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.rank_and_ce import RankAndCe
from rbptrack.plugins.rank_and_ce.equal_loss import (
    Leaning,
    collapse,
    families_needed,
    held_out_errors,
    offsets_of,
    sign_flip_p,
)
from rbptrack.plugins.rank_and_ce.rank_and_probability import RankAndProbability, Rates, quantiles_by_bin, split_of_gain

from rbptrack.analysis import Runs
from rbptrack.base.errors import BadInput
from rbptrack.ranks import FloatArray, RankTable
from rbptrack.reporting.telling import leads_of, sentences_of
from studies.rank_and_ce import equal_texts
from studies.simulation import Design
from tests.synthetic import changed, family_runs, ranked, runs_of_tables, together
from tests.test_rank_and_rest import of_distributions

SIZES = np.geomspace(1e4, 1e7, 5)


def table(rank: np.ndarray, nats: np.ndarray, *, documents: int = 1) -> RankTable:
    return ranked(rank, documents=documents, vocab_size=4096, logprob=-np.asarray(nats))


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


def drawn(rng: np.random.Generator, mean: float, hit: float, tokens: int = 40_000) -> RankTable:
    """Tokens of probability around exp(-mean), of which a share `hit` has rank 1 whatever the probability."""
    nats = rng.exponential(mean, tokens)
    return table(np.where(rng.random(tokens) < hit, 1, 30), nats, documents=40)


def split(first: RankAndProbability, second: RankAndProbability, weights: FloatArray) -> FloatArray:
    return split_of_gain(*(Rates.of(one, weights)[1] for one in (first, second)))


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
    assert mix + within == pytest.approx(second.rbp(1) - first.rbp(1))
    assert within == pytest.approx(0, abs=2e-3)


def test_quantiles_and_held_out_errors_by_hand() -> None:
    counts = np.array([[1, 1, 2], [0, 0, 0]])
    quantiles = quantiles_by_bin(counts, np.array([1.0, 2.0, 4.0]), (0.05, 0.5, 0.95))
    np.testing.assert_array_equal(quantiles[0], [1, 2, 4])
    assert np.isnan(quantiles[1]).all()
    x = np.arange(5.0)
    np.testing.assert_allclose(held_out_errors(x, 2 * x + 1, np.arange(5)), 0, atol=1e-12)
    bent = held_out_errors(x, x**2, np.array([0, 0, 0, 0, 1]))
    assert bent[4] == pytest.approx(3 * 4 - 1 - 16)
    assert np.isnan(bent[:4]).all(), "one point is left to predict four from"


def test_flipped_signs_and_the_families_that_they_need() -> None:
    assert sign_flip_p(np.ones(5)) == pytest.approx(2 / 32)
    assert sign_flip_p(np.array([1.0, -1.0, 1.0, -1.0])) == 1
    assert [families_needed(cases, 0.95) for cases in (1, 2, 3, 6)] == [6, 7, 7, 8]
    assert sign_flip_p(np.ones(families_needed(6, 0.95))) * 6 <= 0.05


def equal_predictors(rng: np.random.Generator, families: int, sizes: int, offset: float) -> tuple[FloatArray, ...]:
    """Two predictors and an outcome that repeat one trend, each with errors and an offset of the family of its own."""
    trend = np.linspace(0, -1, sizes)
    errors = rng.normal(0, 0.02, (3, families, sizes)) + offset * rng.normal(size=(3, families, 1))
    return tuple((trend + errors).reshape(3, -1))


def test_neither_of_two_equal_predictors_is_named() -> None:
    """Flipping points that share a family's offset one by one named a winner in half of the draws (issue 19, 3.1)."""
    rng, wrong = np.random.default_rng(2), {"families": 0, "sizes": 0}
    number = np.repeat(np.arange(8), 6)
    for _ in range(150):
        wrong["families"] += Leaning.across(*equal_predictors(rng, 8, 6, 0.1), number).p < 0.05
        wrong["sizes"] += Leaning.within(*equal_predictors(rng, 1, 7, 0.1), np.zeros(7)).p < 0.05
    assert 0 < wrong["families"] <= 13
    assert 0 < wrong["sizes"] <= 13
    first, second, y = equal_predictors(rng, 8, 6, 0.1)
    told = Leaning.across(y + 0.1 * (first - y), second, y, number)
    assert told.lean > 0
    assert told.p < 0.05


def test_equal_ranks_at_equal_probability_are_not_called_better() -> None:
    """Ranks depend on p alone, smoothly; models differ in p: all of the gain is mix, in nearly every draw."""
    rng, z = np.random.default_rng(3), []
    for _ in range(40):
        pair = []
        spread = np.repeat(np.exp(0.5 * rng.standard_t(3, 100).clip(-3, 3)), 600)
        for mean in (3.0, 2.1):
            nats = rng.exponential(mean, 60_000) * spread
            rank = np.where(rng.random(60_000) < np.exp(-nats), 1, 30)
            pair.append(RankAndProbability.of(table(rank, nats, documents=100), lengths=[1], ks=[1]))
        weights = rng.multinomial(100, np.full(100, 1 / 100), size=100).astype(float)
        z.append(split(*pair, np.ones((1, 100)))[0, 1] / split(*pair, weights)[:, 1].std())
    assert abs(np.mean(z)) < 0.35, "bins as such must not look like ranks"
    assert np.mean(np.abs(z) > 2) <= 0.15
    assert np.std(z) > 0.3, "a gain that is always 0 would pass"


@pytest.fixture(scope="module")
def two_families() -> Runs:
    one = family_runs(SIZES, alpha=0.2, a=12.0, family="one", tokens=300)
    return together(one, family_runs(SIZES * 1.1, alpha=0.2, a=10.0, family="two", tokens=300, seed=1))


def test_one_curve_or_several_at_equal_loss() -> None:
    """Families on one curve are found apart at the nominal rate, a family off it always."""
    rng, wrong, series = np.random.default_rng(4), 0, np.repeat(np.arange(3), 6)
    ce = np.concatenate([np.linspace(3.0, 2.0, 6) * factor for factor in (1, 0.9, 1.1)])
    for _ in range(200):
        y = 0.4 * ce**1.6 * np.exp(0.01 * rng.standard_normal(18))
        wrong += collapse(ce, y, series).p < 0.05
    assert 0 < wrong <= 18
    law = collapse(ce, y * np.where(series == 2, 1.1, 1.0), series)
    assert law.p < 1e-4
    assert np.argmax(law.apart) == 2
    np.testing.assert_allclose(law.apart[2], np.log(1.1) * 2 / 3, atol=law.half[2])
    one = collapse(ce[:6], y[:6], series[:6])
    assert np.isnan(one.p)
    assert one.left < 0.02


@pytest.mark.parametrize("terms", [1, 2])
def test_offsets_are_those_of_the_whole_least_squares(terms: int) -> None:
    rng = np.random.default_rng(9)
    series = np.array([0, 1, 2, 0, 1, 0, 1, 2, 0, 3])  # uneven; one has a single point
    curves = rng.standard_normal((5, len(series), terms))
    y = rng.standard_normal((5, len(series)))
    offsets = offsets_of(curves, y, series)
    np.testing.assert_allclose(offsets.sum(axis=1), 0, atol=1e-12)
    for drawn, ys, found in zip(curves, y, offsets, strict=True):
        design = np.column_stack([drawn, np.eye(4)[series]])
        levels = np.linalg.lstsq(design, ys)[0][terms:]
        np.testing.assert_allclose(found, levels - levels.mean(), atol=1e-12)


def test_two_samples_of_one_population_are_not_found_apart() -> None:
    """Points of a text share its documents: scatter about the curve alone found 78% of such pairs apart."""
    rng = np.random.default_rng(8)
    design = Design(m=7, documents=50, tau=0.0)
    claim = "two texts of one population are found apart at equal loss (false positive)"
    assert sum(bool(equal_texts(rng, design)[claim]) for _ in range(60)) <= 8


def test_the_report(two_families: Runs) -> None:
    report = RankAndCe(ks=[1, 2], shown=1).analyze(two_families)
    assert report.findings[0].question == "collapses on CE"
    assert "so that CE is not split" in " ".join(report.notes), "the ranks here are not of these probabilities"
    curve = report.tables["collapse"].frame
    assert set(curve["dataset"]) == {"text"}
    assert (curve["series"] == 2).all()
    summary = report.tables["summary"].frame.set_index("family")
    assert (summary["gain"] > 0.2).all()
    gains = report.tables["gains"].frame.query("family == 'one' and k == 1")
    assert gains["gain"].sum() == pytest.approx(summary.loc["one", "gain"])
    np.testing.assert_allclose(gains["mix"] + gains["within"], gains["gain"])
    predictions = report.tables["predictions"].frame
    assert set(predictions["left_out"]) == {"sizes", "families"}
    assert {"8 tokens in a row", "whole answers"} == set(predictions["outcome"])
    few = predictions[predictions["left_out"] == "families"]
    assert set(few["better"]) == {"needs 8 families"}
    windows = report.tables["windows"].frame.query("N == 4")
    np.testing.assert_allclose(windows["measured"], windows["independent"], rtol=0.35, atol=2e-3)
    said = sentences_of(report.findings)
    assert said[0].startswith("At equal CE, of 2 cases: ")
    assert any("takes 8 of them" in sentence for sentence in said)
    assert set(report.drawings) == {"equal_loss", "rank_and_probability", "windows"}


def test_probabilities_among_other_candidates_are_never_on_one_curve_with_these(two_families: Runs) -> None:
    """Over the tokenizer's candidates p is normalised anew: CE is another quantity."""
    other = two_families.frame["family"] == "two"
    frame = two_families.frame.assign(candidates=np.where(other, "tokenizer", "vocabulary"))
    report = RankAndCe(ks=[1], shown=1, replicates=100).analyze(changed(two_families, frame))
    curves = report.tables["collapse"].frame
    assert list(curves["dataset"]) == ["text", "text (candidates=tokenizer)"]
    assert (curves["series"] == 1).all()
    predictions = report.tables["predictions"].frame
    assert set(predictions["dataset"]) == {"text", "text (candidates=tokenizer)"}
    assert (predictions["left_out"] == "sizes").all()


def test_ce_is_split_into_rank_and_rest() -> None:
    """Each size has ranks and probabilities of one distribution; larger ones are surer of the right token."""
    rng = np.random.default_rng(6)
    tables = {}
    for i, s in enumerate(SIZES):
        tables[f"r{i}"] = of_distributions(rng, 3000, documents=30, scale=0.5 * (s / 1e4) ** 0.15)
    report = RankAndCe(ks=[1, 2], shown=1, replicates=200).analyze(runs_of_tables(SIZES, tables))
    split = report.tables["split"].frame
    np.testing.assert_allclose(split["rank"] + split["rest"], split["ce"])
    np.testing.assert_allclose(split["ce"], [table.ce for table in tables.values()])
    fall = report.tables["fall"].frame.iloc[0]
    assert fall["share"] == pytest.approx((split["rank"].iloc[0] - split["rank"].iloc[-1]) / fall["fall"])
    assert fall["share_low"] < fall["share"] < fall["share_high"]
    spectrum = report.tables["spectrum"].frame
    assert spectrum["share"].sum() == pytest.approx(fall["share"])
    laws = report.tables["part_laws"].frame.iloc[0]
    assert laws["alpha_rank"] - laws["alpha_rest"] == pytest.approx(laws["difference"], abs=0.02)
    assert laws["low"] < laws["difference"] < laws["high"]
    texts = sentences_of(report.findings)
    assert texts[0].startswith(f"Better ranks make up {fall['share']:.0%} (")
    assert "of the fall of cross-entropy with size" in texts[0]
    assert leads_of(report.findings)[0].sentence == texts[0]
    assert "spectrum" in report.drawings


@pytest.mark.parametrize("sizes", [1, 2])
def test_too_few_sizes_for_a_law_still_have_their_parts(sizes: int) -> None:
    """Two small models are what a first sweep measures; the law that they cannot have silenced everything."""
    rng = np.random.default_rng(7)
    s = SIZES[:sizes]
    tables = {f"r{i}": of_distributions(rng, 2000, documents=20, scale=0.5 + 0.3 * i) for i in range(sizes)}
    report = RankAndCe(ks=[1, 2], shown=1, replicates=100).analyze(runs_of_tables(s, tables))
    assert len(report.tables["split"].frame) == sizes
    assert ("fall" in report.tables) == (sizes > 1)
    assert "part_laws" not in report.tables


def test_a_k_that_is_not_counted_is_refused(two_families: Runs) -> None:
    with pytest.raises(BadInput, match=r"analyzer.ks=\[7\].*expected k of 1, 2, 3, 5, 10"):
        RankAndCe(ks=[7], shown=7).analyze(two_families)


def test_one_size_has_no_gain() -> None:
    report = RankAndCe().analyze(runs_of_tables([1e5], {"r": drawn(np.random.default_rng(4), 2, 0.5)}))
    assert set(report.tables) == {"summary", "windows", "at_equal_p", "at_equal_rank"}
    assert "needs a second size" in sentences_of(report.findings)[-1]
    bounds = report.tables["at_equal_p"].frame
    assert (bounds["p"] * bounds["bound"] >= 1).all()
