"""What is said of statistics of known answers: which orders models as a task's scores do, and what it forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding
from rbptrack.base.words import counted, listed


@dataclass(frozen=True, kw_only=True)
class Chosen(Finding):
    """The share of pairs of models of two families that the proxy chosen by the other families orders rightly.

    Attributes:
        models: models with a score.
        survive: proxies whose order survives correction.
        best: the proxy of largest rank correlation on these very models.
        spearman: its rank correlation.
        spearman_ce: that of cross-entropy.
        right_ce: share of the pairs that cross-entropy orders rightly.
        chosen: the proxies that families chose.
        pairs: how many pairs.

    """

    question: str = "proxy chosen by other families"
    models: int
    survive: int
    best: str
    spearman: float
    spearman_ce: float
    right_ce: float
    chosen: Sequence[str]
    pairs: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how well models of families that did not choose the proxy are ordered."""
        for task in findings:
            place = f"{task.case['task']} by answers of {task.case['dataset']}"
            if isfinite(task.estimate):
                yield (
                    f"{place}: the proxy that the other families choose ({listed(task.chosen)}) orders "
                    f"{task.estimate:.0%} of {counted(task.pairs, 'pair')} of models rightly, cross-entropy "
                    f"{task.right_ce:.0%}."
                )
            else:
                yield f"{place}: whether a proxy orders other families cannot be told with fewer than 3 families."
            models = counted(task.models, "model")
            text = f"{place}: {task.survive} of 32 proxies order {models} beyond chance (corrected)"
            if not task.survive and isfinite(task.detectable):
                text += f"; a rank correlation of {task.detectable:.2f} would have been seen in 80% of such sets"
            yield (
                f"{text}. The largest rank correlation is that of {task.best}, {task.spearman:+.2f}; "
                f"cross-entropy has {task.spearman_ce:+.2f}."
            )


@dataclass(frozen=True, kw_only=True)
class Orders(Finding):
    """The rank correlation of one proxy with a task's scores: `Chosen` says how many there are, the table which."""

    question: str = "proxy orders models"

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say nothing."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Extrapolation(Finding):
    """The mean error of scores of the second half of a training, forecast from the first.

    Attributes:
        proxy: chosen on the first half.
        forecast: how many scores.
        constant: the error of the last score of the first half, unchanged.

    """

    question: str = "score from the first half"
    proxy: str
    forecast: int
    constant: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say the error of each model's forecast."""
        for model in findings:
            case = model.case
            scores = counted(model.forecast, "later score")
            yield (
                f"{case['family']}-{case['size']}, {case['task']}: from the first half of training, {model.proxy} "
                f"forecasts {scores} with a mean error of {model.estimate:.3f}; the last score unchanged has "
                f"{model.constant:.3f}."
            )
