"""Tables of the limits of the law in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from rbptrack.analysis.families import Family
from rbptrack.analysis.findings import Verdict
from rbptrack.analysis.rows import R2, Column, Corrected, Exponent, K, OfFamily, OfMetric, OfSize, P
from rbptrack.ranks import metric_label
from rbptrack.stats.intervals import Interval

from .bends import FloorTest
from .each_k import EachK, LawAtK
from .findings import Bends, Floor
from .law_forms import Forms

_FLATTENS = "largest departure from a line over the sizes, in ln y; above 0: it flattens"
FloorSeen = Annotated[float, Column("the smallest floor, as share of y at the largest size, found in 80%", form=".0%")]


@dataclass(kw_only=True)
class SummaryRow(OfFamily):
    """A family on a dataset."""

    sizes: Annotated[int, Column("number of sizes m")]
    k_star: Annotated[
        int,
        Column("largest k up to which, at every k, alpha is above 0 and no bend is detected; 0: at none", title="k*"),
    ]
    last_k: Annotated[int, Column("the last k tried: beyond it some model has too few misses")]
    beyond: Annotated[str, Column("what most k beyond k* are", title="beyond k*")]
    bends: Annotated[Verdict, Column("one test over all k, from 5 sizes")]
    p: P
    p_corrected: Corrected
    floor_seen: FloorSeen
    straight_to: Annotated[int, Column("largest k up to which the law is straight within the margin, by its interval")]
    bent_from: Annotated[int, Column("smallest k at which it is shown not to be; 0: at none")]
    misses: Annotated[int, Column("tokens with rank above k*, fewest of all sizes")]
    vocabulary: Annotated[int, Column("smallest |V| of the family", title="|V|")]
    scatter: Annotated[float, Column("standard deviation of ln S by which a model is ahead of its size")]
    scatter_fits: Annotated[str, Column("the better rule of scatter: proportional to alpha, or equal in ln y")]


@dataclass(kw_only=True)
class KRow(OfFamily):
    """The law at one k (`each_k.AtK`)."""

    k: K
    verdict: Annotated[LawAtK, Column("no bend detected, noise-limited, systematic deviation or inverse")]
    alpha: Exponent
    band_low: Annotated[float, Column("lower end of a band that holds alpha at every k together", form=".3f")]
    band_high: Annotated[float, Column("upper end", form=".3f")]
    snr: Annotated[float, Column("|alpha| / its standard error")]
    misses: Annotated[int, Column("tokens with rank above k, fewest of all sizes")]
    design_effect: Annotated[float, Column("variance of RBP_k over documents / binomial variance, largest model")]
    departure: Annotated[
        Interval, Column(_FLATTENS, low="lower end of a band that holds the departures of all k together")
    ]
    tau: Annotated[float, Column("scatter between models in ln y")]
    r2: R2
    expected: Annotated[
        Interval,
        Column(
            "median R^2 if the line were true under that noise", "R², expected", form=".3f", low="lower end of its band"
        ),
    ]


@dataclass(kw_only=True)
class FloorRow(OfMetric):
    """A bend and a floor of one metric (`bends.FloorTest`)."""

    floor: Annotated[Verdict, Column("whether the law has one, corrected over all rows")]
    departure: Annotated[Interval, Column(_FLATTENS)]
    p_bend: P
    p_floor: Annotated[float, Column("one-sided, the largest by both S and without the smallest size", form=".3g")]
    p_corrected: Corrected
    kept: Annotated[float, Column("least share of the departure that is left without either end size", form=".0%")]
    share: Annotated[Interval, Column("most likely E / y at the largest size, of E + A S^-alpha", form=".0%")]
    floor_seen: FloorSeen


@dataclass(kw_only=True)
class FormRow(OfMetric):
    """One form of the law of one metric."""

    form: Annotated[str, Column("M0: A S^-alpha; M1: E + A S^-alpha, from 6 sizes; M2: broken, from 12 sizes")]
    preferred: Annotated[bool, Column("the form to use: M1 with a floor, M2 by AICc, else M0")]
    aicc: Annotated[float, Column("Akaike's criterion for small samples, tau counted; lower is better", "AICc")]
    alpha: Annotated[float, Column("exponent under this form (below the break for M2)", title="α", form=".3f")]
    E: Annotated[Interval, Column("floor, in y's unit")]


@dataclass(kw_only=True)
class DocumentRow(OfFamily):
    """A document that holds many misses."""

    k: K
    document: Annotated[int, Column("number in the selection")]
    tokens: Annotated[int, Column("scored tokens in it")]
    misses: Annotated[int, Column("tokens with rank above k, largest model")]
    share: Annotated[float, Column("of all misses of that model", form=".1%")]
    alpha_without: Annotated[float, Column("exponent when this document is left out", "α without it", form=".3f")]
    alpha: Annotated[float, Column("exponent with all documents", title="α", form=".3f")]


@dataclass(kw_only=True)
class TokenRow(OfFamily):
    """A right token that is often missed."""

    k: K
    token: Annotated[str, Column("the right token")]
    id: Annotated[int, Column("its id in the vocabulary")]
    misses: Annotated[int, Column("times its rank was above k, largest model")]
    share: Annotated[float, Column("of all misses", form=".1%")]
    occurrences: Annotated[int, Column("times it was the right token")]


@dataclass(kw_only=True)
class ModelRow(OfSize):
    """How far a model is ahead of its size."""

    ahead: Annotated[float, Column("factor in S by which it is ahead of the line", form=".2f")]


class Metric(NamedTuple):
    """The law of one metric, what it says of a floor (from 6 sizes, where it falls), and its forms."""

    family: Family
    metric: str
    test: FloorTest | None
    forms: Forms

    @property
    def keys(self) -> dict[str, Any]:
        """Dataset, family and metric."""
        return self.family.keys | {"metric": metric_label(self.metric)}

    @property
    def case(self) -> dict[str, str]:
        """The same for a finding."""
        return self.family.keys | {"metric": self.metric}


def summary_row(family: Family, at_each_k: EachK, bends: Bends) -> SummaryRow:
    """Return the summary of one family on a dataset."""
    surface = at_each_k.surface
    star = at_each_k.k_star
    limit = at_each_k.limit
    beyond = pd.Series([v.value for law, v in zip(at_each_k.laws, at_each_k.verdicts, strict=True) if law.k > star])
    return SummaryRow(
        **family.keys,
        sizes=len(family.s),
        k_star=star,
        last_k=at_each_k.last_k,
        beyond=str(beyond.mode().iloc[0]) if len(beyond) else "",
        bends=bends.verdict,
        p=bends.p,
        p_corrected=bends.p_corrected,
        floor_seen=bends.floor_seen,
        straight_to=limit.shown if limit else 0,
        bent_from=limit.exceeded if limit else 0,
        misses=next((law.misses for law in at_each_k.laws if law.k == star), 0),
        vocabulary=family.vocab_size,
        scatter=surface.sigma if surface else float("nan"),
        scatter_fits=surface.better_scatter if surface else "",
    )


def k_rows(family: Family, at_each_k: EachK) -> Iterator[KRow]:
    """Yield the law at each k."""
    for law, verdict in zip(at_each_k.laws, at_each_k.verdicts, strict=True):
        yield KRow(**family.keys, verdict=verdict, **vars(law))


def floor_rows(metric: Metric, floors: Sequence[Floor]) -> Iterator[FloorRow]:
    """Yield the floors of one metric."""
    for floor in floors:
        if metric.test and floor.case == metric.case:
            yield FloorRow(
                **metric.keys,
                **vars(metric.test),
                floor=floor.verdict,
                share=floor.interval,
                p_corrected=floor.p_corrected,
            )


def form_rows(metric: Metric, floors: Sequence[Floor]) -> Iterator[FormRow]:
    """Yield each form of the law of one metric."""
    has_floor = any(floor.verdict == Verdict.YES and floor.case == metric.case for floor in floors)
    best = "M1" if has_floor else "M0"
    if metric.forms.broken:
        best = "M2"
    for fit in metric.forms.fits:
        preferred = fit.form == best
        yield FormRow(**metric.keys, form=fit.form, preferred=preferred, aicc=fit.aicc, alpha=fit.alpha, E=fit.e)


def model_rows(family: Family, at_each_k: EachK) -> Iterator[ModelRow]:
    """Yield how far each model is ahead of its size."""
    for keys, offset in zip(family.size_keys, at_each_k.surface.offset if at_each_k.surface else (), strict=False):
        yield ModelRow(**keys, ahead=float(np.exp(offset)))
