"""Findings about statistics of known answers: which orders models as a task's scores do, and what it forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import interval
from rbptrack.base.words import counted, listed


@dataclass(frozen=True, kw_only=True)
class Chosen(Finding):
    """The share of pairs of models of two families that the proxy chosen by the other families orders rightly.

    YES where that is more than half, corrected over tasks.

    Attributes:
        detectable_order: the smallest tau of a proxy that would have been found in 80% of repetitions, corrected; NaN
            where none would.
        tests: of proxies, for which verdicts are corrected.
        within: whether proxies are tested by models of one family; else by families.
        units: how many models, or families, that is.
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
    detectable_order: float
    tests: int
    within: bool
    units: int
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
                ends = f" ({interval(task.low, task.high, '.0%')})" if isfinite(task.low) else ""
                yield (
                    f"{place}: the proxy that the other families choose ({listed(task.chosen)}) orders "
                    f"{task.estimate:.0%}{ends} of {counted(task.pairs, 'pair')} of models correctly, cross-entropy "
                    f"{task.right_ce:.0%}{task.doubt()}."
                )
            else:
                yield f"{place}: fewer than 3 families, so no proxy can be judged by families that did not choose it."
            yield f"{place}: {task.order()}."
            yield (
                f"{place}: the largest rank correlation is that of {task.best}, {task.spearman:+.2f}; cross-entropy "
                f"has {task.spearman_ce:+.2f}."
            )

    def doubt(self) -> str:
        """Say what limits the share of pairs."""
        if not isfinite(self.low):
            return "; an interval needs 4 families"
        return "" if self.verdict is Verdict.YES else "; whether this beats chance is undecided"

    def order(self) -> str:
        """Say how many proxies order models, or what could have been seen."""
        units = f"{self.units} models within their families" if self.within else f"{self.units} families"
        if not isfinite(self.detectable_order):
            return f"no order of {units} could be significant, corrected for {self.tests} tests"
        text = f"{self.survive} of 32 proxies order {units} beyond chance (corrected for {self.tests} tests)"
        if not self.survive:
            text += f"; a tau of {self.detectable_order:.2f} could have been detected (80% power)"
        return text


@dataclass(frozen=True, kw_only=True)
class Orders(Finding):
    """The rank correlation of one proxy with a task's scores: `Chosen` says how many, the table which."""

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
