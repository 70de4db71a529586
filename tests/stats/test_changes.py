"""Tests of comparing two measurements of the same tokens, and of judging the change by a tolerance."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.stats.changes import Change, Changes, OtherTokens, compare, judge
from rbptrack.stats.documents import estimate
from rbptrack.stats.estimate import Estimate
from tests.rank_tables import rank_table


def changes_of_twelve_tokens() -> Changes:
    """Compare three documents of four tokens: one hit lost, two gained, and one loss that rises by 0.5 nats."""
    ranks_a = [1, 1, 2, 9, 1, 5, 5, 1, 3, 2, 1, 1]
    ranks_b = [2, 1, 1, 9, 1, 6, 1, 1, 3, 2, 1, 1]
    logprob_b = np.full(12, -1.0)
    logprob_b[5] = -1.5
    a = rank_table(ranks_a, documents=3, top=np.arange(12))
    b = rank_table(ranks_b, documents=3, top=np.arange(12) // 2 * 2, logprob=logprob_b)
    return compare([a], [b], ks=(1, 5, 100), worst=3)


def test_compare_counts_moved_lost_and_gained_tokens() -> None:
    changes = changes_of_twelve_tokens()
    assert changes.num_tokens == 12
    assert changes.share("moved") == pytest.approx(4 / 12)
    assert (changes.share("lost"), changes.share("gained")) == (1 / 12, 2 / 12)
    assert changes.flips.value == pytest.approx(1 / 12)
    assert changes.same_top.value == 0.5


def test_compare_reports_change_of_ce_and_of_rbp_up_to_the_vocabularys_size() -> None:
    changes = changes_of_twelve_tokens()
    by_metric = {change.metric: change for change in changes.changes}
    assert list(by_metric) == ["ce", "rbp_1", "rbp_5"], "k = 100 exceeds |V| = 64"
    assert by_metric["ce"].difference.value == pytest.approx(0.5 / 12)
    assert (by_metric["rbp_5"].a, by_metric["rbp_5"].b) == (11 / 12, 10 / 12)
    assert by_metric["rbp_1"].difference.value == changes.flips.value


def test_compare_names_worst_token_with_text_of_its_document() -> None:
    (worst,) = changes_of_twelve_tokens().worst_tokens
    assert (worst.document, worst.position, worst.rank_a, worst.rank_b, worst.instead) == (1, 1, 5, 6, 4)
    assert worst.nats == pytest.approx(0.5)
    assert len(worst.before) == 1, "one token precedes it in its document"


def test_compare_accepts_tables_cut_at_different_documents() -> None:
    rng = np.random.default_rng(0)
    a = rank_table(rng.integers(1, 60, 300), documents=30)
    b = rank_table(rng.integers(1, 60, 300), documents=30)
    changes_of_tables = compare([a], [b])
    changes_of_pieces = compare(cut_before(a, 7, 19), cut_before(b, 12))
    assert len(changes_of_pieces.a.tokens) == 30
    for change, expected in zip(changes_of_pieces.changes, changes_of_tables.changes, strict=True):
        assert change.difference == expected.difference


def cut_before(table: RankTable, *documents: int) -> list[RankTable]:
    """Cut a table into pieces. Each of the documents is the first of a piece."""
    number = table.column("document")
    bounds = [0, *(int(np.searchsorted(number, document)) for document in documents), len(table)]
    return [RankTable(table.table.slice(start, stop - start), table.vocab_size) for start, stop in pairwise(bounds)]


@pytest.mark.parametrize(
    "columns_b",
    [
        {"token": np.arange(12)},
        {"position": np.arange(12)},
        {"vocab_size": 65},
        {"documents": 4},
    ],
)
def test_compare_refuses_tables_of_other_tokens(columns_b: dict[str, Any]) -> None:
    a = rank_table(np.ones(12), documents=3, token=np.arange(12) + 1)
    b = rank_table(np.ones(12), **{"documents": 3, "token": np.arange(12) + 1} | columns_b)
    with pytest.raises(OtherTokens):
        compare([a], [b])


def test_compare_without_k_reports_only_ce() -> None:
    table = rank_table([1, 2, 3, 4], documents=2)
    assert [change.metric for change in compare([table], [table], ks=()).changes] == ["ce"]


def test_compare_refuses_ks_that_all_exceed_the_vocabulary() -> None:
    table = rank_table([1, 2, 3, 4], documents=2)
    with pytest.raises(BadInput, match="64"):
        compare([table], [table], ks=[1000])


def test_compare_refuses_k_0() -> None:
    table = rank_table([1, 2, 3], token=[5, 6, 7])
    with pytest.raises(BadInput, match="0"):
        compare([table], [table], ks=(0,))


def test_compare_refuses_tables_of_unequal_length_and_empty_tables() -> None:
    twelve = rank_table(np.ones(12), documents=3)
    sixteen = rank_table(np.ones(16), documents=4)
    empty = rank_table([], documents=1)
    for a, b in ((twelve, sixteen), (sixteen, twelve), (twelve, empty), (empty, empty)):
        with pytest.raises(OtherTokens):
            compare([a], [b])


def test_compare_accepts_import_without_token_ids() -> None:
    """An import that has no token IDs holds -1 in that column."""
    a = rank_table([1, 2, 3], token=[5, 6, 7])
    b = rank_table([1, 2, 4], token=[-1, -1, -1])
    changes = compare([a], [b])
    assert changes.share("moved") == pytest.approx(1 / 3)
    assert np.isnan(changes.same_top.value)


def test_compare_with_groups_adds_the_documents_of_each_group() -> None:
    rng = np.random.default_rng(1)
    a = rank_table(rng.integers(1, 9, 400), documents=16)
    b = rank_table(rng.integers(1, 9, 400), documents=16)
    changes = compare([a], [b], groups=[str(i // 4) for i in range(16)])
    assert len(changes.a.tokens) == 4
    assert np.isnan(changes.change("ce").difference.half_width()), "4 groups are too few"


def test_flips_are_the_change_of_rbp_1() -> None:
    rng = np.random.default_rng(4)
    ranks = rng.integers(1, 4, 900)
    better_ranks = np.where(rng.random(900) < 0.3, 1, ranks)
    changes = compare([rank_table(ranks, documents=30)], [rank_table(better_ranks, documents=30)])
    assert changes.flips.value > 0.1
    assert changes.flips == changes.change("rbp_1").difference
    assert changes.mcnemar.value == changes.flips.value
    assert changes.mcnemar.half_width() > 1.5 * changes.flips.half_width(), (
        "McNemar's variance assumes that nothing changed"
    )


def test_mcnemar_has_p_of_obuchowskis_test() -> None:
    rng = np.random.default_rng(2)
    a = rank_table(rng.integers(1, 4, 900), documents=30)
    b = rank_table(rng.integers(1, 4, 900), documents=30)
    changes = compare([a], [b])
    net = (changes.pairs.gained - changes.pairs.lost).astype(float)
    statistic = abs(net.sum()) / np.sqrt((net**2).sum())  # Obuchowski, Statistics in Medicine 17, 1998
    df = min(29, 3 * (net**2).sum() ** 2 / (net**4).sum() - 1)
    assert changes.mcnemar.p() == pytest.approx(2 * stats.t.sf(statistic, df))


def test_mcnemar_of_5_deciding_documents_has_14_degrees_of_freedom() -> None:
    """In 5 of 30 documents, 3 tokens are gained. Obuchowski's statistic is 15 / sqrt(5 * 3^2)."""
    ranks = np.full((30, 30), 2)
    gained = ranks.copy()
    gained[:5, :3] = 1
    changes = compare([rank_table(ranks, documents=30)], [rank_table(gained, documents=30)])
    assert changes.mcnemar.p() == pytest.approx(2 * stats.t.sf(15 / np.sqrt(45), 3 * 5 - 1))


