"""CE = E[ln R] + E[-ln(p R)]: exact, both parts at least 0, and the first a sum over all RBP_k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rbptrack.ranks import RankTable, split_sums

VOCABULARY = 40


def of_distributions(seed: int, tokens: int = 600, *, documents: int = 6) -> RankTable:
    """Draw targets from softmax distributions of logits with ties."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 6, (tokens, VOCABULARY)) * rng.exponential(1, (tokens, 1))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    target = np.array([rng.choice(VOCABULARY, p=np.exp(row)) for row in log_p])
    own = logits[np.arange(tokens), target][:, None]
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=np.sort(rng.integers(0, documents, tokens)),
        greater=(logits > own).sum(axis=1),
        ties=(logits == own).sum(axis=1) - 1,
        logprob=np.minimum(log_p[np.arange(tokens), target], 0),
    )


@pytest.mark.parametrize("strict", [False, True])
def test_split_sums_of_rank_and_rest_add_up_to_ce_and_are_positive(strict: bool) -> None:
    table = of_distributions(0)
    table = RankTable(table.table, VOCABULARY, strict=strict)
    rank, rest, impossible = split_sums(table)
    assert impossible == 0
    assert rank + rest == pytest.approx(table.ce * len(table), rel=1e-12)
    assert rank > 0
    assert rest > 0
    paper = table.column("greater") + table.column("ties") + 1
    assert rank == pytest.approx(np.log(paper).sum(), rel=1e-12), "the paper's R, also under rank=strict"


def test_split_sums_gives_a_rank_part_that_is_a_weighted_sum_of_every_rbp() -> None:
    table = of_distributions(1)
    k = np.arange(1, VOCABULARY + 1)
    by_k = np.log1p(1 / k) * (1 - table.histogram().rbp_curve(k))
    assert split_sums(table)[0] / len(table) == pytest.approx(by_k.sum(), rel=1e-12)


def test_split_sums_counts_ranks_that_contradict_probabilities() -> None:
    table = of_distributions(2)
    columns: dict[str, Any] = {name: table.column(name) for name in ("document", "greater", "ties")}
    second = columns["greater"] + columns["ties"] == 1  # R = 2
    logprob = np.where(second, np.log(0.5) + 6e-5, table.column("logprob"))
    off = RankTable.from_arrays(vocab_size=VOCABULARY, **columns, logprob=logprob)
    assert second.any()
    assert split_sums(off)[2] == second.sum()


@pytest.mark.parametrize(
    ("imported", "excess", "impossible"), [(False, 9e-6, 0), (False, 2e-5, 4), (True, 1e-2, 0), (True, 2e-2, 4)]
)
def test_split_sums_tolerates_rounding_without_clipping(imported: bool, excess: float, impossible: int) -> None:
    """ln p + ln R may exceed 0 by 1e-5, and by 1.3e-2 if ln p was imported, because it may be rounded to bfloat16."""
    columns: dict[str, Any] = {
        "document": np.zeros(4),
        "greater": np.ones(4),
        "logprob": np.full(4, excess - np.log(2)),
    }
    if not imported:
        columns["ties"] = np.zeros(4)
    rank, rest, above = split_sums(RankTable.from_arrays(vocab_size=VOCABULARY, **columns))
    assert above == impossible
    assert rest == pytest.approx(-4 * excess, abs=1e-5)
    assert rank + rest == pytest.approx(-4 * (excess - np.log(2)), abs=1e-5)
