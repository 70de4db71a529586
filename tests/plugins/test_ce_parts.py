"""Both identities by hand and for any ranks; laws of parts with known exponents; what has no interval has none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.ce_parts import PARTS, CeParts, decompose, means, part_sums
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes
from rbptrack.ranks import RankHistogram, RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

SIZES = (1e6, 1e7, 1e8, 1e9)
V = 64


def model(s: float, *, documents: int = 40, tokens: int = 50, seed: int = 0) -> RankTable:
    """E[ln R] = 3 S^-0.2 and E[-ln(pR)] = 2 S^-0.1 (S in units of 1e6), each document with its own difficulty."""
    rng = np.random.default_rng(seed)
    ease = s / 1e6
    difficulty = np.repeat(rng.uniform(0.8, 1.2, documents), tokens)
    share = ease**-0.2 / 2 * difficulty  # of tokens of rank 64: ln 64 = 4.16
    rank = np.where(np.tile(np.arange(tokens), documents) < np.rint(share * tokens), 64, 1)
    logprob = -np.log(rank) - 2 * ease**-0.1 * difficulty
    return rank_table(rank, documents=documents, vocab_size=V, logprob=logprob)


def test_the_parts_of_the_second_identity_by_hand() -> None:
    """Ranks 1, 1, 1, 2 with p = 1/2, 1/2, 1/2, 1/4: Q = (1/2, 1/4), Z = 3/4, Q^ = (2/3, 1/3)."""
    histogram = RankHistogram(np.array([1, 2]), np.array([3, 1]), np.log([0.125, 0.25]), 4)
    entropy, alignment, confidence = decompose(histogram)
    assert entropy == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert alignment == pytest.approx(0.75 * np.log(0.75 * 3 / 2) + 0.25 * np.log(0.25 * 3))
    assert confidence == pytest.approx(-np.log(0.75))
    assert entropy + alignment + confidence == pytest.approx(histogram.ce)


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(0.01, 1)), min_size=4, max_size=40))
def test_both_identities_hold_for_any_ranks(tokens: list[tuple[int, float]]) -> None:
    tokens = tokens[: len(tokens) // 2 * 2]
    rank, share = map(np.array, zip(*tokens, strict=True))
    table = rank_table(rank, documents=2, logprob=np.log(share / rank))
    sums = part_sums([table], table.histogram())
    parts = dict(zip(PARTS, means(sums.sums.sum(axis=0)), strict=True))
    assert parts["ce"] == pytest.approx(table.ce, abs=1e-9)
    assert parts["rank"] + parts["rest"] == pytest.approx(parts["ce"], rel=1e-9)
    second = parts["error_entropy"] + parts["self_alignment"] + parts["confidence"]
    assert second == pytest.approx(parts["ce"], abs=1e-6)
    np.testing.assert_allclose(
        [parts[name] for name in ("error_entropy", "self_alignment", "confidence")],
        decompose(table.histogram()),
        atol=1e-6,
    )


def test_documents_move_the_parts_as_leaving_them_out_does() -> None:
    """The sums of H(P) and -ln Z are their first order: without one of 200 documents they are those of the rest."""
    rng = np.random.default_rng(0)
    rank = np.minimum(rng.geometric(0.3, 200 * 50), V)
    table = rank_table(rank, documents=200, vocab_size=V, logprob=-np.log(rank) - rng.random(len(rank)))
    sums = part_sums([table], table.histogram()).sums
    keep = table.column("document") > 0
    rest = rank_table(rank[keep], documents=199, vocab_size=V, logprob=table.column("logprob")[keep])
    moved = means(sums[1:].sum(axis=0))[3:] - means(sums.sum(axis=0))[3:]
    truth = decompose(rest.histogram()) - decompose(table.histogram())
    np.testing.assert_allclose(moved, truth, atol=0.1 * abs(truth).max())


def test_a_histogram_of_other_ranks_is_refused() -> None:
    table = rank_table([1, 2, 3, 4], documents=2)
    other = rank_table([1, 2, 3, 4], documents=2, logprob=np.full(4, -2.0))
    with pytest.raises(Exception, match="cross-entropy"):
        part_sums([table], other.histogram())


def test_laws_and_shares_of_known_parts() -> None:
    runs = family_runs({s: model(s) for s in SIZES})
    report = CeParts().analyze(runs)
    check_charts_and_notes(report)
    table = report.tables["parts"]
    np.testing.assert_allclose(table["rank"] + table["rest"], table["ce"], rtol=1e-9)
    alpha = report.frame("alpha").set_index("metric")["alpha"]
    assert alpha["rest"] == pytest.approx(0.1, abs=0.003)
    assert alpha["rank"] == pytest.approx(0.2, abs=0.02)
    delta = report.frame("delta").set_index("metric")
    assert delta.loc["rank", "verdict"] == "above"
    assert delta.loc["rest", "verdict"] == "below"
    shares = report.frame("share").set_index("metric")["share"]
    assert shares["rank"] + shares["rest"] == pytest.approx(1)
    assert shares[["error_entropy", "self_alignment", "confidence"]].sum() == pytest.approx(1)
    decade = report.frame("per_decade").set_index("metric")["per_decade"]
    assert decade["rest"] == pytest.approx(np.polyfit(np.log10(SIZES), table["rest"], 1)[0])


def test_confidence_has_no_logarithm_and_kl_no_interval() -> None:
    report = CeParts().analyze(family_runs({s: model(s) for s in SIZES}))
    results = report.results
    assert "confidence" not in set(results.loc[results["question"].isin(["alpha", "delta"]), "metric"])
    assert "confidence" in set(report.frame("per_decade")["metric"])
    of_kl = results[results["metric"] == "self_alignment"]
    assert len(of_kl)
    assert of_kl[["low", "high", "p"]].isna().all(axis=None)
    assert results.loc[results["metric"] == "error_entropy", "low"].notna().all()


def test_miller_and_madow_add_the_ranks_seen() -> None:
    table = rank_table([1, 1, 2, 3] * 10, documents=20)
    (row,) = CeParts().analyze(family_runs({1e6: table})).tables["parts"].to_dict("records")
    assert row["miller_madow"] == pytest.approx(row["error_entropy"] + 2 / 80)


def test_two_runs_of_a_size_are_averaged() -> None:
    runs = family_runs({1e6: model(1e6), 1.0000001e6: model(1e6, seed=1)})
    runs.frame["non_embedding_params"] = 10**6
    runs.frame["model"] = ["toy-1m", "toy-1m-seed1"]
    parts = CeParts().analyze(runs).tables["parts"]
    each = [model(1e6).ce, model(1e6, seed=1).ce]
    assert parts["ce"].tolist() == [pytest.approx(np.mean(each))]


def test_probabilities_above_1_over_r_have_no_rank_and_rest() -> None:
    wrong = {
        s: rank_table([4, 1, 2, 1] * 20, documents=20, logprob=np.full(80, -0.1 - i)) for i, s in enumerate(SIZES[:3])
    }
    report = CeParts().analyze(family_runs(wrong))
    check_charts_and_notes(report)
    assert np.isnan(report.tables["parts"]["rank"].iat[0])
    assert "rank" not in set(report.results["metric"])
    assert any("1/R" in note for note in report.notes)


def test_where_ce_does_not_fall_nothing_is_shared_out() -> None:
    report = CeParts().analyze(family_runs({s: model(1e6) for s in SIZES}))
    assert "share" not in report.questions
    assert any("does not fall" in note for note in report.notes)


def test_runs_without_ranks_are_a_note() -> None:
    runs = family_runs({1e6: model(1e6)}, without_ranks=True)
    runs.store.tables.clear()
    report = CeParts().analyze(runs)
    assert not report.tables
    assert report.notes


class TestCeParts(NeedsRanks, NeedsSizes):
    analyzer = CeParts()
