"""Sources of documents against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, with_verdict
from rbptrack.base.words import counted, number, some_of


def levels(findings: Sequence[Finding]) -> Iterator[str]:
    """How many pairs of sources the largest model ranks differently, and which ends there are."""
    yield _pairs(findings, "CE or RBP_k of the largest size")
    yield from _ends(findings)


def exponents(findings: Sequence[Finding]) -> Iterator[str]:
    """How many pairs of sources have different exponents, and which ends there are."""
    yield _pairs(findings, "exponent")
    yield from _ends(findings)


def _pairs(findings: Sequence[Finding], quantity: str) -> str:
    apart = with_verdict(findings, Verdict.DIFFERENT)
    if not apart:
        return f"No evidence that sources differ in {quantity} ({counted(len(findings), 'pair')})."
    return f"Sources differ in {quantity} in {some_of(len(apart), len(findings), 'pair')} (corrected)."


def _ends(findings: Sequence[Finding]) -> Iterator[str]:
    """Of each family and quantity the source of the smallest and of the largest value."""
    for where, mine in by_where(findings).items():
        for quantity in dict.fromkeys(one.case["quantity"] for one in mine):
            pairs = [one for one in mine if one.case["quantity"] == quantity]
            values = {
                one.case[end]: one.extras["values"][i] for one in pairs for i, end in enumerate(("source", "than"))
            }
            low, high = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
            (ends,) = (one for one in pairs if {one.case["source"], one.case["than"]} == {low, high})
            told = "they differ" if ends.verdict is Verdict.DIFFERENT else "they cannot be told apart"
            yield (
                f"{where}: {quantity} is {number(values[low], '.3f')} in '{low}' and {number(values[high], '.3f')} in "
                f"'{high}' ({told})."
            )


SENTENCES = {"sources differ": levels, "exponents of sources differ": exponents}
