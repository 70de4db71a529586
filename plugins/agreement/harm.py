"""Did it hurt, or only change? One-sided tests of RBP_k and of the rank part of the loss; a ladder of precisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import isfinite
from typing import Annotated

import numpy as np

from rbptrack.analysis.findings import Verdict, around, corrected
from rbptrack.analysis.rows import Column
from rbptrack.ranks import CE, rbp_name
from rbptrack.stats.contrasts import holm
from rbptrack.stats.intervals import Interval
from rbptrack.stats.pairs import NEAR, RANK
from rbptrack.stats.shares import Share, share_of

from .findings import WITHIN, Hurt
from .rows import Compared, PairRow

LADDER = "A row per model: what it costs against the first, and whether it ranks worse."


@dataclass(kw_only=True)
class LadderRow(PairRow):
    """What one model, precision or checkpoint costs against another."""

    ce: Annotated[Interval, Column("CE of B minus that of A, nats", title="ΔCE", form="+.4f")]
    rank: Annotated[Interval, Column("mean of ln R of B minus that of A, nats", title="Δ rank part", form="+.4f")]
    rank_share: Annotated[
        Interval, Column("share of ΔCE that is its rank part; empty where CE does not differ", "rank share", form=".0%")
    ]
    rbp: Annotated[Interval, Column("RBP_k of B minus that of A, at the smallest k", title="ΔRBP", form="+.4f")]
    decided: Annotated[
        Interval,
        Column("tokens gained minus tokens lost, each by the mean of both margins, nats per token", form="+.4f"),
    ]
    near: Annotated[
        float, Column(f"of tokens lost or gained, the share within {NEAR} nats of a tie", "at near-ties", form=".0%")
    ]
    hurt: Annotated[str, Column("whether B ranks worse: yes (somewhere), no (nowhere by delta or more) or undecided")]


def harm_of(pairs: Sequence[Compared], *, delta: float, level: float) -> list[Hurt]:
    """Ask of each pair, at every k and of the rank part, whether the second model ranks worse.

    Source: one-sided t tests over documents of no harm, and of harm of delta or more (Schuirmann 1987).

    Args:
        pairs: the counts of each pair.
        delta: harm within which a model counts as unharmed; 0: none does.
        level: 1 - the size of the tests, corrected over all (Holm), those of harm and those of delta apart.

    """
    harms = [(pair, metric, share) for pair in pairs for metric, share in _harms(pair)]
    margin = delta if delta > 0 else float("nan")
    refuted = [
        share.spread.p_beyond(margin - share.value) if share.spread and delta > 0 else 1.0 for *_, share in harms
    ]
    p_of_delta = iter(holm(refuted))  # of harm of delta or more

    def verdict(harm: Hurt) -> Verdict:
        unharmed = next(p_of_delta) < 1 - level
        if harm.p_corrected < 1 - level:
            return Verdict.CLOSE if unharmed else Verdict.YES
        return Verdict.NO if unharmed else Verdict.UNTOLD

    findings = [
        Hurt(
            case=pair.case | {"metric": metric},
            p=share.spread.p_beyond(share.value) if share.spread else np.nan,
            margin=margin,
            **around(share.interval(2 * level - 1)),  # each of its ends is one-sided
        )
        for pair, metric, share in harms
    ]
    return corrected(findings, verdict)


def _harms(pair: Compared) -> Iterator[tuple[str, Share]]:
    """Yield metric, and by how much the second model is worse."""
    sums = pair.sums
    yield RANK, share_of(sums.rank_b - sums.rank_a, sums.tokens)
    for i, k in enumerate(sums.ks):
        yield rbp_name(k), share_of(sums.hits_a[:, i] - sums.hits_b[:, i], sums.tokens)


def _near(pair: Compared) -> float:
    flips = pair.sums.lost.sum() + pair.sums.gained.sum()
    return float(pair.sums.near.sum() / flips) if flips else float("nan")


def ladder_rows(pairs: Sequence[Compared], harms: Sequence[Hurt], level: float) -> Iterator[LadderRow]:
    """Yield a row per pair, with what its findings come to."""
    for pair in pairs:
        sums = pair.sums
        changes = sums.changes()
        verdicts = {harm.verdict for harm in harms if dict(harm.case).items() >= pair.case.items()}
        decided = share_of(sums.decided, sums.tokens)
        yield LadderRow(
            **pair.keys,
            ce=changes[CE].difference.interval(level),
            rank=changes[RANK].difference.interval(level),
            rank_share=sums.rank_share(level),
            rbp=changes[rbp_name(sums.ks[0])].difference.interval(level) if sums.ks else Interval(np.nan),
            decided=decided.interval(level) if isfinite(decided.value) else Interval(np.nan),
            near=_near(pair),
            hurt=_hurt(verdicts),
        )


def _hurt(verdicts: Set[Verdict]) -> str:
    """Return what the verdicts of a pair's measures come to."""
    if verdicts == {Verdict.NO}:
        return Verdict.NO
    if not verdicts & {Verdict.YES, Verdict.CLOSE}:
        return Verdict.UNTOLD
    return "yes, by less than delta" if verdicts <= WITHIN else Verdict.YES
