"""Tests of `rank_and_rest_sums`: CE = E[ln R] + E[-ln(p R)], in nats. Both parts are at least 0."""

from __future__ import annotations

import numpy as np
import pytest

from rbptrack.ranks import RankTable, rank_and_rest_sums

VOCABULARY = 40


def table_with_ties(seed: int) -> RankTable:
    """Make a rank table of 600 tokens in 6 documents whose targets are drawn from softmax distributions.

    The logits of a token are multiples of one number, so they have ties.
    """
    tokens = 600
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 6, (tokens, VOCABULARY)) * rng.exponential(1, (tokens, 1))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    target = np.array([rng.choice(VOCABULARY, p=np.exp(row)) for row in log_p])
    target_logit = logits[np.arange(tokens), target][:, None]
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.sort(rng.integers(0, 6, tokens)),
        greater=(logits > target_logit).sum(axis=1),
        ties=(logits == target_logit).sum(axis=1) - 1,
        logprob=np.minimum(log_p[np.arange(tokens), target], 0),
    )


@pytest.mark.parametrize("strict", [False, True])
def test_rank_and_rest_sums_add_up_to_ce_and_are_positive(strict: bool) -> None:
    table = RankTable(table_with_ties(0).table, VOCABULARY, strict=strict)
    rank_sum, rest_sum, impossible = rank_and_rest_sums(table)
    assert impossible == 0
    assert rank_sum + rest_sum == pytest.approx(table.ce * len(table), rel=1e-12)
    assert rank_sum > 0
    assert rest_sum > 0


@pytest.mark.parametrize("strict", [False, True])
def test_rank_and_rest_sums_use_the_rank_with_ties_also_if_metrics_are_strict(strict: bool) -> None:
    table = RankTable(table_with_ties(0).table, VOCABULARY, strict=strict)
    rank_with_ties = table.column("greater") + table.column("ties") + 1
    rank_sum, _, _ = rank_and_rest_sums(table)
    assert rank_sum == pytest.approx(np.log(rank_with_ties).sum(), rel=1e-12)


def test_rank_and_rest_sums_have_a_rank_part_that_is_a_weighted_sum_of_all_rbp() -> None:
    """E[ln R] = sum over k of ln(1 + 1/k) (1 - RBP_k)."""
    table = table_with_ties(1)
    k = np.arange(1, VOCABULARY + 1)
    expected = (np.log1p(1 / k) * (1 - table.histogram().rbp_curve(k))).sum()
    rank_sum, _, _ = rank_and_rest_sums(table)
    assert rank_sum / len(table) == pytest.approx(expected, rel=1e-12)


def test_rank_and_rest_sums_count_tokens_whose_probability_is_above_1_over_rank() -> None:
    table = table_with_ties(2)
    has_rank_2 = table.column("greater") + table.column("ties") == 1
    logprob = np.where(has_rank_2, np.log(0.5) + 6e-5, table.column("logprob"))
    contradictory = RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=table.column("document"),
        greater=table.column("greater"),
        ties=table.column("ties"),
        logprob=logprob,
    )
    _, _, impossible = rank_and_rest_sums(contradictory)
    assert has_rank_2.any()
    assert impossible == has_rank_2.sum()


def check_sums_of_rank_2(table: RankTable, excess: float, impossible: int) -> None:
    """Check the sums of a table with 4 tokens of rank 2 and ln p = -ln 2 + excess, in nats.

    Args:
        table: the table.
        excess: by how much ln p exceeds the largest value that is possible at rank 2.
        impossible: the expected number of tokens that are counted as impossible.
    """
    rank_sum, rest_sum, impossible_tokens = rank_and_rest_sums(table)
    assert impossible_tokens == impossible
    assert rest_sum == pytest.approx(-4 * excess, abs=1e-5)
    assert rank_sum + rest_sum == pytest.approx(-4 * (excess - np.log(2)), abs=1e-5)


@pytest.mark.parametrize(("excess", "impossible"), [(9e-6, 0), (2e-5, 4)])
def test_rank_and_rest_sums_of_measured_ranks_tolerate_an_excess_of_1e_5_nats(excess: float, impossible: int) -> None:
    table = RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.zeros(4),
        greater=np.ones(4),
        ties=np.zeros(4),
        logprob=np.full(4, excess - np.log(2)),
    )
    check_sums_of_rank_2(table, excess, impossible)


@pytest.mark.parametrize(("excess", "impossible"), [(1e-2, 0), (2e-2, 4)])
def test_rank_and_rest_sums_of_imported_ranks_tolerate_the_rounding_of_bfloat16(excess: float, impossible: int) -> None:
    """An imported table has no column `ties`. Rounding to bfloat16 may raise its ln p by at most 1.3e-2 nats."""
    table = RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.zeros(4),
        greater=np.ones(4),
        logprob=np.full(4, excess - np.log(2)),
    )
    check_sums_of_rank_2(table, excess, impossible)
