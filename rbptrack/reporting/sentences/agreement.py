"""Two models on the same tokens: how often they agree, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, interval, upper_first, with_verdict
from rbptrack.base.words import number, p_in_words, some_of, spread
from rbptrack.ranks import CE, metric_label

_FEW = 4  # pairs that are named


def same_top_token(findings: Sequence[Finding]) -> Iterator[str]:
    """The share of tokens at which both rank the same token first."""
    known = [one for one in findings if isfinite(one.estimate)]
    if len(known) > _FEW:
        shares = spread([one.estimate for one in known], ".1%")
        yield f"Both models of a pair rank the same token first at {shares} of the tokens."
    for one in known if len(known) <= _FEW else ():
        sure = f" ({interval(one.low, one.high, '.2%')})" if isfinite(one.low) else ""
        yield f"{_two(one)} rank the same token first at {one.estimate:.2%}{sure} of {one.extras['tokens']:,} tokens."


def right_and_wrong(findings: Sequence[Finding]) -> Iterator[str]:
    """How many tokens go from right to wrong, and back."""
    if len(findings) > _FEW:
        sure = with_verdict(findings, Verdict.DIFFERENT)
        yield f"Losses and gains of right tokens differ in {some_of(len(sure), len(findings), 'pair')}."
        return
    for one in findings:
        lost, gained = one.extras["lost"], one.extras["gained"]
        text = f"Of all tokens, {lost:.2%} go from right in {one.case['a']} to wrong in {one.case['b']} on "
        text += f"{one.case['dataset']}, {gained:.2%} from wrong to right"
        yield f"{text} ({p_in_words(one.p_corrected)} of no difference)." if isfinite(one.p_corrected) else f"{text}."


def changed(findings: Sequence[Finding]) -> Iterator[str]:
    """What is told apart; of what is not, the smallest difference that would have been."""
    sure = with_verdict(findings, Verdict.DIFFERENT)
    yield f"{upper_first(some_of(len(sure), len(findings), 'difference'))} of CE, entropy and RBP_k can be told from 0."
    shown = [one for one in findings if one.case["metric"] == CE]
    for one in shown if len(shown) <= _FEW else ():
        text = f"{metric_label(CE)} of {one.case['b']} less that of {one.case['a']} on {one.case['dataset']} is "
        text += f"{estimate(one, '+.4f')} nats"
        least = one.extras["detectable"]
        if one.verdict != Verdict.DIFFERENT and isfinite(least):
            text += f"; a difference of {number(least, '.4f')} would have been seen in 80% of such texts"
        yield f"{text}."


def _two(one: Finding) -> str:
    return f"{one.case['a']} and {one.case['b']} on {one.case['dataset']}"


def beside_a_reference(findings: Sequence[Finding]) -> Iterator[str]:
    """How far models are from the references that were run with them."""
    if len(findings) > _FEW:
        yield f"KL of a reference to a model is {spread([one.estimate for one in findings], '.3g')} nats per token."
    for one in findings if len(findings) <= _FEW else ():
        text = f"KL of {one.case['reference']} to {one.case['model']} on {one.case['dataset']} is "
        text += f"{estimate(one, '.4f')} nats per token"
        yield f"{text}; both rank the same token first at {one.extras['same_top']:.1%}."


SENTENCES = {
    "KL to a reference": beside_a_reference,
    "same top token": same_top_token,
    "right and wrong": right_and_wrong,
    "changed": changed,
}
