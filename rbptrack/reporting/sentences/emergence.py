"""Sequences of successes: independence, the size at which half succeed, whole answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, short_number, some_of


def independent(findings: Sequence[Finding]) -> Iterator[str]:
    """The headline: in how many cases successes depend on each other; then the largest model of each family."""
    tested = [one for one in findings if not one.reason]
    dependent = with_verdict(tested, Verdict.DIFFERENT)
    cases = some_of(len(dependent), len(tested), "case")
    if dependent:
        more = sum(one.extras["row"]["verdict"] == "more than any one" for one in dependent)
        yield (
            f"Successes in a row are not independent in {cases} (each a model, dataset and k; corrected); at the "
            f"longest N neither position, document nor the token before is enough to explain it in {more}."
        )
    elif tested:
        yield f"No evidence against independent tokens ({cases})."
    for place, mine in by_where([one for one in findings if one.extras["largest"]]).items():
        told = [one for one in mine if not one.reason]
        if not told:
            never = all(one.reason == "never fails" for one in mine)
            size = mine[0].case["size"]
            yield (
                f"{place}: every token of {size} has R <= k, so no sequence can fail."
                if never
                else f"{place}: too few runs of more than 2 successes to compare {size} with independence."
            )
            continue
        row = told[0].extras["row"]
        yield (
            f"{place}, {row['size']}, k = {row['k']}: all {row['N']} tokens of a window have R <= k in a share "
            f"{row['p']:.2g} ({interval(row['p_low'], row['p_high'], '.2g')}; {row['runs']:.0f} runs in "
            f"{row['documents']:.0f} documents), where independence predicts {row['p_independent']:.2g}: they count as "
            f"{row['n_eff']:.1f} independent ones. Of the excess in ln p, each alone explains: position "
            f"{row['by_position']:z.0%}, documents {row['by_documents']:z.0%}, the token before "
            f"{row['by_neighbours']:z.0%}."
        )


def exponent_of_n(findings: Sequence[Finding]) -> Iterator[str]:
    """Whether alpha_N is alpha."""
    for one in findings:
        about = one.extras
        says = "another exponent than" if one.verdict is Verdict.DIFFERENT else "the exponent of"
        yield (
            f"{where(one)}, {metric_of(one)}: windows of {about['N']} tokens have {says} single ones (alpha_N "
            f"{about['alpha']:.3f}, a change of {estimate(one)}; {about['sizes']} of {about['of']} sizes), and -ln p "
            f"is {about['per_token'].value:.2f} times what independent tokens would give."
        )


def half(findings: Sequence[Finding]) -> Iterator[str]:
    """At what size half of the windows succeed."""
    known = with_verdict(findings, Verdict.YES)
    ahead = sum(one.extras["forecast"] for one in known)
    widths = [one.extras["decades"] for one in findings if isfinite(one.extras["decades"])]
    text = f"S_50 (half of all windows right) can be estimated in {some_of(len(known), len(findings), 'case')}"
    text += f", {ahead} of them by extrapolation" if ahead else ""
    if widths:
        text += (
            f"; from 10% to 90% success takes {interval(min(widths), max(widths), '.1f')} decades of S, and the sizes "
            f"measured span {findings[0].extras['span']:.1f}"
        )
    yield f"{text}."
    for place, mine in by_where(findings).items():
        first = [one for one in mine if one.case["metric"] == mine[0].case["metric"] and not one.reason]
        if first:
            parts = [f"{_size(one)} for {_of(one)}" for one in first]
            yield f"{place}, {metric_of(first[0])}: S_50 is {listed(parts)}."


def _of(one: Finding) -> str:
    return "whole answers" if one.case["N"] == "answer" else f"N = {one.case['N']}"


def _size(one: Finding) -> str:
    high = f"to {short_number(one.high)}" if isfinite(one.high) else "and more"
    forecast = ", a forecast" if one.extras["forecast"] else ""
    return f"{short_number(one.estimate)} ({short_number(one.low)} {high}{forecast})"


def answers(findings: Sequence[Finding]) -> Iterator[str]:
    """Whole answers beside RBP_k^length."""
    inside = with_verdict(findings, Verdict.SAME)
    yield (
        f"RBP_k^length, as if tokens were independent, predicts the share of whole answers in "
        f"{some_of(len(inside), len(findings), 'case')} (within its interval; each a model, dataset and k)."
    )
    for place, mine in by_where(findings).items():
        largest = max(one.extras["S"] for one in mine)
        top = [one for one in mine if one.extras["S"] == largest]
        about = top[0].extras
        parts = [
            f"{estimate(one, '.1%')} at {metric_of(one)}, predicted {one.extras['independent']:z.1%}" for one in top
        ]
        yield (
            f"{place}, {top[0].case['size']}: of {counted(about['answers'], 'whole answer')} ({about['length']:.1f} "
            f"tokens on average) every token has R <= k in {listed(parts)}."
        )


SENTENCES = {
    "successes independent": independent,
    "exponent of N": exponent_of_n,
    "half succeed": half,
    "whole answers": answers,
}
