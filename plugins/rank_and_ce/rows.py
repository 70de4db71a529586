"""Rows of the tables of ranks and cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis.rows import UNKNOWN, Column, Corrected, K, OfFamily, P
from rbptrack.stats.intervals import Interval

_RESAMPLED = "lower end of its interval (documents resampled)"
Share = Annotated[float, Column("of the variance of ln R that -ln p explains at the largest size", form=".1%")]


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
    gain: Annotated[float, Column("RBP_k of the largest size less that of the smallest")] = np.nan
    within_share: Annotated[
        Interval, Column("share of the gain at equal p(target): unseen by cross-entropy", form=".1%", low=_RESAMPLED)
    ] = UNKNOWN
    told_by_p: Share
    told_by_rank: Annotated[float, Column("share of the variance of -ln p that R explains there", form=".1%")]


@dataclass(kw_only=True)
class GainRow(OfFamily):
    """The gain between two neighbouring sizes, taken apart."""

    size: Annotated[str, Column("the larger size")]
    from_size: Annotated[str, Column("the next smaller one")]
    k: K
    gain: Annotated[float, Column("RBP_k of the larger less that of the smaller")]
    mix: Annotated[Interval, Column("part of it by tokens that move to higher p(target)", low=_RESAMPLED)]
    within: Annotated[Interval, Column("part of it by better ranks at equal p(target)", low=_RESAMPLED)]


@dataclass(kw_only=True)
class PredictionRow:
    """Whole sequences predicted by CE and by RBP_k."""

    dataset: Annotated[str, Column("the dataset")]
    outcome: Annotated[str, Column("what is predicted: windows of N tokens, or whole answers, with every R <= k")]
    k: Annotated[int, Column("of R <= k")]
    left_out: Annotated[str, Column("sizes one at a time, or families")]
    points: Annotated[int, Column("predictions made")]
    families: Annotated[int, Column("of which the points are")]
    error_ce: Annotated[float, Column("root mean square error of ln(-ln share), by a line in ln CE", "error by CE")]
    error_rbp: Annotated[float, Column("the same, by a line in ln(-ln RBP_k)", "error by RBP_k")]
    p: Annotated[
        float, Column("p of outcomes that lean to neither: whole families flipped, or a t test within families", "p")
    ]
    p_corrected: Corrected = np.nan
    better: Annotated[str, Column("which predicts better, or undecided; or how many families it takes to tell")] = ""
