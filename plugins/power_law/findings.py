"""Findings about laws in size: exponents, whether RBP_k gains faster than CE, and the error at the largest size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.analysis.phrases import by_where, estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, number, p_in_words, short_number, some_of
from rbptrack.stats.intervals import Interval

_ORDER = 20  # on the first page
_NOTABLE = 0.02  # relative change of alpha by one size that is worth a sentence
_OTHER = {"non_embedding_params": "all parameters", "total_params": "non-embedding parameters"}
_IN_WORDS = {
    "non_embedding_params": "non-embedding parameters",
    "total_params": "all parameters",
    "training_flops": "training FLOPs",
}
_AGAINST_CE = {
    Verdict.DIFFERENT: "differs",
    Verdict.SAME: "same",
    Verdict.CLOSE: "differs, but little",
    Verdict.UNTOLD: "undecided",
}
ALPHA = "α"
AGAINST_CE = "minus CE's"
HELD_OUT = "held-out error"
_AGAINST = "over the same models and documents; undecided, where the interval holds 0 and differences beyond the margin"
_HELD_OUT = (
    "measured / predicted - 1 at the largest model by the law of the smaller ones (95% interval); above 0, the model "
    "is worse than the law predicts"
)


def _cell(finding: Finding, line: str, text: str, number: Interval, *, opens: bool = False) -> Cell:
    """Return a cell of a finding about one metric of a family on a dataset."""
    return Cell(
        line=line,
        text=text,
        family=finding.case["family"],
        dataset=finding.case["dataset"],
        metric=finding.case["metric"],
        value=number.value,
        low=number.low,
        high=number.high,
        verdict=finding.verdict,
        opens=opens,
    )


@dataclass(frozen=True, kw_only=True)
class LawInSize(Finding):
    """The exponent of a law in size: YES where its interval lies above 0, NO below.

    Attributes:
        sizes: how many models.
        smallest: S of the smallest.
        largest: S of the largest.
        level: nominal coverage of the interval.
        size: what S is: non_embedding_params, total_params or training_flops.
        other: the exponent by the other count of parameters; NaN if unknown.
        opens: whether the law belongs to the first page.

    """

    question: str = "law in size"
    sizes: int
    smallest: float
    largest: float
    level: float
    size: str
    other: Interval
    opens: bool

    @property
    def change(self) -> float:
        """How much the exponent changes with the other count of parameters, relative to itself."""
        return (self.other.value - self.estimate) / (abs(self.estimate) or 1.0)

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say in how many laws larger models are better; then each family's exponents."""
        better = some_of(len(with_verdict(findings, Verdict.YES)), len(findings), "law")
        inverse = with_verdict(findings, Verdict.NO)
        worse = f"; in {len(inverse)} they are worse (an inverse law)" if inverse else ""
        yield f"Larger models are better in {better}{worse}."
        for place, laws in by_where(findings).items():
            first = laws[0]
            exponents = listed([f"{estimate(law)} for {metric_of(law)}" for law in laws])
            span = f"{first.sizes} sizes, S = {short_number(first.smallest)} to {short_number(first.largest)}"
            yield f"{place}: alpha is {exponents} ({span}; {first.level:.0%} intervals)."
            if inverse := with_verdict(laws, Verdict.NO):
                yield f"{place}: the law of {_metrics(inverse)} is inverse: larger models are worse."
            if unsure := with_verdict(laws, Verdict.UNTOLD):
                yield f"{place}: no law is claimed for {_metrics(unsure)}: the interval includes 0."
        yield cls._by_other(findings)

    @classmethod
    def _by_other(cls, findings: Sequence[Self]) -> str:
        """Say how much exponents change with the other count of parameters."""
        counted_twice = [law for law in findings if isfinite(law.other.value)]
        if not counted_twice:
            return "Only one parameter count is known for these models, so alpha is given for that one alone."
        most = max(counted_twice, key=lambda law: abs(law.change))
        by = _OTHER.get(most.size, "non-embedding parameters")
        alphas = f"{number(most.estimate, '.3f')} becomes {number(most.other.value, '.3f')}"
        case = f"{metric_of(most)} of {where(most)}: {alphas}"
        return f"With S as {by}, alpha changes by up to {abs(most.change):.0%} ({case})."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return the exponents by both counts of parameters, which open the first page's table."""
        opening = [law for law in findings if law.opens]
        if not opening:
            return Lead()
        size = opening[0].size
        other = f"{ALPHA}, {_OTHER.get(size, 'the other count')}"
        cells = []
        for law in sorted(opening, key=lambda law: law.case["metric"] != "ce"):
            text = f"{number(law.estimate, '.3f')} ({interval(law.low, law.high)})"
            cells.append(_cell(law, ALPHA, text, law.interval, opens=True))
            if isfinite(law.other.value):
                cells.append(_cell(law, other, number(law.other.value, ".3f"), law.other))
        meaning = f"exponent of -ln RBP_k = A S^-alpha and of CE ({opening[0].level:.0%} interval); "
        meaning += f"S: {_IN_WORDS.get(size, size)}"
        sentence = next(iter(cls.say(opening)))
        return Lead(cells=cells, sentence=sentence, order=_ORDER, drawing="law_in_size", facts={ALPHA: meaning})


