"""Findings about sequences of successes: independence, the size at which half succeed, whole answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, number, short_number, some_of
from rbptrack.stats.intervals import Interval

from .rows import ANSWER, WindowRow


@dataclass(frozen=True, kw_only=True)
class Independent(Finding):
    """Whether successes in a row are independent in one measurement; `estimate` is N_eff.

    Attributes:
        window: the longest N > 2 that the measurement allows; None where it allows none.
        largest: whether it is the largest size of its family.

    """

    question: str = "successes independent"
    window: WindowRow | None
    largest: bool

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say in how many cases successes depend on each other; then of the largest model of each family."""
        tested = [finding for finding in findings if not finding.reason]
        dependent = with_verdict(tested, Verdict.DIFFERENT)
        cases = some_of(len(dependent), len(tested), "case")
        if dependent:
            verdicts = [finding.window.verdict for finding in dependent if finding.window]
            yield (
                f"Successes in a row are not independent in {cases} (each a model, dataset and k; corrected); at the "
                "longest N neither position, document nor the token before is enough to explain it in "
                f"{verdicts.count('more than any one')}."
            )
        elif tested:
            best = min(tested, key=lambda finding: 1 - finding.detectable / finding.null)
            yield (
                f"Undecided in all {counted(len(tested), 'case')} whether successes in a row are independent (each a "
                f"model, dataset and k; corrected): at best, we could have detected {best.null:.0f} tokens that count "
                f"as {max(best.null - best.detectable, 1):.1f} independent ones or fewer (80% power)."
            )
        for place, measurements in by_where([finding for finding in findings if finding.largest]).items():
            seen = [finding.window for finding in measurements if finding.window and not finding.reason]
            yield _of_windows(place, seen[0]) if seen else _untested(place, measurements)


def _only_above(detectable: float, form: str, noun: str) -> str:
    """Return which effect would have been detected where none was."""
    return f"only {noun} above {number(detectable, form)} could have been detected, 80% power"


def _of_windows(place: str, row: WindowRow) -> str:
    return (
        f"{place}, {row.size}, k = {row.k}: all {row.N} tokens of a window have R <= k in a share {row.p.value:.2g} "
        f"({interval(row.p.low, row.p.high, '.2g')}; {row.runs:.0f} runs in {row.documents:.0f} documents), where "
        f"independence predicts {row.p_independent:.2g}: they count as {row.n_eff.value:.1f} independent ones. Of the "
        f"excess in ln p, each alone explains: position {row.by_position:z.0%}, documents {row.by_documents:z.0%}, the "
        f"token before {row.by_neighbours:z.0%}."
    )


def _untested(place: str, findings: Sequence[Independent]) -> str:
    size = findings[0].case["size"]
    if all(finding.reason == "never fails" for finding in findings):
        return f"{place}: every token of {size} has R <= k, so no sequence can fail."
    return f"{place}: too few runs of more than 2 successes to compare {size} with independence."


@dataclass(frozen=True, kw_only=True)
class ExponentOfN(Finding):
    """The change of the exponent, alpha_N - alpha_1, at the longest N that half of the sizes have.

    Attributes:
        length: N.
        alpha: alpha_N.
        sizes: how many have it.
        of: their number.
        per_token: N_eff / N, geometric mean over these sizes; 1 if independent.

    """

    question: str = "exponent of N"
    length: int
    alpha: float
    sizes: int
    of: int
    per_token: Interval

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say whether alpha_N is alpha."""
        for finding in findings:
            sizes = f"{finding.sizes} of {finding.of} sizes"
            if finding.verdict is Verdict.DIFFERENT:
                change = f"the exponent changes by {estimate(finding, '+.3f')} to {finding.alpha:.3f} ({sizes})"
            else:
                change = "it is undecided whether the exponent changes"
                change += f" ({sizes}; {_only_above(finding.detectable, '.3f', 'a change')})"
            begin = f"{where(finding)}, {metric_of(finding)}"
            yield f"{begin}: from single tokens to windows of {finding.length}, {change}."
            yield (
                f"{begin}: -ln p of {finding.length} tokens is "
                f"{finding.per_token.value:.2f} times the value for independent tokens."
            )


@dataclass(frozen=True, kw_only=True)
class HalfSucceed(Finding):
    """S_50, the size at which half of the windows, or of the whole answers, succeed.

    Attributes:
        forecast: whether it lies beyond the largest size.
        decades: of S from 10 to 90%.
        span: decades of S that the sizes measured span.

    """

    question: str = "half succeed"
    forecast: bool
    decades: float
    span: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say at what size half of the windows succeed."""
        estimated = with_verdict(findings, Verdict.YES)
        ahead = sum(finding.forecast for finding in estimated)
        widths = [finding.decades for finding in findings if isfinite(finding.decades)]
        text = f"S_50 (half of all windows right) can be estimated in {some_of(len(estimated), len(findings), 'case')}"
        if ahead:
            text += f", {ahead} of them by extrapolation"
        if widths:
            text += (
                f"; from 10% to 90% success takes {interval(min(widths), max(widths), '.1f')} decades of S, and the "
                f"sizes measured span {findings[0].span:.1f}"
            )
        yield f"{text}."
        for place, laws in by_where(findings).items():
            metric = laws[0].case["metric"]
            first = [finding for finding in laws if finding.case["metric"] == metric and not finding.reason]
            if first:
                parts = [f"{finding.size} for {finding.outcome}" for finding in first]
                yield f"{place}, {metric_of(first[0])}: S_50 is {listed(parts)}."

    @property
    def outcome(self) -> str:
        """What succeeds, in words."""
        return "whole answers" if self.case["N"] == ANSWER else f"N = {self.case['N']}"

    @property
    def size(self) -> str:
        """S_50 and its interval, in words."""
        high = f"to {short_number(self.high)}" if isfinite(self.high) else "and more"
        forecast = ", a forecast" if self.forecast else ""
        return f"{short_number(self.estimate)} ({short_number(self.low)} {high}{forecast})"


@dataclass(frozen=True, kw_only=True)
class WholeAnswers(Finding):
    """The share of whole answers that succeed, beside RBP_k^length.

    Attributes:
        independent: the share that independent tokens would give.
        answers: how many.
        length: their mean, in tokens.
        s: parameters of the model.

    """

    question: str = "whole answers"
    independent: float
    answers: int
    length: float
    s: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say of how many measurements RBP_k^length predicts the share of whole answers; then of the largest."""
        different = with_verdict(findings, Verdict.DIFFERENT)
        if different:
            yield (
                "The share of whole answers differs from RBP_k^length, its value for independent tokens, in "
                f"{some_of(len(different), len(findings), 'case')} (each a model, dataset and k)."
            )
        if undecided := with_verdict(findings, Verdict.UNTOLD):
            best = min(finding.detectable for finding in undecided)
            yield (
                f"Undecided in {some_of(len(undecided), len(findings), 'case')}: whether the share of whole answers is "
                f"RBP_k^length ({_only_above(best, '.1%', 'a difference')})."
            )
        for place, measurements in by_where(findings).items():
            largest = max(finding.s for finding in measurements)
            top = [finding for finding in measurements if finding.s == largest]
            parts = [
                f"{estimate(finding, '.1%')} at {metric_of(finding)}, predicted {number(finding.independent, '.1%')}"
                for finding in top
            ]
            yield (
                f"{place}, {top[0].case['size']}: of {counted(top[0].answers, 'whole answer')} ({top[0].length:.1f} "
                f"tokens on average) every token has R <= k in {listed(parts)}."
            )
