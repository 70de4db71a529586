"""Findings about two sides: their laws, exponents, models, differences at equal cross-entropy, gaps on the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.lead import Lead
from rbptrack.analysis.phrases import estimate, interval, with_verdict
from rbptrack.base.words import counted, listed, number, short_number, some_of
from rbptrack.ranks import metric_label, parse_rbp_name

from .aligned_texts import Segment

_ORDER = 50  # on the first page
_FEW = 3  # pairs that are named
_SHOWN = 120  # characters of a text
_EXPONENTS = {
    Verdict.DIFFERENT: "different exponents",
    Verdict.CLOSE: "slightly different exponents",
    Verdict.SAME: "the same exponent",
    Verdict.UNTOLD: "exponents without a significant difference",
}


@dataclass(frozen=True, kw_only=True)
class LawsApart(Finding):
    """The ratio of the laws of two sides at one size; 1 where they lie together.

    Attributes:
        at: that size, in parameters.
        exponents: whether the exponents differ.
        shown: whether sentences are about this metric.

    """

    question: str = "laws apart"
    null: float = 1.0
    at: float
    exponents: Verdict
    shown: bool

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which sides follow different laws, and whether their exponents differ, in the metric that is shown."""
        shown = [finding for finding in findings if finding.shown]
        if not shown:
            return
        if len(shown) <= _FEW:
            yield f"{'; '.join(finding.in_words for finding in shown)}."
            for finding in shown:
                yield (
                    f"{_sides(finding)} ({_on(finding)}): the ratio of their laws at S = {short_number(finding.at)} is "
                    f"{estimate(finding)}."
                )
            return
        apart = with_verdict(shown, Verdict.DIFFERENT)
        steeper = sum(finding.exponents in (Verdict.DIFFERENT, Verdict.CLOSE) for finding in shown) or "none"
        metrics = listed(list(dict.fromkeys(map(_metric, shown))))
        yield (
            f"{len(apart)} of {counted(len(shown), 'pair')} of families or datasets follow different laws, {steeper} "
            f"with different exponents ({metrics})."
        )

    @property
    def in_words(self) -> str:
        """Whether the laws differ, and their exponents."""
        exponents = _EXPONENTS[self.exponents]
        laws = f"may follow the same law, and have {exponents}"
        if self.verdict is Verdict.DIFFERENT:
            laws = f"follow different laws, with {exponents}"
        return f"{_sides(self)} {laws} ({_metric(self)}, {_on(self)})"

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return the first sentence."""
        return Lead(sentence=next(cls.say(findings), ""), order=_ORDER)


@dataclass(frozen=True, kw_only=True)
class SameExponents(Finding):
    """The exponent of one side minus that of the other.

    Attributes:
        p_equivalent: of a difference at or beyond the margin, corrected.

    """

    question: str = "same exponents"
    p_equivalent: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how many of all pairs and metrics have different, equal or undecided exponents."""
        words = {
            "differ": (Verdict.DIFFERENT, Verdict.CLOSE),
            "are the same within the margin": (Verdict.SAME,),
            "undecided (the interval holds both 0 and differences beyond the margin)": (Verdict.UNTOLD,),
        }
        counts = {text: len(with_verdict(findings, *verdicts)) for text, verdicts in words.items()}
        every = {len(findings): "all" if len(findings) > 1 else "it"}
        parts = [f"{every.get(count, count)} {text}" for text, count in counts.items() if count]
        low, high = (end(finding.estimate for finding in findings) for end in (min, max))
        span = f"difference {number(low, '+.3f')}"
        if len(findings) > 1:
            span = f"differences {interval(low, high, '+.3f')}"
        yield f"Of {counted(len(findings), 'pair')} of exponents, {listed(parts)} ({span})."


