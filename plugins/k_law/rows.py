"""Tables of the law in k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis.families import Family
from rbptrack.analysis.rows import Column, Exponent, OfFamily, OfSize
from rbptrack.ranks import DocumentCounts
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import straight_line

from .curves import KCurves

NAN = float("nan")


@dataclass(kw_only=True)
class SlopeRow(OfSize):
    """The law in k of one model."""

    B: Annotated[float, Column("-ln RBP_1 by the line")]
    beta: Annotated[
        Interval,
        Column(
            "of -ln RBP_k = B k^-beta, over k even in ln k",
            title="β",
            form=".4f",
            low="lower end of its interval, studentized document bootstrap; from 10 documents",
        ),
    ]
    r2: Annotated[float, Column("R^2 of ln(-ln RBP_k) against ln k", title="R²", form=".4f")]
    largest_deviation: Annotated[float, Column("largest relative distance of -ln RBP_k from the line", form=".1%")]
    beta_at_1: Annotated[float, Column("local beta at k = 1, of a parabola in ln k", form=".3f")]
    beta_at_10: Annotated[float, Column("the same at k = 10", form=".3f")]
    beta_at_largest: Annotated[float, Column("the same at the largest k", form=".3f")]
    largest_k: Annotated[int, Column("of the fit")]
    beta_every_k: Annotated[float, Column("beta over every integer k instead", form=".4f")] = NAN
    r2_every_k: Annotated[float, Column("of that line", form=".4f")] = NAN


@dataclass(kw_only=True)
class WorthRow(OfFamily):
    """What going from k to 2k is worth in model size (`worth_of_doubling`)."""

    k: Annotated[int, Column("from which k doubles")]
    alpha: Exponent
    beta: Annotated[float, Column("ln(y_k/y_2k)/ln 2 with y = -ln RBP, mean over sizes", title="β", form=".3f")]
    ratio: Annotated[float, Column("beta/alpha: dS/S per dk/k at constant RBP, up to sign (eq. 10)")]
    factor_in_s: Annotated[float, Column("2^(beta/alpha): the growth in S that has the effect of doubling k")]
    factor_low: Annotated[float, Column("lower end of its interval (Fieller)")]
    factor_high: Annotated[float, Column("upper end; infinite where alpha may be 0")]
    factor_measured: Annotated[float, Column("the same read off between measured sizes, geometric mean")]
    sizes_measured: Annotated[int, Column("over how many sizes")]


def slope_rows(family: Family, curves: KCurves, counts: Sequence[DocumentCounts]) -> Iterator[SlopeRow]:
    """Yield the law in k of each size."""
    fit = curves.fit
    largest = int(fit.ks[-1])
    at_1 = fit.local_beta(1)
    at_10 = fit.local_beta(10)
    at_largest = fit.local_beta(largest)
    for i, (keys, count) in enumerate(zip(family.size_keys, counts, strict=True)):
        row = SlopeRow(
            **keys,
            B=float(np.exp(fit.log_b[i])),
            beta=curves.beta[i],
            r2=float(fit.r2[i]),
            largest_deviation=float(fit.largest_deviation[i]),
            beta_at_1=float(at_1[i]),
            beta_at_10=float(at_10[i]),
            beta_at_largest=float(at_largest[i]),
            largest_k=largest,
        )
        if family.vocab_size:
            every = np.arange(1, largest + 1)
            rbp = count.select(every.tolist()).hits.sum(axis=0) / count.tokens.sum()
            line = straight_line(np.log(every), np.log(-np.log(rbp)))
            row.beta_every_k = -line.slope
            row.r2_every_k = line.r2
        yield row