def test_token_that_ties_with_others_moves_only_if_its_rank_changes() -> None:
    a = rank_table([3, 3])
    b = rank_table([2, 2], ties=np.array([1, 0]))
    assert compare([a], [b]).share("moved") == 0.5


def test_change_of_ce_covers_0_and_is_tested_at_5_percent() -> None:
    """Simulates documents of unequal lengths. The change of CE differs between documents; its mean is 0."""
    rng = np.random.default_rng(3)
    covered = 0
    rejected = 0
    repetitions = 400
    for _ in range(repetitions):
        document = np.repeat(np.arange(40), rng.integers(5, 60, 40))
        drift = rng.normal(0, 0.2, 40)[document]
        a = table_of_rank_1(document, np.full(len(document), -2.0))
        b = table_of_rank_1(document, np.minimum(-2.0 - drift, -0.01))
        change = compare([a], [b], ks=(1,), worst=0).change("ce")
        covered += abs(change.difference.value) <= change.difference.half_width()
        rejected += change.difference.p() < 0.05
    assert covered / repetitions > 0.92
    assert rejected / repetitions < 0.08


def table_of_rank_1(document: Any, logprob: Any) -> RankTable:
    """Return a rank table in which every target has rank 1. document: the number of each token's document."""
    n = len(document)
    zeros = np.zeros(n)
    columns = {"field": zeros, "token": zeros, "greater": zeros, "ties": zeros, "position": np.arange(n)}
    return RankTable.from_arrays(vocab_size=64, document=document, logprob=logprob, **columns)


