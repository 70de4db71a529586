"""Rows of the tables of scores and statistics of answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rbptrack.analysis.rows import Column, Corrected, P
from rbptrack.stats.intervals import Interval


@dataclass(kw_only=True)
class OfTask:
    """A row about a task's scores and the answers of a dataset."""

    dataset: Annotated[str, Column("the dataset whose answers are scored")]
    task: Annotated[str, Column("the task whose scores are forecast")]


@dataclass(kw_only=True)
class ProxyRow(OfTask):
    """One statistic and weighting."""

    proxy: Annotated[str, Column("statistic of the solution's tokens, and the weighting where it is not uniform")]
    models: Annotated[int, Column("models with a score")]
    spearman: Annotated[float, Column("rank correlation with the scores; above 0: as expected", "ρ", form="+.2f")]
    kendall: Annotated[
        float, Column("Kendall's tau over pairs of models of one family, or else of families", title="τ", form="+.2f")
    ]
    p: P
    p_corrected: Corrected
    left_out: Annotated[
        float, Column("share of pairs of models of two families that it orders rightly", "pairs right", form=".0%")
    ]
    verdict: Annotated[str, Column("whether it orders models, corrected: yes or undecided")]


@dataclass(kw_only=True)
class SummaryRow(OfTask):
    """What a task's scores can be forecast with."""

    models: Annotated[int, Column("models with a score")]
    families: Annotated[int, Column("of so many families")]
    best: Annotated[str, Column("the proxy of largest rank correlation on these very models: flattered by the choice")]
    spearman: Annotated[float, Column("its rank correlation", "ρ", form="+.2f")]
    ce: Annotated[float, Column("that of cross-entropy", "ρ of CE", form="+.2f")]
    survive: Annotated[int, Column("proxies whose order survives correction (Holm), of 32")]
    left_out: Annotated[
        Interval,
        Column("share of pairs ordered rightly by the proxy that the other families chose", "pairs right", form=".0%"),
    ]
    left_out_ce: Annotated[float, Column("by cross-entropy", "pairs right by CE", form=".0%")]
    detectable: Annotated[
        float,
        Column("smallest τ that could have been detected, corrected (80% power)", "τ that would show", form=".2f"),
    ]


@dataclass(kw_only=True)
class TrainingRow(OfTask):
    """Scores of the second half of a training, from the first."""

    family: Annotated[str, Column("the family")]
    size: Annotated[str, Column("the size as published")]
    proxy: Annotated[str, Column("chosen on the first half")]
    fitted: Annotated[int, Column("checkpoints of the first half")]
    forecast: Annotated[int, Column("checkpoints of the second half")]
    error: Annotated[float, Column("mean distance of forecast and score there", form=".3f")]
    constant: Annotated[float, Column("that of the last score of the first half, unchanged", form=".3f")]


@dataclass(kw_only=True)
class ModelRow(OfTask):
    """A model's score and proxies."""

    family: Annotated[str, Column("the family")]
    model: Annotated[str, Column("the model")]
    revision: Annotated[str, Column("its checkpoint")]
    score: Annotated[float, Column("in the task", form=".3f")]
    best: Annotated[float, Column("the proxy of largest rank correlation, as in the summary", form=".4g")]
    ce: Annotated[float, Column("cross-entropy of the solutions, nats", title="CE", form=".3f")]
    first: Annotated[float, Column("share of whole solutions that are ranked first throughout", form=".1%")]
