"""Both parts of CE, E[ln R] and E[-ln(p R)], as laws in size of two sides against each other."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Self

import numpy as np

from rbptrack.analysis import Runs, Unreadable
from rbptrack.analysis.families import Family
from rbptrack.analysis.findings import Finding, Verdict, around, corrected, sure
from rbptrack.analysis.phrases import estimate, with_verdict
from rbptrack.analysis.rows import Column, Corrected, Exponent
from rbptrack.base.words import some_of
from rbptrack.ranks import FloatArray, RankAndRest
from rbptrack.stats.bootstrap import Weights, document_weights, drawn_sums
from rbptrack.stats.contrasts import Apart, laws_apart
from rbptrack.stats.intervals import Interval, widening, worth
from rbptrack.stats.pairs import PAIR_LABELS, RANK, REST
from rbptrack.stats.size_laws import LawValues, widened

from .pairs import Pair
from .rows import PairRow

CAPTION = "CE = mean of ln R (rank part) + mean of -ln(p R) (rest), exactly; the law of each part in size, A over B."


@dataclass(kw_only=True)
class SplitRow(PairRow):
    """The laws of one part of CE of both sides."""

    at_S: Annotated[float, Column("S at which the laws are compared", "S", form="short")]
    ratio: Annotated[Interval, Column("A's part of CE over B's there, by their laws: below 1, A is better", form=".3f")]
    p_corrected: Corrected
    alpha_A: Exponent
    alpha_B: Exponent
    difference: Annotated[Interval, Column("A's exponent minus B's", form="+.3f", bare=True)]
    verdict: Annotated[str, Column("different or undecided: the ratio against 1")]


@dataclass(frozen=True, kw_only=True)
class PartApart(Finding):
    """One part of CE of A over that of B, at one size, by their laws."""

    question: str = "rank part and rest of CE"
    null: float = 1.0

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say in how many cases a part differs; of one pair, both ratios."""
        different = with_verdict(findings, Verdict.DIFFERENT)
        for part in (RANK, REST):
            cases = [finding for finding in findings if finding.case["metric"] == part]
            if not cases:
                continue
            apart = some_of(sum(case in different for case in cases), len(cases), "pair")
            text = f"The {PAIR_LABELS[part]} differs at equal S in {apart}"
            if len(cases) == 1:
                text += f": {cases[0].case['a']} over {cases[0].case['b']} {estimate(cases[0])}"
            yield f"{text}."


def split_rows(runs: Runs, pairs: Sequence[Pair], level: float) -> list[tuple[SplitRow, PartApart]]:
    """Return each part's laws of both sides, of every pair whose ranks can be read; corrected over all (Holm)."""
    values: dict[str, LawValues | None] = {}
    cases = list[tuple[Pair, str, Apart]]()
    for pair in pairs:
        sides = (pair.a, pair.b)
        if (pair.same_dataset and pair.other_tokens) or any(side.values is None for side in sides):
            continue
        for side in sides:
            if side.path not in values:
                values[side.path] = _part_values(runs, side.family)
        first, second = (values[side.path] for side in sides)
        if first is None or second is None:
            continue
        same = pair.a.family.shares_texts(pair.b.family)
        for metric in (RANK, REST):
            both = (pair.a.family.s, first), (pair.b.family.s, second)
            if apart := laws_apart(*both, metric, same_texts=same, level=level):
                cases.append((pair, metric, apart))
    findings = corrected(
        (
            PartApart(
                case=pair.case(metric),
                p=apart.level_spread.p(apart.level),
                **around(_exponential(apart.level, apart.level_spread.half(level))),
            )
            for pair, metric, apart in cases
        ),
        sure(level),
    )
    return [(_row(*case, finding, level), finding) for case, finding in zip(cases, findings, strict=True)]


def _row(pair: Pair, metric: str, apart: Apart, finding: PartApart, level: float) -> SplitRow:
    return SplitRow(
        **pair.keys,
        metric=PAIR_LABELS[metric],
        at_S=apart.at,
        ratio=finding.interval,
        p_corrected=finding.p_corrected,
        alpha_A=apart.a.exponent,
        alpha_B=apart.b.exponent,
        difference=Interval.around(apart.alpha, apart.alpha_spread.half(level)),
        verdict=finding.verdict,
    )


def _exponential(value: float, half: float) -> Interval:
    low, middle, high = np.exp([value - half, value, value + half])
    return Interval(float(middle), float(low), float(high))


def _part_values(runs: Runs, family: Family) -> LawValues | None:
    """Return both parts of every size and their document bootstraps; None where a rank table cannot be read."""
    try:
        sizes = [reduce(operator.add, [_parts(runs, run_id) for run_id in ids]) for ids in family.run_ids]
    except Unreadable:
        return None
    documents = len(sizes[0].tokens)
    values = np.concatenate([_means(size, np.ones((1, documents))) for size in sizes])
    draws = np.stack([_means(size, document_weights(documents)) for size in sizes])
    if len(runs.groups(family.run_ids[0][0])):
        draws = widened(values, draws, widening(worth(np.sqrt(sizes[0].tokens)), 0.95))
    return LawValues((RANK, REST), values, draws)


def _parts(runs: Runs, run_id: str) -> RankAndRest:
    sums = RankAndRest.concatenate([RankAndRest.of(piece) for piece in runs.rank_pieces(run_id)])
    sources = runs.groups(run_id)
    return sums.in_groups(sources) if len(sources) else sums


def _means(size: RankAndRest, weights: Weights | FloatArray) -> FloatArray:
    """Return the means of ln R and of -ln(p R) per token, (replicates, 2)."""
    sums = drawn_sums(weights, size.parts)
    return np.asarray(sums[:, 1:] / sums[:, :1])