def estimate_with_se(value: float, se: float) -> Estimate:
    return Estimate(value, scatter=se**2, df=100)


@pytest.mark.parametrize(
    ("ce", "se", "rbp", "answer"),
    [
        (0.1, 0.01, 0.0, "worse"),  # CE rises by more than the tolerance
        (0.0, 0.001, -0.1, "worse"),  # RBP_1 falls by more than the tolerance
        (-0.5, 0.01, 0.3, "within"),  # both improve
        (0.005, 0.001, -0.005, "within"),  # both get worse by less than the tolerance
        (0.005, 0.01, 0.0, "undecided"),
        (0.02, 0.02, 0.0, "undecided"),
        (np.nan, np.nan, 0.0, "undecided"),
    ],
)
def test_judge_compares_changes_with_tolerance(ce: float, se: float, rbp: float, answer: str) -> None:
    changes = [
        Change("ce", 2.0, 2.0 + ce, estimate_with_se(ce, se)),
        Change("rbp_1", 0.5, 0.5 + rbp, estimate_with_se(rbp, 0.001)),
    ]
    assert judge(changes, 0.01, 100) == answer


@pytest.mark.parametrize(("documents", "answer"), [(20, "rare"), (99, "rare"), (100, "within")])
def test_judge_of_fewer_than_100_documents_warns_of_rare_damage(documents: int, answer: str) -> None:
    """If 3% of all documents are damaged, a sample of 100 has no damaged one in 0.97^100 = 4.8% of cases."""
    unchanged = Change("ce", 2.0, 2.0, estimate_with_se(0.0, 0.001))
    assert judge([unchanged], 0.01, documents) == answer


def test_judge_of_fewer_than_100_documents_still_finds_worse() -> None:
    worse = Change("ce", 2.0, 2.1, estimate_with_se(0.1, 0.001))
    assert judge([worse], 0.01, 20) == "worse"


@pytest.mark.parametrize("documents", [20, 50, 100, 200])
def test_judge_seldom_accepts_damage_to_3_percent_of_documents(documents: int) -> None:
    """The mean damage is twice the tolerance. All of it is in 3% of the documents."""
    rng = np.random.default_rng(documents)
    accepted = 0
    for _ in range(1000):
        damage = np.where(rng.random(documents) < 0.03, 2 * 0.01 / 0.03, 0.0) + 0.001 * rng.standard_normal(documents)
        difference = estimate(np.column_stack([np.ones(documents), damage]), per_token)
        accepted += judge([Change("ce", 3.0, 3.0, difference)], 0.01, documents) == "within"
    assert accepted / 1000 < 0.07  # the nominal 5% plus three standard errors


def per_token(sums: Any) -> Any:
    """Return the second column of sums per token. The first column is the number of tokens."""
    return sums[..., 1] / sums[..., 0]


def test_rises_are_the_changes_of_ce_of_single_documents() -> None:
    a = rank_table(np.ones(6), documents=3)
    b = rank_table(np.ones(6), documents=3, logprob=np.array([-1, -1, -1, -2, -1, -0.5]))
    changes = compare([a], [b], ks=(1,))
    assert changes.num_units == 3
    np.testing.assert_allclose(changes.ce_rises, [0, 0.5, -0.25])


def test_judge_corrects_its_level_for_the_number_of_metrics() -> None:
    """CE exceeds the tolerance with p = 2.5%: enough for one test at 2.5%, too much for one of four."""
    t = stats.t.ppf(0.975, 100)
    ce = Change("ce", 2.0, 2.0, estimate_with_se(0.01 + 0.01 * t, 0.01))
    unchanged = [Change(f"rbp_{k}", 0.5, 0.5, estimate_with_se(0.0, 0.001)) for k in (1, 10, 100)]
    assert judge([ce], 0.01, 100) == "worse"
    assert judge([ce, *unchanged], 0.01, 100) == "undecided"


def test_same_top_has_an_interval_only_if_some_top_tokens_differ() -> None:
    top = np.arange(80)
    a = rank_table([1] * 80, documents=40, top=top)
    b = rank_table([1] * 80, documents=40, top=np.where(top < 3, 99, top))
    assert not compare([a], [a]).same_top.has_interval
    assert compare([a], [b]).same_top.has_interval
