"""Two measurements of the same tokens: planted changes are counted, and rates hold in simulation."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.stats.changes import Change, OtherTokens, compare, judge
from rbptrack.stats.documents import estimate as documents_estimate
from rbptrack.stats.estimate import Estimate
from tests.rank_tables import rank_table


def test_what_is_planted_is_counted() -> None:
    """Three documents of four tokens: one token lost, two gained, and the loss rises by .5 nats at one token."""
    a = rank_table([1, 1, 2, 9, 1, 5, 5, 1, 3, 2, 1, 1], documents=3, top=np.arange(12))
    logprob = np.full(12, -1.0)
    logprob[5] = -1.5
    b = rank_table([2, 1, 1, 9, 1, 6, 1, 1, 3, 2, 1, 1], documents=3, top=np.arange(12) // 2 * 2, logprob=logprob)
    changes = compare([a], [b], ks=(1, 5, 100), worst=3)
    assert changes.tokens == 12
    assert changes.moved == pytest.approx(4 / 12)
    assert (changes.lost, changes.gained) == (1 / 12, 2 / 12)
    assert changes.flips.value == pytest.approx(1 / 12)
    assert changes.same_top.value == 0.5
    by_metric = {change.metric: change for change in changes.changes}
    assert list(by_metric) == ["ce", "rbp_1", "rbp_5"], "k above |V| = 64 is left out"
    assert by_metric["ce"].difference.value == pytest.approx(0.5 / 12)
    assert (by_metric["rbp_5"].a, by_metric["rbp_5"].b) == (11 / 12, 10 / 12)
    assert by_metric["rbp_1"].difference.value == changes.flips.value
    (worst,) = changes.worst
    assert (worst.document, worst.position, worst.rank_a, worst.rank_b, worst.instead) == (1, 1, 5, 6, 4)
    assert worst.nats == pytest.approx(0.5)
    assert len(worst.before) == 1, "text before it is of its own document"


def test_pieces_may_end_at_other_documents() -> None:
    rng = np.random.default_rng(0)
    a = rank_table(rng.integers(1, 60, 300), documents=30)
    b = rank_table(rng.integers(1, 60, 300), documents=30)
    whole = compare([a], [b])
    parts = compare(pieces(a, 7, 19), pieces(b, 12))
    assert len(parts.a.tokens) == 30
    for one, other in zip(whole.changes, parts.changes, strict=True):
        assert one.difference == other.difference


def pieces(table: RankTable, *ends: int) -> list[RankTable]:
    """A table in pieces that begin at these documents."""
    number = table.column("document")
    bounds = [0, *(int(np.searchsorted(number, end)) for end in ends), len(table)]
    return [RankTable(table.table.slice(start, stop - start), table.vocab_size) for start, stop in pairwise(bounds)]


@pytest.mark.parametrize(
    "change",
    [
        {"token": np.arange(12)},
        {"position": np.arange(12)},
        {"vocab_size": 65},
        {"documents": 4},
    ],
)
def test_other_tokens_are_refused(change: dict[str, Any]) -> None:
    a = rank_table(np.ones(12), documents=3, token=np.arange(12) + 1)
    b = rank_table(np.ones(12), **{"documents": 3, "token": np.arange(12) + 1} | change)
    with pytest.raises(OtherTokens):
        compare([a], [b])


def test_some_k_is_among_the_candidates() -> None:
    table = rank_table([1, 2, 3, 4], documents=2)
    assert [change.metric for change in compare([table], [table], ks=()).changes] == ["ce"]
    with pytest.raises(BadInput, match="64"):
        compare([table], [table], ks=[1000])


def test_one_that_scored_more_is_refused() -> None:
    a = rank_table(np.ones(12), documents=3)
    b = rank_table(np.ones(16), documents=4)
    nothing = rank_table([], documents=1)
    for first, second in ((a, b), (b, a), (a, nothing), (nothing, nothing)):
        with pytest.raises(OtherTokens):
            compare([first], [second])


def test_ids_that_an_import_leaves_out_are_no_difference() -> None:
    a = rank_table([1, 2, 3], token=[5, 6, 7])
    b = rank_table([1, 2, 4], token=[-1, -1, -1])
    changes = compare([a], [b])
    assert changes.moved == pytest.approx(1 / 3)
    assert np.isnan(changes.same_top.value)
    with pytest.raises(BadInput):
        compare([a], [a], ks=(0,))


def test_sources_are_the_unit_where_they_are_known() -> None:
    rng = np.random.default_rng(1)
    a = rank_table(rng.integers(1, 9, 400), documents=40)
    b = rank_table(rng.integers(1, 9, 400), documents=40)
    changes = compare([a], [b], groups=[str(i // 4) for i in range(40)])
    assert len(changes.a.tokens) == 10
    assert np.isnan(changes.change("ce").difference.half()), "10 groups are too few"


def test_the_interval_of_flips_is_that_of_the_change_of_rbp_1() -> None:
    rng = np.random.default_rng(4)
    ranks = rng.integers(1, 4, 900)
    better = np.where(rng.random(900) < 0.3, 1, ranks)
    changes = compare([rank_table(ranks, documents=30)], [rank_table(better, documents=30)])
    assert changes.flips.value > 0.1
    assert changes.flips == changes.change("rbp_1").difference
    assert changes.mcnemar.value == changes.flips.value
    assert changes.mcnemar.half() > 1.5 * changes.flips.half(), "its variance is that of no change"


def test_the_p_of_flips_is_mcnemars() -> None:
    rng = np.random.default_rng(2)
    a = rank_table(rng.integers(1, 4, 900), documents=30)
    b = rank_table(rng.integers(1, 4, 900), documents=30)
    changes = compare([a], [b])
    net = (changes.pairs.gained - changes.pairs.lost).astype(float)
    statistic = abs(net.sum()) / np.sqrt((net**2).sum())  # Obuchowski, Statistics in Medicine 17, 1998
    df = min(29, 3 * (net**2).sum() ** 2 / (net**4).sum() - 1)
    assert changes.mcnemar.p() == pytest.approx(2 * stats.t.sf(statistic, df))


def test_intervals_of_changes_hold_their_rate() -> None:
    """Documents of unequal lengths, whose change differs between documents; the mean change is 0."""
    rng = np.random.default_rng(3)
    covered = 0
    rejected = 0
    repetitions = 400
    for _ in range(repetitions):
        document = np.repeat(np.arange(40), rng.integers(5, 60, 40))
        drift = rng.normal(0, 0.2, 40)[document]
        a = made(document, np.full(len(document), -2.0))
        b = made(document, np.minimum(-2.0 - drift, -0.01))
        change = compare([a], [b], ks=(1,), worst=0).change("ce")
        covered += abs(change.difference.value) <= change.difference.half()
        rejected += change.difference.p() < 0.05
    assert covered / repetitions > 0.92
    assert rejected / repetitions < 0.08


def made(document: Any, logprob: Any) -> RankTable:
    n = len(document)
    zeros = np.zeros(n)
    columns = {"field": zeros, "token": zeros, "greater": zeros, "ties": zeros, "position": np.arange(n)}
    return RankTable.from_arrays(vocab_size=64, document=document, logprob=logprob, **columns)


def estimate(value: float, se: float) -> Estimate:
    return Estimate(value, scatter=se**2, df=100)


@pytest.mark.parametrize(
    ("ce", "se", "rbp", "answer"),
    [
        (0.1, 0.01, 0.0, "worse"),  # CE rises by more
        (0.0, 0.001, -0.1, "worse"),  # RBP falls by more
        (-0.5, 0.01, 0.3, "within"),  # better
        (0.005, 0.001, -0.005, "within"),  # worse within the tolerance
        (0.005, 0.01, 0.0, "undecided"),
        (0.02, 0.02, 0.0, "undecided"),
        (np.nan, np.nan, 0.0, "undecided"),
    ],
)
def test_a_tolerance_has_three_answers(ce: float, se: float, rbp: float, answer: str) -> None:
    changes = [
        Change("ce", 2.0, 2.0 + ce, estimate(ce, se)),
        Change("rbp_1", 0.5, 0.5 + rbp, estimate(rbp, 0.001)),
    ]
    assert judge(changes, 0.01, 100) == answer


def test_fewer_than_100_documents_may_miss_rare_damage() -> None:
    """Of 100 documents none is damaged in .97^100 = 4.8% of samples if 3% of all are."""
    equal = [Change("ce", 2.0, 2.0, estimate(0.0, 0.001))]
    assert [judge(equal, 0.01, documents) for documents in (20, 99, 100)] == ["rare", "rare", "within"]
    worse = [Change("ce", 2.0, 2.1, estimate(0.1, 0.001))]
    assert judge(worse, 0.01, 20) == "worse"


@pytest.mark.parametrize("documents", [20, 50, 100, 200])
def test_damage_to_3_percent_of_documents_is_seldom_let_through(documents: int) -> None:
    """The mean damage is twice the tolerance, all of it in 3% of the documents."""
    rng = np.random.default_rng(documents)
    let_through = 0
    for _ in range(1000):
        damage = np.where(rng.random(documents) < 0.03, 2 * 0.01 / 0.03, 0.0) + 0.001 * rng.standard_normal(documents)
        change = Change("ce", 3.0, 3.0, documents_estimate(np.column_stack([damage, np.ones(documents)]), per_token))
        let_through += judge([change], 0.01, documents) == "within"
    assert let_through / 1000 < 0.07  # 5%, and three standard errors


def per_token(sums: Any) -> Any:
    return sums[..., 0] / sums[..., 1]


def test_the_rises_of_documents_by_hand() -> None:
    a = rank_table(np.ones(6), documents=3)
    b = rank_table(np.ones(6), documents=3, logprob=np.array([-1, -1, -1, -2, -1, -0.5]))
    changes = compare([a], [b], ks=(1,))
    assert changes.units == 3
    np.testing.assert_allclose(changes.rises, [0, 0.5, -0.25])


def test_the_level_of_a_tolerance_is_corrected_for_the_metrics() -> None:
    """At the edge of the tolerance, one test at 2.5% says worse, four corrected ones do not."""
    t = stats.t.ppf(0.975, 100)
    edge = Change("ce", 2.0, 2.0, estimate(0.01 + 0.01 * t, 0.01))
    others = [Change(f"rbp_{k}", 0.5, 0.5, estimate(0.0, 0.001)) for k in (1, 10, 100)]
    assert judge([edge], 0.01, 100) == "worse"
    assert judge([edge, *others], 0.01, 100) == "undecided"
