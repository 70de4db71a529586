"""Rows of the tables of ranks and cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis.rows import UNKNOWN, Column, Corrected, K, OfFamily, OfSize, P
from rbptrack.stats.intervals import Interval

_RESAMPLED = "lower end of its interval (documents resampled)"


@dataclass(kw_only=True)
class SplitRow(OfSize):
    """CE of one measurement, split into rank and rest."""

    ce: Annotated[float, Column("cross-entropy", title="CE", unit="nats", form=".3f")]
    rank: Annotated[float, Column("mean ln R: the part that ranks fix", title="rank", unit="nats", form=".3f")]
    rest: Annotated[float, Column("mean -ln(p R): what p lacks to 1/R", title="rest", unit="nats", form=".3f")]
    share: Annotated[Interval, Column("rank over CE", form=".1%", low=_RESAMPLED)]


@dataclass(kw_only=True)
class FallRow(OfFamily):
    """The fall of CE from the smallest to the largest size."""

    sizes: Annotated[str, Column("smallest and largest size")]
    fall: Annotated[float, Column("fall of CE", title="fall of CE", unit="nats", form=".3f")]
    rank: Annotated[float, Column("fall of its rank part", title="of rank", unit="nats", form=".3f")]
    share: Annotated[Interval, Column("share of the fall that is the rank part's", form=".1%", low=_RESAMPLED)] = (
        UNKNOWN
    )


@dataclass(kw_only=True)
class PartLawRow(OfFamily):
    """The laws in size of the parts of CE."""

    alpha_ce: Annotated[Interval, Column("exponent of CE", title="α of CE", form=".3f")]
    alpha_rank: Annotated[Interval, Column("exponent of the rank part", title="α of rank", form=".3f")]
    alpha_rest: Annotated[Interval, Column("exponent of the rest", title="α of rest", form=".3f")]
    difference: Annotated[Interval, Column("rank's exponent minus the rest's", form="+.3f", bare=True)]
    p: P
    p_corrected: Corrected


@dataclass(kw_only=True)
class SpectrumRow(OfFamily):
    """A band of k: its part of sum over k of ln(1 + 1/k) (1 - RBP_k)."""

    k: Annotated[int, Column("first k of the band")]
    last_k: Annotated[int, Column("last k of it")]
    smallest: Annotated[float, Column("nats at the smallest size", form=".3f")]
    largest: Annotated[float, Column("nats at the largest", form=".3f")]
    share: Annotated[Interval, Column("share of the fall of CE that lies in the band", form=".1%", low=_RESAMPLED)]


@dataclass(kw_only=True)
class CollapseRow:
    """The curve of RBP_k over CE through all models on a dataset, or on all of them."""

    dataset: Annotated[str, Column("the dataset, or all of them")]
    k: K
    series: Annotated[int, Column("families, checkpoints and datasets that the points are of")]
    points: Annotated[int, Column("models on texts")]
    explained: Annotated[float, Column("share of the variance of ln(-ln RBP_k) that CE explains", form=".1%")]
    left: Annotated[float, Column("root mean square of what it leaves, as a share of -ln RBP_k", form=".1%")]
    farthest: Annotated[str, Column("the series that lies farthest from the others at equal loss")]
    apart: Annotated[Interval, Column("how far: its -ln RBP_k over the mean of all series, less 1", form=".1%")]
    p: P
    p_corrected: Corrected
    verdict: Annotated[str, Column("different; equivalent: every series within the margin; or undecided")]


@dataclass(kw_only=True)
class SummaryRow(OfFamily):
    """One family's gain between its smallest and its largest size."""

    sizes: Annotated[str, Column("smallest and largest size compared")]
    k: K
    gain: Annotated[float, Column("RBP_k of the largest size minus that of the smallest")] = np.nan
    within_share: Annotated[
        Interval, Column("share of the gain at equal p(target): unseen by cross-entropy", form=".1%", low=_RESAMPLED)
    ] = UNKNOWN


@dataclass(kw_only=True)
class GainRow(OfFamily):
    """The gain between two neighbouring sizes, taken apart."""

    size: Annotated[str, Column("the larger size")]
    from_size: Annotated[str, Column("the next smaller one")]
    k: K
    gain: Annotated[float, Column("RBP_k of the larger minus that of the smaller")]
    mix: Annotated[Interval, Column("part of it by tokens that move to higher p(target)", low=_RESAMPLED)]
    within: Annotated[Interval, Column("part of it by better ranks at equal p(target)", low=_RESAMPLED)]


@dataclass(kw_only=True)
class PredictionRow:
    """Whole sequences predicted by CE and by RBP_k."""

    dataset: Annotated[str, Column("the dataset")]
    outcome: Annotated[str, Column("predicted quantity: windows of N tokens, or whole answers, with every R <= k")]
    k: Annotated[int, Column("of R <= k")]
    left_out: Annotated[str, Column("sizes one at a time, or families")]
    points: Annotated[int, Column("predictions made")]
    families: Annotated[int, Column("number of families of the points")]
    error_ce: Annotated[float, Column("root mean square error of ln(-ln share), by a line in ln CE", "error by CE")]
    error_rbp: Annotated[float, Column("the same, by a line in ln(-ln RBP_k)", "error by RBP_k")]
    p: Annotated[
        float, Column("p of outcomes that lean to neither: whole families flipped, or a t test within families", "p")
    ]
    p_corrected: Corrected = np.nan
    better: Annotated[str, Column("which predicts better, or undecided; or how many families it takes to tell")] = ""
