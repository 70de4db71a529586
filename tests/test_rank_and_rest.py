from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rbptrack.analysis.parts_of_ce import parts_of_ce
from rbptrack.analysis.runs import Unreadable
from rbptrack.ranks import BANDS, RankAndRest, RankTable, histogram_parts, split_sums
from tests.synthetic import runs_of_tables

VOCABULARY = 40


def of_distributions(
    rng: np.random.Generator, tokens: int = 600, *, documents: int = 6, scale: float = 1.0
) -> RankTable:
    """Targets drawn from softmax distributions whose logits have ties."""
    logits = rng.integers(0, 6, (tokens, VOCABULARY)) * rng.exponential(scale, (tokens, 1))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    target = np.array([rng.choice(VOCABULARY, p=np.exp(row)) for row in log_p])
    own = logits[np.arange(tokens), target][:, None]
    document = np.sort(rng.integers(0, documents, tokens))
    nothing = np.zeros(tokens)
    return RankTable.from_arrays(
        vocab_size=VOCABULARY,
        document=document,
        position=np.arange(tokens),
        field=nothing,
        token=target,
        greater=(logits > own).sum(axis=1),
        ties=(logits == own).sum(axis=1) - 1,
        logprob=np.minimum(log_p[np.arange(tokens), target], 0),
    )


@pytest.mark.parametrize("strict", [False, True])
def test_rank_and_rest_add_up_to_ce_and_are_at_least_0(strict: bool) -> None:
    table = of_distributions(np.random.default_rng(0))
    if strict:
        table = RankTable(table.table, VOCABULARY, strict=True)
    rank, rest, impossible = split_sums(table)
    assert impossible == 0
    assert rank + rest == pytest.approx(table.ce * len(table), rel=1e-12)
    assert rank > 0
    assert rest > 0
    paper = table.column("greater") + table.column("ties") + 1
    assert rank == pytest.approx(np.log(paper).sum(), rel=1e-12), "the paper's R, also under rank=strict"
    assert (-table.column("logprob") - np.log(paper)).min() > -1e-5


def test_the_rank_part_is_the_weighted_sum_of_every_rbp() -> None:
    table = of_distributions(np.random.default_rng(1))
    k = np.arange(1, VOCABULARY + 1)
    by_k = np.log1p(1 / k) @ (1 - table.histogram().rbp_curve(k))
    assert histogram_parts(table.histogram()) == pytest.approx((by_k, table.ce - by_k), rel=1e-12)
    assert split_sums(table)[0] / len(table) == pytest.approx(by_k, rel=1e-12)
    sums = RankAndRest.of(table)
    bands = [
        np.log1p(1 / k[at]) @ (1 - table.histogram().rbp_curve(k[at]))
        for low, high in zip(BANDS, [*BANDS[1:], np.inf], strict=True)
        for at in [(k >= low) & (k < high)]
    ]
    np.testing.assert_allclose(sums.bands.sum(axis=0) / len(table), bands, atol=1e-12)
    np.testing.assert_allclose(sums.parts.sum(axis=0), [len(table), *split_sums(table)[:2]], rtol=1e-12)


def test_ranks_and_probabilities_of_two_distributions_are_seen() -> None:
    table = of_distributions(np.random.default_rng(2))
    columns = {name: table.column(name) for name in ("document", "position", "field", "token", "greater", "ties")}
    wrong = columns["greater"] + columns["ties"] == 1  # R = 2
    logprob = np.where(wrong, np.log(0.5) + 6e-5, table.column("logprob"))
    off = RankTable.from_arrays(vocab_size=VOCABULARY, **columns, logprob=logprob)
    assert wrong.any()
    assert split_sums(off)[2] == RankAndRest.of(off).impossible.sum() == wrong.sum()


def test_parts_of_an_old_run_are_the_papers_also_where_ranks_are_strict() -> None:
    table = of_distributions(np.random.default_rng(3))
    assert (table.column("ties") > 0).any()
    strict = RankTable(table.table, VOCABULARY, strict=True)
    paper_runs = runs_of_tables([1e6], {"paper": table})
    strict_runs = runs_of_tables([1e6], {"strict": strict}, rank="strict")
    parts = parts_of_ce(strict_runs, "strict")
    assert parts == pytest.approx(parts_of_ce(paper_runs, "paper"), rel=1e-12)
    assert parts[0] == pytest.approx(np.log(table.column("greater") + table.column("ties") + 1.0).mean(), rel=1e-12)
    assert parts[0] > np.log(table.column("greater") + 1.0).mean() + 0.01, "strict ranks would give less"
    assert sum(parts) == pytest.approx(table.ce, rel=1e-12)


def test_strict_ranks_that_were_imported_have_no_parts() -> None:
    """Their ties are not in the file: the paper's R cannot be computed."""
    strict = RankTable(of_distributions(np.random.default_rng(4)).table, VOCABULARY, strict=True)
    runs = runs_of_tables([1e6], {"strict": strict}, rank="strict")
    runs.frame["imported"] = "authors: ranks.json"
    with pytest.raises(Unreadable, match="strict ranks were imported, without ties"):
        parts_of_ce(runs, "strict")


@pytest.mark.parametrize(
    ("source", "excess", "impossible"),
    [
        ("new", 9e-6, False),
        ("new", 2e-5, True),
        ("old", 3e-5, False),
        ("old", 5e-5, True),
        ("import", 1e-2, False),
        ("import", 2e-2, True),
    ],
)
def test_each_kind_of_table_has_its_tolerance_and_none_is_clipped(source: str, excess: float, impossible: bool) -> None:
    """ln p + ln R may exceed 0 by 1e-5; by 4e-5 before version 2; by 1.3e-2 where ln p was rounded to bfloat16."""
    nothing = np.zeros(4, dtype=int)
    columns = {"document": nothing, "position": np.arange(4), "field": nothing, "token": nothing, "ties": nothing}
    logprob = np.full(4, excess - np.log(2))
    if source == "new":
        columns |= {"entropy": nothing + 1, "top": nothing, "top_logprob": nothing - 0.1}
    table = RankTable.from_arrays(vocab_size=VOCABULARY, **columns, greater=nothing + 1, logprob=logprob)
    table = replace(table, ties_known=source != "import")
    rank, rest, above = split_sums(table)
    assert bool(above) == impossible
    assert rest == pytest.approx(-4 * excess, abs=1e-5), "not clipped"
    assert rank + rest == pytest.approx(-4 * (excess - np.log(2)), abs=1e-5)
