"""Ranks and cross-entropy: at equal loss, at equal probability, and as predictors of whole sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, p_in_words, some_of


def collapses(findings: Sequence[Finding]) -> Iterator[str]:
    """The headline: is -ln RBP_k one curve of CE; then where it is not, and how near the points lie."""
    tested = [one for one in findings if not one.reason]
    apart = with_verdict(tested, Verdict.DIFFERENT)
    alike = with_verdict(tested, Verdict.SAME, Verdict.CLOSE)
    every = [one.extras["left"] for one in findings]
    left = interval(min(every), max(every), ".1%")
    if not tested:
        yield (
            f"Along the sizes of one family, CE tells -ln RBP_k to within {left}; whether families differ at equal "
            "loss takes a second one on the same texts."
        )
        return
    cases = some_of(len(apart), len(tested), "case")
    if apart:
        most = max(apart, key=lambda one: abs(one.estimate))
        yield (
            f"The law of RBP is not only that of CE: at equal loss {_series(apart)} differ in {cases} (corrected), by "
            f"{_more(most)} at most ({most.extras['farthest']}, {metric_of(most)})."
        )
    elif len(alike) == len(tested):
        yield (
            f"The law of RBP is that of CE: at equal loss {_series(tested)} lie on one curve, within "
            f"{tested[0].extras['margin']:.0%} ({counted(len(tested), 'case')})."
        )
    else:
        yield (
            f"No evidence that the law of RBP is more than that of CE ({cases} differ at equal loss), but too few "
            f"points to call it one curve in {some_of(len(tested) - len(alike), len(tested), 'case')}."
        )
    for one in apart:
        yield (
            f"{one.case['dataset']}, {metric_of(one)}: at equal CE {one.extras['farthest']} lies {_more(one)} "
            f"({interval(one.low, one.high, '.1%')}) from the mean ({p_in_words(one.p_corrected)}, corrected); CE "
            f"explains {one.extras['explained']:.1%} of ln(-ln RBP)."
        )
    yield f"A curve of CE leaves {left} of -ln RBP_k (root mean square)."


def _series(findings: Sequence[Finding]) -> str:
    return "texts" if all(one.case["dataset"] == "all together" for one in findings) else "families"


def _more(one: Finding) -> str:
    return f"{abs(one.estimate):.1%} {'above' if one.estimate > 0 else 'below'}"


def at_equal_p(findings: Sequence[Finding]) -> Iterator[str]:
    """Better ranks at equal p of the right token: a sentence for all, then one of each family."""
    known = [one for one in findings if not one.reason]
    label = metric_of(findings[0])
    if known:
        shares = [one.estimate for one in known]
        parts = interval(min(shares), max(shares), ".1%")
        better, worse = with_verdict(known, Verdict.YES), with_verdict(known, Verdict.NO)
        if better or worse:
            yield (
                f"Larger models rank better at equal probability in {len(better)} and worse in {len(worse)} of "
                f"{counted(len(known), 'case')}: {parts} of the gain in {label}, which CE cannot see."
            )
        else:
            yield f"CE explains the whole gain in {label}: better ranks at equal probability add {parts}."
    for one in findings:
        told = f"at the largest size p(target) tells {one.extras['told_by_p']:.0%} of the variance of ln R"
        if not one.reason:
            told += f"; ranks at equal p make up {estimate(one, '.1%')} of the gain in {label} ({one.extras['sizes']})"
        yield f"{where(one)}: {told}."
    if any(one.reason == "one size" for one in findings):
        yield "Whether larger models rank better at equal p needs a second size."


def predicts(findings: Sequence[Finding]) -> Iterator[str]:
    """Which predictor of whole sequences is better."""
    what = findings[0].question.removeprefix("predicts, ").removesuffix(" left out")
    rbp, ce = (len(with_verdict(findings, verdict)) for verdict in (Verdict.YES, Verdict.NO))
    cases = counted(len(findings), "case")
    if all(one.reason for one in findings):
        needed = findings[0].extras["needed"]
        yield f"Which of CE and RBP_k predicts whole sequences of {what} left out takes {needed} of them."
    elif rbp or ce:
        yield (
            f"Whole sequences of {what} left out are predicted better by RBP_k in {rbp} and by CE in {ce} of {cases} "
            "(corrected)."
        )
        named = [
            f"{one.case['dataset']}, {one.case['outcome']}, {metric_of(one)}"
            for one in findings
            if one.verdict != "undecided"
        ]
        yield f"Those are: {listed(named)}."
    else:
        yield f"RBP_k and CE predict whole sequences of {what} left out equally well, as far as {cases} can tell."


SENTENCES = {
    "collapses on CE": collapses,
    "ranks at equal p": at_equal_p,
    "predicts, sizes left out": predicts,
    "predicts, families left out": predicts,
}
