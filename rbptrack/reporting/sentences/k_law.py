"""The law in k, and what a larger k is worth in model size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import interval, where, with_verdict
from rbptrack.base.words import at_least, be, counted, number, some_of, spread


def law_in_k(findings: Sequence[Finding]) -> Iterator[str]:
    """In how many measurements a power law in k is followed; then each family's exponents."""
    margin = findings[0].extras["margin"]
    measured = sum(len(one.extras["beta"]) for one in findings)
    within = sum(one.extras["within"] for one in findings)
    betas = [beta for one in findings for beta in one.extras["beta"]]
    largest, off = max(one.extras["largest_k"] for one in findings), max(one.estimate for one in findings)
    text = f"-ln RBP_k follows B k^-beta within {margin:.0%} up to k = {largest} in "
    text += f"{some_of(within, measured, 'measurement')}"
    if with_verdict(findings, Verdict.NO):
        r2 = min(one.extras["r2"] for one in findings)
        text += f" (points lie up to {off:.0%} off the line, though R^2 is at least {at_least(r2, 3)})"
    yield f"{text}; beta is {spread(betas, '.3f')}."
    for one in findings:
        about, beta, sizes = one.extras, one.extras["beta"], one.extras["sizes"]
        text = f"{where(one)}: beta is {beta[0]:.3f}"
        text += f" ({sizes[0]}) to {beta[-1]:.3f} ({sizes[-1]})" if len(beta) > 1 else ""
        first, last = about["local"]
        text += (
            f"; the local slope {'steepens' if last > first else 'flattens'} from {first:.2f} at k = 1 to {last:.2f}"
        )
        text += f" at k = {about['largest_k']}"
        if "trend" in about:
            slope, low, high = about["trend"]
            text += f". Per factor 10 in S beta changes by {number(slope, '+.3f')} ({interval(low, high, '+.3f')})"
            text += "" if low <= 0 <= high else ", so that eq. 10 holds only locally"
        yield f"{text}."


def worth(findings: Sequence[Finding]) -> Iterator[str]:
    """What doubling k is worth in each family."""
    for one in findings:
        if one.verdict == Verdict.YES:
            measured = one.extras["measured"]
            text = f"{where(one)}: doubling k from {one.extras['k']} raises RBP as much as a model "
            text += f"{_times(one.estimate)} times as large"
            text += f" ({_times(one.low)} to {_times(one.high)})" if isfinite(one.low) else ""
            yield f"{text}; between the measured sizes, {_times(measured)}." if isfinite(measured) else f"{text}."
        elif "needed" in one.extras:
            there, needed = one.extras["there"], one.extras["needed"]
            sizes = f"{needed} sizes, and there {be(there)} {counted(there, 'size')}"
            yield f"{where(one)}: what a larger k is worth in S needs {sizes}."
        else:
            yield f"{where(one)}: what a larger k is worth in S cannot be told: alpha may be 0."


def _times(factor: float) -> str:
    """A factor that is known to a tenth at best: `1.4`, `27`, `1.2e+03`."""
    return f"{factor:.2g}" if factor >= 10 else f"{factor:.2f}"


SENTENCES = {"law in k": law_in_k, "worth of a larger k": worth}
