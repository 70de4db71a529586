"""Two models on the same tokens, with answers that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rbptrack.plugins.agreement import Agreement
from rbptrack.plugins.agreement.findings import Hurt
from rbptrack.plugins.agreement.harm import harm_of, ladder_rows
from rbptrack.plugins.agreement.rows import Compared

from rbptrack.analysis import Runs
from rbptrack.analysis.findings import NothingToSay, Verdict
from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.pairs import OtherTokens, PairSums, paired
from rbptrack.stats.shares import share_of
from tests.synthetic import in_pieces, ranked, runs_of_tables, together


def table(rank: Any, *, documents: int = 40, **changes: Any) -> RankTable:
    """A table of version 2 in which what a model ranks first is the target where its rank is 1, else 999."""
    token = np.arange(len(rank)) % 50
    added = {"token": token, "top": np.where(np.asarray(rank) == 1, token, 999)}
    added |= {"entropy": np.full(len(rank), 2.0), "top_logprob": np.full(len(rank), -0.5)}
    return ranked(rank, documents=documents, vocab_size=1000, **added | changes)


def precisions(base: RankTable, other: RankTable) -> Runs:
    """One model in two precisions."""
    runs = [runs_of_tables([1e6], {dtype: one}, dtype=dtype) for dtype, one in (("float32", base), ("bfloat16", other))]
    return together(*runs)


def test_what_is_planted_is_counted() -> None:
    """40 documents of 10 tokens: each loses one right token, half of them gain one, and one is dearer by 3 nats."""
    rank = np.tile([1, 1, 1, 2, 5, 10, 11, 100, 101, 1000], 40)
    changed, dearer = rank.copy(), np.full(400, -1.0)
    changed[::10] = 20
    changed[3:200:10] = 1
    dearer[7] = -4.0
    report = Agreement(worst=2).analyze(precisions(table(rank), table(changed, logprob=dearer)))
    row = report.tables["summary"].frame.iloc[0]
    assert (row["A"], row["B"]) == ("toy-1000000 float32", "toy-1000000 bfloat16")
    assert row["tokens"] == 400
    # both put 999 first where neither is right: 3 right less 1 lost, and 7 wrong of which 20 gained
    assert row["same_top"] == pytest.approx((2 * 40 + 7 * 40 - 20) / 400)
    assert row[["lost", "gained"]].tolist() == pytest.approx([0.1, 0.05])
    net = np.where(np.arange(40) < 20, 0, -1)
    changes = report.tables["changes"].frame.set_index("metric")
    assert changes.loc["CE", "difference"] == pytest.approx(3 / 400)
    assert changes.loc["RBP_1", "difference"] == pytest.approx(net.sum() / 400)
    assert changes.loc["RBP_100", "difference"] == 0
    assert changes.loc["entropy", ["difference", "low", "high"]].tolist() == [0, 0, 0]
    moves = report.tables["rank_moves"].frame.set_index(["rank_A", "rank_B"])["tokens"]
    assert moves.loc[("1", "11 to 100")] == 40
    assert moves.loc[("2 to 10", "1")] == 20
    assert moves.sum() == 400
    assert report.tables["worst_documents"].frame.iloc[0][["document", "nats"]].tolist() == [0, 3]
    worst = report.tables["worst_tokens"].frame.iloc[0]
    assert worst[["position", "token", "rank_A", "rank_B", "nats"]].tolist() == [7, "<7>", 100, 100, 3]
    assert worst["text"] == "".join(f"<{i}>" for i in range(7))
    said = sentences_of(report.findings)
    assert said[0].startswith(
        "toy-1000000 float32 and toy-1000000 bfloat16 on text rank the same token first at 85.00%"
    )


def test_intervals_and_the_test_of_flips_hold_their_rates() -> None:
    """Documents that share their luck: 400 draws of models that differ by nothing in expectation."""
    rng, documents, length = np.random.default_rng(0), 30, 20
    inside, rejected = 0, 0
    for _ in range(400):
        drift = np.repeat(rng.choice([-1, 1], documents), length)  # a document loses or gains as a whole
        flipped = rng.random(documents * length) < 0.1
        a = np.where(flipped & (drift < 0), 1, 2)
        b = np.where(flipped & (drift > 0), 1, 2)
        cost = rng.normal(0, 1, documents).repeat(length)
        pair = next(paired([table(a, documents=documents)], [table(b, documents=documents, logprob=-1.0 - cost)]))
        sums = PairSums.of(pair, [1])
        difference = sums.changes()["ce"].difference.interval(0.95)
        inside += difference.low <= 0 <= difference.high
        rejected += sums.p_flips() < 0.05
    assert 0.92 <= inside / 400 <= 0.98
    assert 0.02 <= rejected / 400 <= 0.08


def test_documents_of_very_unequal_length_keep_the_rate() -> None:
    """At 20 documents whose ln lengths have a standard deviation of 1.5, t with 19 degrees of freedom covers 82%."""
    rng = np.random.default_rng(2)
    inside = [0, 0]
    for _ in range(500):
        tokens = np.maximum(8, rng.lognormal(5, 1.5, 20))
        difference = share_of(tokens * rng.normal(0, 1, 20), tokens).interval(0.95)
        kl = share_of(tokens * rng.lognormal(0, 0.8, 20), tokens).positive(0.95)
        inside[0] += difference.low <= 0 <= difference.high
        inside[1] += kl.low <= np.exp(0.32) <= kl.high
        assert kl.low > 0
    assert 0.93 <= min(inside) / 500 <= max(inside) / 500 <= 0.99


def test_the_smallest_difference_that_would_have_been_seen() -> None:
    """Drawn with that truth, four of five differences are told from 0."""
    rng = np.random.default_rng(1)
    tokens, scatter = np.full(50, 100.0), rng.normal(0, 30, (500, 50))
    least = float(np.mean([share_of(noise, tokens).detectable(0.95) for noise in scatter]))
    seen = np.mean([share_of(noise + least * 100, tokens).p < 0.05 for noise in scatter])
    assert 0.75 <= seen <= 0.85


HARM = (Verdict.YES, Verdict.CLOSE)


def noisy(rng: np.random.Generator, gap: np.ndarray[Any, Any], noise: float, worse: float = 0.0) -> RankTable:
    """A model that sees the gap between the target's logit and the best other one with noise: rank 1 above 0."""
    seen = gap - worse + rng.normal(0, noise, len(gap))
    rank = 1 + np.ceil(np.maximum(-seen, 0) * 3)
    p = 1 / (1 + np.exp(-seen))
    top = np.log(np.maximum(p, 1 - p))
    return table(rank, documents=30, logprob=np.log(p), top_logprob=top)