@dataclass(frozen=True, kw_only=True)
class AgainstCE(Finding):
    """The exponent of RBP_k minus that of CE, over the same models and documents.

    Attributes:
        sizes: how many models.
        opens: whether the law belongs to the first page.

    """

    question: str = "same as CE"
    sizes: int
    opens: bool

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how often RBP_k improves faster with S than CE does."""
        different = with_verdict(findings, Verdict.DIFFERENT)
        faster = [finding for finding in different if finding.estimate > 0]
        if len(faster) == len(findings):
            gaps = [finding.estimate for finding in faster]
            by = interval(min(gaps), max(gaps)) if len(gaps) > 1 else number(gaps[0], ".3f")
            cases = some_of(len(gaps), len(gaps), "comparison")
            worst = p_in_words(max(finding.p_corrected for finding in faster))
            yield (
                f"RBP_k improves faster with size than CE in {cases}: its alpha is larger by {by} (corrected {worst})."
            )
            return
        kinds = {
            "faster than CE": faster,
            "slower than CE": [finding for finding in different if finding.estimate < 0],
            "as fast as CE": with_verdict(findings, Verdict.SAME, Verdict.CLOSE),
        }
        counts = [f"{kind} in {len(cases)}" for kind, cases in kinds.items() if cases]
        undecided = with_verdict(findings, Verdict.UNTOLD)
        if not counts:
            counts = ["neither detectably faster nor as fast in any"]
        why = f"; {len(undecided)} undecided: {_what_could_be_seen(undecided)}" if undecided else ""
        yield f"Of {counted(len(findings), 'comparison')} with CE, RBP_k improves {listed(counts)}{why}."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return the difference and its verdict."""
        opening = [finding for finding in findings if finding.opens]
        cells = [
            _cell(finding, AGAINST_CE, f"{number(finding.estimate, '+.3f')} {verdict}", finding.interval)
            for finding in opening
            if (verdict := _AGAINST_CE.get(finding.verdict))
        ]
        sentence = next(iter(cls.say(opening)), "") if opening else ""
        return Lead(cells=cells, sentence=sentence, order=_ORDER, facts={AGAINST_CE: _AGAINST} if cells else {})