@dataclass(frozen=True, kw_only=True)
class ApartAtEqualCe(Finding):
    """The ratio of -ln RBP_k of two sides at equal cross-entropy; below 1 the first ranks better.

    Attributes:
        at: the CE in nats, or the bits per byte.
        shown: whether sentences are about this metric.

    """

    question: str = "apart at equal CE"
    null: float = 1.0
    at: float
    shown: bool

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say who ranks better at equal cross-entropy."""
        shown = [finding for finding in findings if finding.shown]
        apart = with_verdict(shown, Verdict.DIFFERENT)
        if shown and not apart:
            yield f"At equal cross-entropy no families differ significantly ({some_of(0, len(shown), 'pair')})."
        for finding in apart[:_FEW]:
            a = finding.case["a"]
            b = finding.case["b"]
            better, other = (a, b) if finding.estimate < 1 else (b, a)
            yield (
                f"At equal cross-entropy {better} ranks better than {other} on {_on(finding)}: -ln {_metric(finding)} "
                f"of {a} is {estimate(finding)} times that of {b}."
            )
        if len(apart) > _FEW:
            pairs = counted(len(shown), "pair")
            yield f"At equal cross-entropy {len(apart)} of {pairs} of families differ significantly."


@dataclass(frozen=True, kw_only=True)
class ModelsDiffer(Finding):
    """How many models of equal S differ on these very texts.

    Attributes:
        pairs: of models of equal S.
        a_better: pairs in which the first side's model is better.
        b_better: in which the second's is.

    """

    question: str = "models differ"
    pairs: int
    a_better: int
    b_better: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how many models of equal S differ on these very texts; of few pairs, which side is better."""
        total = sum(finding.pairs for finding in findings)
        decided = sum(finding.a_better + finding.b_better for finding in findings)
        yield f"On these very texts {some_of(decided, total, 'comparison')} of models of equal S tells them apart."
        for finding in findings if len(findings) <= 2 * _FEW else ():
            yield (
                f"{_sides(finding)} on {_on(finding)}: by {finding.case['metric']}, {finding.case['a']} is better at "
                f"{finding.a_better} and {finding.case['b']} at {finding.b_better} of "
                f"{counted(finding.pairs, 'size')}; another seed or recipe may differ as much."
            )


@dataclass(frozen=True, kw_only=True)
class GapOnText(Finding):
    """What one model needs more than another per byte of the same text, in nats; of words of one kind, or of all.

    Attributes:
        share: of the bytes that are of this kind.
        nats_a: per byte of the first.
        nats_b: of the second.
        behind_a: the segment of text on which the first falls furthest behind.
        behind_b: the second.

    """

    question: str = "gap on the text"
    share: float
    nats_a: float
    nats_b: float
    behind_a: Segment | None
    behind_b: Segment | None

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say what two models need per byte of the same text, and the words on which they differ most."""
        for models in list(dict.fromkeys(finding.models for finding in findings))[:_FEW]:
            whole, *kinds = (finding for finding in findings if finding.models == models)
            a, b, dataset = models
            if whole.verdict is not Verdict.DIFFERENT:
                yield (
                    f"{a} and {b} do not differ significantly in nats per byte on {dataset} (a difference of "
                    f"{estimate(whole, '+.3f')})."
                )
                continue
            less = number(abs(whole.estimate), ".3f")
            better, other = (a, b) if whole.estimate < 0 else (b, a)
            low, high = sorted((abs(whole.low), abs(whole.high)))
            text = f"{better} needs {less} ({interval(low, high)}) nats per byte less than {other} on {dataset}"
            if decided := with_verdict(kinds, Verdict.DIFFERENT):
                most = max(decided, key=lambda finding: abs(finding.estimate))
                text += f"; the gap is widest on words of the kind '{most.case['words']}', {estimate(most, '+.3f')}"
            yield f"{text}."
            for model, segment in ((a, whole.behind_a), (b, whole.behind_b)):
                if segment:
                    words = " ".join(segment.text.split())[:_SHOWN]
                    yield f"{model} falls furthest behind, by {number(abs(segment.gap), '.1f')} nats, on: {words}"

    @property
    def models(self) -> tuple[str, str, str]:
        """The two models, and the dataset."""
        return self.case["a"], self.case["b"], self.case["dataset"]


def _sides(finding: Finding) -> str:
    return f"{finding.case['a']} and {finding.case['b']}"


def _on(finding: Finding) -> str:
    return finding.case.get("dataset") or finding.case["family"]


def _metric(finding: Finding) -> str:
    metric = finding.case["metric"]
    return metric_label(metric) if metric == "ce" or parse_rbp_name(metric) else metric
