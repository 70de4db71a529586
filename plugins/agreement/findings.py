"""Findings about two models on the same tokens: agreement, changes, and distance from a reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, interval, with_verdict
from rbptrack.base.words import number, p_in_words, some_of, spread

_FEW = 4  # pairs that are named
WITHIN = {Verdict.NO, Verdict.CLOSE}  # harm below delta


@dataclass(frozen=True, kw_only=True)
class SameTop(Finding):
    """The share of tokens at which both models rank the same token first.

    Attributes:
        tokens: how many were scored.

    """

    question: str = "same top token"
    tokens: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say the share of each pair; of many pairs its range."""
        pairs = [finding for finding in findings if isfinite(finding.estimate)]
        if len(pairs) > _FEW:
            shares = spread([pair.estimate for pair in pairs], ".1%")
            yield f"Both models of a pair rank the same token first at {shares} of the tokens."
            return
        for pair in pairs:
            ends = f" ({interval(pair.low, pair.high, '.2%')})" if isfinite(pair.low) else ""
            yield f"{_both(pair)} rank the same token first at {pair.estimate:.2%}{ends} of {pair.tokens:,} tokens."


@dataclass(frozen=True, kw_only=True)
class Flips(Finding):
    """Tokens that go from right to wrong, against those that go back; the estimate is gained less lost.

    Attributes:
        lost: share of the tokens that only the first model ranks first.
        gained: share of those that only the second does.

    """

    question: str = "right and wrong"
    lost: float
    gained: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how many tokens go from right to wrong, and back; of many pairs, in how many the two differ."""
        if len(findings) > _FEW:
            different = some_of(len(with_verdict(findings, Verdict.DIFFERENT)), len(findings), "pair")
            yield f"Losses and gains of right tokens differ in {different}."
            return
        for pair in findings:
            text = f"Of all tokens, {pair.lost:.2%} go from right in {pair.case['a']} to wrong in {pair.case['b']} on "
            text += f"{pair.case['dataset']}, {pair.gained:.2%} from wrong to right"
            if isfinite(pair.p_corrected):
                text += f" ({p_in_words(pair.p_corrected)} of no difference)"
            yield f"{text}."


@dataclass(frozen=True, kw_only=True)
class Hurt(Finding):
    """Whether the second model ranks worse than the first: the estimate is how much worse, so that above 0 is harm.

    One-sided: YES where p of no harm, corrected, is small; NO where p of harm of the margin or more is; CLOSE: both.
    """

    question: str = "did it hurt"

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which models rank worse than those that they are compared with, and which do not."""
        pairs = list(dict.fromkeys(_both(finding) for finding in findings))
        harmed = {_both(finding) for finding in with_verdict(findings, Verdict.YES, Verdict.CLOSE)}
        within = {pair for pair in pairs if all(f.verdict in WITHIN for f in findings if _both(f) == pair)}
        text = f"The second model of a pair ranks worse in {some_of(len(harmed), len(pairs), 'pair')} (corrected)"
        margin = findings[0].margin
        if isfinite(margin):
            text += f", and is within {number(margin, 'g')} of the first by every measure in {len(within)}"
        yield f"{text}."
        if len(harmed) < len(pairs) and not isfinite(margin):
            yield "analyzer.delta=D asks whether the others are unharmed: RBP_k at most D lower."


@dataclass(frozen=True, kw_only=True)
class FromReference(Finding):
    """KL(reference || model), nats per token.

    Attributes:
        same_top: share of the tokens at which both rank the same first.

    """

    question: str = "KL to a reference"
    same_top: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how far models are from the references that were run with them."""
        if len(findings) > _FEW:
            distances = spread([finding.estimate for finding in findings], ".3g")
            yield f"KL of a reference to a model is {distances} nats per token."
            return
        for finding in findings:
            case = finding.case
            text = f"KL of {case['reference']} to {case['model']} on {case['dataset']} is {estimate(finding, '.4f')}"
            yield f"{text} nats per token; both rank the same token first at {finding.same_top:.1%}."


def _both(pair: Finding) -> str:
    return f"{pair.case['a']} and {pair.case['b']} on {pair.case['dataset']}"