@dataclass(frozen=True, kw_only=True)
class LargestHeldOut(Finding):
    """Measured / predicted - 1 at the largest size by the law of the smaller ones; above 0: worse than predicted.

    Attributes:
        size: the largest size.
        opens: whether the law belongs to the first page.

    """

    question: str = "error at the largest"
    size: str
    opens: bool

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say where the largest model is worse or better than the smaller ones' law predicts."""
        errors = [finding for finding in findings if isfinite(finding.estimate)]
        shown = with_verdict(errors, Verdict.DIFFERENT)
        for word, side in (("worse", "above"), ("better", "below")):
            laws = [error for error in shown if (error.estimate > 0) == (side == "above")]
            if len(laws) == 1:
                share = number(abs(laws[0].estimate), ".1%")
                yield (
                    f"Measured {metric_of(laws[0])} of {laws[0].size} ({where(laws[0])}) is {share} {side} the "
                    f"prediction of the smaller models' law: larger models are {word} than the law predicts."
                )
            elif laws:
                shares = sorted(abs(error.estimate) for error in laws)
                most = max(laws, key=lambda error: abs(error.estimate))
                yield (
                    f"In {some_of(len(laws), len(errors), 'law')} the largest model is {word} than the smaller models' "
                    f"law predicts: measured CE and -ln RBP_k are {interval(shares[0], shares[-1], '.1%')} {side} the "
                    f"prediction (most: {metric_of(most)} of {where(most)})."
                )
        if undecided := with_verdict(errors, Verdict.UNTOLD):
            yield cls._undecided(undecided, len(errors))

    @classmethod
    def _undecided(cls, findings: Sequence[Self], laws: int) -> str:
        """Say the measured errors of undecided laws, and which error could have been detected."""
        errors = sorted(finding.estimate for finding in findings)
        detectable = [finding.detectable for finding in findings if isfinite(finding.detectable)]
        cases = some_of(len(findings), laws, "law")
        ends = dict.fromkeys([number(errors[0], "+.1%"), number(errors[-1], "+.1%")])
        text = (
            f"Undecided in {cases}: whether the largest model follows the law of the smaller ones "
            f"(measured / predicted - 1 is {' to '.join(ends)})"
        )
        if not detectable:
            return f"{text}."
        least = dict.fromkeys([number(min(detectable), ".1%"), number(max(detectable), ".1%")])
        return f"{text}; with 80% power, the smallest error that could be detected is {' to '.join(least)}."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return the error with its interval."""
        opening = [finding for finding in findings if finding.opens]
        cells = [
            _cell(
                finding,
                HELD_OUT,
                f"{number(finding.estimate, '+.1%')} ({interval(100 * finding.low, 100 * finding.high, '.0f')}%)",
                finding.interval,
            )
            for finding in opening
            if isfinite(finding.estimate)
        ]
        sentence = next(iter(cls.say(opening)), "")
        return Lead(cells=cells, sentence=sentence, order=_ORDER, facts={HELD_OUT: _HELD_OUT} if cells else {})


@dataclass(frozen=True, kw_only=True)
class SizeThatDecides(Finding):
    """The relative change of an exponent by the size that moves it most.

    Attributes:
        size: that size.
        alpha: the exponent with it.
        without: the exponent without it.

    """

    question: str = "size that decides"
    size: str
    alpha: float
    without: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say of each family the size without which an exponent changes most."""
        for finding in findings:
            if finding.estimate > _NOTABLE:
                yield (
                    f"{where(finding)}: {finding.size} decides most; without it alpha of {metric_of(finding)} is "
                    f"{number(finding.without, '.3f')} instead of {number(finding.alpha, '.3f')}."
                )


@dataclass(frozen=True, kw_only=True)
class FitsWithinSeeds(Finding):
    """Whether a power law fits within the scatter of several runs of a size; `estimate` is that scatter.

    Attributes:
        runs: how many.
        sizes: how many.

    """

    question: str = "fits within seeds"
    runs: int
    sizes: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how far runs of one size scatter, and whether a power law fits within that."""
        for place, laws in by_where(findings).items():
            scatter = [100 * law.estimate for law in laws]
            rejected = with_verdict(laws, Verdict.NO)
            text = f"no power law fits {_metrics(rejected)} within that" if rejected else "power laws fit within that"
            yield (
                f"{place}: {laws[0].runs} runs of {counted(laws[0].sizes, 'size')} scatter by "
                f"{interval(min(scatter), max(scatter), '.1f')}% in y beyond sampling error; {text}."
            )


def _what_could_be_seen(undecided: Sequence[AgainstCE]) -> str:
    """Say from how many sizes the differences come, and the smallest one that could have been detected."""
    sizes = sorted({finding.sizes for finding in undecided})
    count = counted(sizes[0], "size") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} sizes"
    seen = [finding.detectable for finding in undecided if isfinite(finding.detectable)]
    if not seen:
        return f"{count} are too few"
    ends = dict.fromkeys(number(difference, ".3f") for difference in (min(seen), max(seen)))
    return f"from {count}, only differences of alpha above {' to '.join(ends)} could be detected (80% power)"


def _metrics(findings: Sequence[Finding]) -> str:
    return listed([metric_of(finding) for finding in findings])