def compared(a: RankTable, b: RankTable) -> Compared:
    sums = PairSums.of(next(paired([a], [b])), [1, 10])
    return Compared(
        dataset="text", a="a", b="b", documents=sums, sums=sums, worst=[], lacking=set(), same_reference=False
    )


def test_a_placebo_is_not_called_harm_and_harm_is() -> None:
    """Two independently noised copies of one parent differ in many tokens, and neither is worse."""
    rng = np.random.default_rng(8)
    harmed = {0.0: 0, 0.3: 0}
    unharmed = 0
    for _ in range(200):
        gap = np.repeat(rng.normal(0.3, 0.5, 30), 20) + rng.normal(0, 1, 600)
        for worse in harmed:
            findings = harm_of([compared(noisy(rng, gap, 0.3), noisy(rng, gap, 0.3, worse))], delta=0.2, level=0.95)
            harmed[worse] += any(finding.verdict in HARM for finding in findings)
            unharmed += worse == 0 and all(finding.verdict == "no" for finding in findings)
    assert harmed[0.0] / 200 <= 0.05
    assert harmed[0.3] / 200 >= 0.8
    assert unharmed / 200 >= 0.8
    without = harm_of([compared(noisy(rng, gap, 0.3), noisy(rng, gap, 0.3))], delta=0.0, level=0.95)
    assert {finding.verdict for finding in without} <= {"yes", "undecided"}


