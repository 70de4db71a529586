"""The limits of the law in size: bends, floors, and the k up to which it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.display import k_ranges
from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import interval, metric_of, where, with_verdict
from rbptrack.base.words import listed, number, p_in_words, some_of


def bends(findings: Sequence[Finding]) -> Iterator[str]:
    """In how many cases the law bends, and what could have been seen; then the cases that do."""
    yes, left = with_verdict(findings, Verdict.YES), with_verdict(findings, Verdict.UNTOLD)
    text = f"The law bends in {some_of(len(yes), len(findings), 'case')}" if yes else "No law is found to bend"
    if straight := with_verdict(findings, Verdict.NO):
        text += f"; it is straight within {straight[0].extras['margin']:.0%} in {len(straight)}"
    if left:
        text += f"; {len(left)} cannot be told"
        seen, tested = [one.extras["floor_seen"] for one in left if _floor(one)], [one for one in left if _tested(one)]
        if seen:
            text += f": floors below {_shares(seen)} of y at the largest size stay unseen (80% power)"
        elif tested:
            text += ": no floor, however large, would be seen (80% power)"
    yield f"{text}."
    for one in yes:
        direction = "upwards" if one.estimate > 0 else "downwards"
        at = f" at k = {one.extras['k']:,}" if "k" in one.extras else f" ({metric_of(one)})"
        off = f"{number(one.estimate, '+.1%')} ({interval(one.low, one.high, '+.1%')}) off a line{at}"
        yield f"{where(one)}: the law bends {direction}, {off} ({p_in_words(one.p_corrected)}, corrected)."
    if few := [one for one in findings if "needed" in one.extras and not _tested(one)]:
        sizes = f"{few[0].extras['needed']} sizes, and there are {few[0].extras['sizes']}"
        yield f"{listed([where(one) for one in few])}: whether the law bends needs {sizes}."


def floors(findings: Sequence[Finding]) -> Iterator[str]:
    """The metrics that have a floor; one sentence where none has."""
    there = with_verdict(findings, Verdict.YES)
    if not there:
        yield (
            "A floor (an irreducible term) is shown in no law: by both ways to count S, without the smallest size, and "
            f"corrected for {len(findings)} tests."
        )
    for one in there:
        share = f"{number(one.estimate, '.0%')} ({interval(one.low, one.high, '.0%')}) of y at the largest size"
        yield f"{where(one)}: {metric_of(one)} has a floor, {share} ({p_in_words(one.p_corrected)}, corrected)."


def straight(findings: Sequence[Finding]) -> Iterator[str]:
    """Up to which k the law holds in each case, and what is beyond."""
    parts = [f"{_up_to(one)} ({where(one)})" for one in findings[:4]]
    more = f" and {len(findings) - 4} more cases" if len(findings) > 4 else ""
    yield f"The law in size holds {listed(parts)}{more}."
    for one in findings:
        about, star = one.extras, one.estimate if isfinite(one.estimate) else 0
        ks, verdicts = about["ks"], about["verdicts"]
        beyond = [
            f"{verdict} at {k_ranges([k for k, v in zip(ks, verdicts, strict=True) if v == verdict and k > star], ks)}"
            for verdict in dict.fromkeys(v for k, v in zip(ks, verdicts, strict=True) if k > star)
        ]
        text = f"{where(one)}: the law holds {_up_to(one)} (|V| = {about['vocabulary']:,})"
        text += f"; beyond, {listed(beyond)}" if beyond else ""
        if about["shown"]:
            text += f". It is shown to be straight within {about['margin']:.0%} up to k = {about['shown']:,}"
        yield text + (f", and not to be from k = {about['exceeded']:,}." if about["exceeded"] else ".")


def _tested(one: Finding) -> bool:
    return isfinite(one.p)


def _shares(values: Sequence[float]) -> str:
    """The one, or the smallest and the largest."""
    ends = dict.fromkeys(number(value, ".0%") for value in (min(values), max(values)))
    return " to ".join(ends)


def _floor(one: Finding) -> bool:
    return isfinite(one.extras.get("floor_seen", float("nan")))


def _up_to(one: Finding) -> str:
    if not isfinite(one.estimate):
        return "at no k"
    last = ", the last k tried" if one.estimate == one.extras["last_k"] else ""
    return f"up to k = {one.estimate:,.0f}{last}"


SENTENCES = {"bends": bends, "straight up to k": straight, "floor": floors}
