"""Tables of the laws in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis import parse_rbp_name
from rbptrack.analysis.findings import Verdict
from rbptrack.analysis.laws import FamilyLaw
from rbptrack.analysis.rows import R2, Alpha, Column, Corrected, Exponent, OfMetric, P, exponent
from rbptrack.stats.intervals import Interval
from rbptrack.stats.nested import NestedFit
from rbptrack.stats.power_law import (
    held_out_error,
    hold_largest_out,
    huber_alpha,
    of_each,
    point_diagnostics,
    scatters,
)

_AS_WIDE = "its interval for one more model of that size, as wide as backtests were wrong"
Sizes = Annotated[int, Column("number of sizes m")]
KOrCE = Annotated[int, Column("of RBP_k; 0 for CE")]
_HELD_OUT = "measured / predicted - 1 at the largest size by the law of all smaller ones; above 0: worse than predicted"
SizeS = Annotated[float, Column("size, in the unit of the option size", title="S", form="short")]


@dataclass(kw_only=True)
class LawRow(OfMetric):
    """One law; its CSV is what the first table of the page shows."""

    alpha: Exponent
    r2: R2
    sizes: Sizes
    alpha_other: Annotated[
        Interval, Column("exponent with S counted the other way: all parameters", "α, all", form=".3f")
    ]
    held_out: Annotated[Interval, Column(_HELD_OUT, "held-out error", form="+.1%")]
    held_out_p: Annotated[float, Column("two-sided p of that error if the law holds there", form=".3g")]
    held_out_detectable: Annotated[float, Column("smallest error that would be detected, 80% power", form=".1%")]


@dataclass(kw_only=True)
class ContrastRow(OfMetric):
    """The exponent of RBP_k against that of CE."""

    alpha: Alpha
    alpha_ce: Annotated[float, Column("exponent of CE", title="α of CE", form=".3f")]
    difference: Annotated[Interval, Column("alpha - alpha_ce, from the law of the ratio", form="+.3f")]
    p_different: P
    p_corrected: Corrected
    margin: Annotated[float, Column("difference below which exponents count as the same", form=".3f")]
    p_equivalent: Annotated[
        float,
        Column(
            "of a difference at or beyond the margin (two one-sided tests), corrected over the same cases", form=".3g"
        ),
    ]
    verdict: Annotated[Verdict, Column("equivalent, different, both (different, but within the margin) or undecided")]


@dataclass(kw_only=True)
class PointRow(OfMetric):
    """One size under one law."""

    k: KOrCE
    size: Annotated[str, Column("the size as published")]
    S: SizeS
    y: Annotated[float, Column("CE in nats, or -ln RBP_k")]
    se_ln_y: Annotated[float, Column("sampling error of ln y (document bootstrap)", title="se of ln y")]
    residual: Annotated[float, Column("ln y - ln of the law")]
    alpha_without: Annotated[float, Column("exponent when this size is left out", title="α without it", form=".3f")]
    influence: Annotated[float, Column("alpha - alpha_without, in standard errors of alpha")]


@dataclass(kw_only=True)
class FitRow(OfMetric):
    """One law in full, of every k that was fitted."""

    k: KOrCE
    sizes: Sizes
    alpha: Exponent
    alpha_se: Annotated[float, Column("its standard error")]
    alpha_huber: Annotated[float, Column("by Huber's loss: a check", title="α, Huber", form=".3f")]
    A: Annotated[float, Column("prefactor, for S in the unit of the option size")]
    r2: R2
    tau: Annotated[float, Column("standard deviation between models beyond sampling error, in ln y (REML)", title="τ")]
    held_out_error: Annotated[float, Column(_HELD_OUT, form="+.1%")]


@dataclass(kw_only=True)
class SeedRow(OfMetric):
    """The scatter of several runs of one size."""

    sizes: Sizes
    runs: Annotated[int, Column("number of runs: several of some sizes")]
    seed: Annotated[float, Column("standard deviation between runs of one size beyond sampling error, in ln y (REML)")]
    recipe: Annotated[float, Column("standard deviation between sizes beyond that of runs, in ln y (REML)")]
    lack_of_fit: Annotated[float, Column("F of the size means around the law over the scatter of runs within sizes")]
    p: Annotated[float, Column("its p: small where no power law fits within what seeds scatter", form=".3g")]


@dataclass(kw_only=True)
class ForecastRow(OfMetric):
    """A size that was not measured."""

    S: SizeS
    predicted: Annotated[Interval, Column("-ln RBP_k or CE at S, by the law", low=_AS_WIDE, bare=True)]
    refused: Annotated[str, Column("why no number is given")]
    beyond: Annotated[float, Column("S over the largest size measured")]
    rbp: Annotated[float, Column("RBP_k predicted")]


@dataclass(kw_only=True)
class BacktestRow(OfMetric):
    """A size that was left out, predicted from smaller ones."""

    left_out: Annotated[int, Column("how many of the largest sizes the law was fitted without")]
    S: SizeS
    beyond: Annotated[float, Column("S over the largest size fitted")]
    error: Annotated[float, Column("measured / predicted - 1; above 0: worse than predicted", form="+.1%")]


@dataclass(kw_only=True)
class PooledRow(OfMetric):
    """A family among the others of its dataset."""

    mean: Annotated[Interval, Column("mean exponent over families (random effects, REML)", form=".3f")]
    between: Annotated[float, Column("standard deviation between families")]
    alpha: Alpha
    shrunk: Annotated[float, Column("drawn towards the mean by as much as it is uncertain", form=".3f")]


@dataclass(kw_only=True)
class EqualTokensRow(OfMetric):
    """The law over models that were trained on equally many tokens."""

    tokens: Annotated[float, Column("training tokens of every model fitted", form="short")]
    sizes: Annotated[int, Column("how many models")]
    alpha: Exponent


def law_rows(laws: Sequence[FamilyLaw]) -> dict[str, LawRow]:
    """Return the rows of laws by their paths."""
    held_out = [hold_largest_out(law.law) for law in laws]
    return {
        law.path: LawRow(
            **law.keys,
            alpha=exponent(law.law),
            r2=law.law.r2,
            sizes=law.law.points,
            alpha_other=exponent(law.other),
            held_out=largest.error,
            held_out_p=largest.p,
            held_out_detectable=largest.detectable,
        )
        for law, largest in zip(laws, held_out, strict=True)
    }


def point_rows(law: FamilyLaw) -> list[PointRow]:
    """Return each size of a law, and what it changes."""
    cells = {"S": law.law.s, "y": law.law.y} | point_diagnostics(law.law)
    columns = [values.tolist() for values in cells.values()]
    k = parse_rbp_name(law.metric) or 0
    return [
        PointRow(**law.keys, k=k, size=label, **dict(zip(cells, numbers, strict=True)))
        for label, *numbers in zip(law.family.labels, *columns, strict=True)
    ]


def fit_rows(laws: Sequence[FamilyLaw]) -> Iterator[FitRow]:
    """Yield the law at every k, for curves."""
    fits = [law.law for law in laws]
    huber = of_each(fits, lambda s, y, _: huber_alpha(s, y)).tolist()
    errors = of_each(fits, lambda s, y, _: held_out_error(s, y)).tolist()
    for law, alpha_huber, tau, error in zip(laws, huber, scatters(fits).tolist(), errors, strict=True):
        yield FitRow(
            **law.keys,
            k=parse_rbp_name(law.metric) or 0,
            sizes=law.law.points,
            alpha=exponent(law.law),
            alpha_se=law.law.se,
            alpha_huber=alpha_huber,
            A=float(np.exp(law.law.log_a)),
            r2=law.law.r2,
            tau=tau,
            held_out_error=error,
        )


def seed_row(law: FamilyLaw, seeds: NestedFit) -> SeedRow:
    """Return how several runs of a size scatter."""
    return SeedRow(
        **law.keys,
        sizes=seeds.sizes,
        runs=seeds.runs,
        seed=seeds.seed,
        recipe=seeds.recipe,
        lack_of_fit=seeds.lack,
        p=seeds.p,
    )


def equal_row(law: FamilyLaw, tokens: float) -> EqualTokensRow:
    """Return the law over models that were trained on equally many tokens."""
    return EqualTokensRow(**law.keys, tokens=tokens, sizes=law.law.points, alpha=exponent(law.law))