def test_harm_below_delta_is_harm_and_is_within_delta() -> None:
    rng = np.random.default_rng(3)
    gap = rng.normal(0.3, 1, 60_000)
    pair = compared(noisy(rng, gap, 0.3), noisy(rng, gap, 0.3, worse=0.03))
    for delta, hurt, within in ((0.1, "yes, by less than delta", 1), (0.001, "yes", 0)):
        findings = harm_of([pair], delta=delta, level=0.95)
        assert next(ladder_rows([pair], findings, 0.95)).hurt == hurt
        sentence = "ranks worse in the one pair (corrected), and is within"
        assert next(Hurt.say(findings)).endswith(f"{sentence} {delta:g} of the first by every measure in {within}.")


def test_the_loss_is_rank_and_rest_and_near_ties_are_counted() -> None:
    """Document by document, ln R and -ln(p R) add up to the loss; churn of a small noise is at near-ties."""
    rng = np.random.default_rng(9)
    gap = rng.normal(0.3, 1, 600)
    pair = compared(noisy(rng, gap, 0.03), noisy(rng, gap, 0.03))
    sums = pair.sums
    np.testing.assert_allclose(sums.rank_a + sums.rest_a, sums.nats_a, atol=1e-9)
    (row,) = ladder_rows([pair], [], 0.95)
    assert row.near > 0.9
    assert row.ce.value == pytest.approx(row.rank.value + sums.changes()["ce_rest"].difference.value)
    far = compared(noisy(rng, gap, 1.0), noisy(rng, gap, 1.0))
    assert next(ladder_rows([far], [], 0.95)).near < 0.5


def test_what_would_have_been_seen_is_seen_among_all_tests_of_the_page() -> None:
    """Corrected for the page's own number of tests: at the uncorrected level the power of 15 tests is 41%."""
    rng = np.random.default_rng(7)
    rank = np.where(rng.random(4000) < 0.5, 1, 2)
    runs = precisions(table(rank), table(rank, logprob=rng.normal(-1, 0.5, 4000)))
    report = Agreement().analyze(runs)
    changes = {finding.case["metric"]: finding for finding in report.findings if finding.question == "changed"}
    assert {finding.tests for finding in changes.values()} == {7}
    tokens = np.full(50, 100.0)
    scatter = rng.normal(0, 30, (500, 50))
    level = 1 - 0.05 / 15
    least = float(np.mean([share_of(noise, tokens).detectable(level) for noise in scatter]))
    seen = np.mean([share_of(noise + least * 100, tokens).p < 1 - level for noise in scatter])
    assert 0.75 <= seen <= 0.88
    ce = changes["ce"]
    assert ce.detectable > (ce.high - ce.low) / 2 * 1.7, "the interval alone, or the uncorrected level, would be less"


def test_pieces_that_end_elsewhere_are_paired_and_other_tokens_refused() -> None:
    rank = np.tile([1, 2, 30, 400], 40)
    whole = precisions(table(rank), table(rank[::-1].copy()))
    expected = Agreement().analyze(whole).tables["changes"].frame
    ids = list(whole.frame["run_id"])
    mixed = [in_pieces(whole, documents=n).rank_pieces(run_id) for n, run_id in zip((7, 15), ids, strict=True)]
    sums = PairSums.concatenate([PairSums.of(pair, [1, 10, 100]) for pair in paired(*mixed)])
    got = [change.difference.value for change in sums.changes().values()]
    np.testing.assert_allclose(sorted(got), sorted(expected["difference"]), atol=1e-15)
    with pytest.raises(OtherTokens, match="did not score the same tokens"):
        list(paired([table(rank)], [table(rank, token=np.zeros(len(rank)))]))


def test_checkpoints_go_from_one_to_the_next() -> None:
    rank = np.tile([1, 2], 40)
    steps = [
        runs_of_tables([1e6], {f"s{i}": table(rank)}, revision=f"step{i}", training_tokens=float(i)) for i in (3, 1, 2)
    ]
    rows = Agreement().analyze(together(*steps)).tables["summary"].frame
    assert rows[["A", "B"]].to_numpy().tolist() == [
        ["toy-1000000 step1", "toy-1000000 step2"],
        ["toy-1000000 step2", "toy-1000000 step3"],
    ]


def test_models_of_two_families_are_left_to_compare() -> None:
    """One question, one answer: unless they are named."""
    rank = np.tile([1, 2], 40)
    runs = together(*(runs_of_tables([1e6], {name: table(rank)}, family=name) for name in ("one", "other")))
    with pytest.raises(NothingToSay, match=r"analyzer\.a and analyzer\.b pair others"):
        Agreement().analyze(runs)
    assert len(Agreement(a="one-*").analyze(runs).tables["summary"].frame) == 1


def test_models_are_chosen_by_name() -> None:
    rank = np.tile([1, 2], 40)
    runs = runs_of_tables([1e5, 1e6], {"small": table(rank), "large": table(rank)})
    rows = Agreement(a="*-100000").analyze(runs).tables["summary"].frame
    assert rows[["A", "B"]].to_numpy().tolist() == [["toy-100000", "toy-1000000"]]
    with pytest.raises(BadInput, match=r"analyzer\.a=pythia analyzer\.b=\*; available: toy-100000, toy-1000000"):
        Agreement(a="pythia").analyze(runs)


def test_a_table_without_what_is_ranked_first_has_the_rest() -> None:
    rank = np.tile([1, 2], 40)
    report = Agreement().analyze(precisions(table(rank).of_version(1), table(rank)))
    row = report.tables["summary"].frame.iloc[0]
    assert np.isnan(row["same_top"])
    assert row["lost"] == 0
    assert "no column top" in report.notes[-1]
    assert report.notes[-1].endswith("dataset=text again=columns")
    assert "entropy" not in set(report.tables["changes"].frame["metric"])


def beside(kl: float, rank: Any, *, of: str, reference: str, dtype: str = "float32") -> Runs:
    """A measurement with a reference, at each token of which KL is known, and the rank of the reference's first."""
    rank = np.asarray(rank)
    changes = {"accept": np.full(len(rank), 0.5), "reference_top": np.where(rank == 1, 999, 7), "reference_rank": rank}
    right = np.full(len(rank), 2)  # what the model ranks first is 999
    one = table(right, kl=kl * (1 + np.arange(len(rank)) % 4), **changes)
    about = {"commit": of, "reference_commit": reference, "reference": reference, "dtype": dtype}
    return runs_of_tables([1e6], {of: one}, **about)


def test_a_reference_says_how_far_and_what_it_would_choose() -> None:
    """KL with its interval over documents, the shares of both directions, and the change between two precisions."""
    rank = np.tile([1, 1, 5, 50], 40)
    back = beside(0.2, np.tile([1, 8, 9, 10], 40), of="teacher", reference="pupil")
    runs = together(beside(0.01, rank, of="pupil", reference="teacher"), back)
    report = Agreement().analyze(runs)
    assert report.summary in report.tables
    row = report.tables["references"].frame.set_index("reference").loc["teacher"]
    assert row[["kl", "kl_documents", "same_top"]].tolist() == pytest.approx([0.025, 0.025, 0.5])
    assert row[["choice_in_model", "choice_in_reference"]].tolist() == pytest.approx([0.5, 1.0])
    assert any(
        "nats per token; both rank the same token first at 50.0%." in line for line in sentences_of(report.findings)
    )
    other = beside(0.03, rank, of="pupil2", reference="teacher", dtype="bfloat16")
    both = together(beside(0.01, rank, of="pupil", reference="teacher"), other)
    change = Agreement().analyze(both).tables["changes"].frame.set_index("metric").loc["KL"]
    assert change[["value_A", "value_B", "difference"]].tolist() == pytest.approx([0.025, 0.075, 0.05])
