"""Findings about the parts of cross-entropy: which of them scales, and as CE does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, upper_first, where, with_verdict
from rbptrack.base.words import listed

_FEW = 3  # cases that are named
_WHY = {
    "not positive": "not positive at every size",
    "grows": "it grows with S",
    "flat": "its interval includes 0",
    "poor fit": "R^2 is below 0.95",
}
_NO_SHARES = {
    "CE does not fall": "CE does not fall, so it cannot be split into shares",
    "within sampling error": "the drop in CE is within its sampling error, so its shares are undecided",
    "too few ranks": "too few ranks to correct H(P) and KL for bias, so the shares in the drop of CE are undecided",
}


@dataclass(frozen=True, kw_only=True)
class ScalesAsCE(Finding):
    """The exponent of a part minus that of CE.

    Attributes:
        p_equivalent: of a difference at or beyond the margin.
        share_smallest: the part over CE at the smallest size.
        share_largest: at the largest.

    """

    question: str = "scales as CE"
    p_equivalent: float
    share_smallest: float
    share_largest: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say what the share of error entropy in CE does as models grow."""
        cases = [finding for finding in findings if finding.case["part"] == "error entropy"]
        different = with_verdict(cases, Verdict.DIFFERENT, Verdict.CLOSE)
        groups = {
            "H(P) / CE grows with S": [case for case in different if case.estimate < 0],
            "H(P) / CE falls with S": [case for case in different if case.estimate > 0],
            "H(P) scales as CE": with_verdict(cases, Verdict.SAME),
            "undecided whether H(P) scales as CE, because the interval holds 0 and exceeds the margin": with_verdict(
                cases, Verdict.UNTOLD
            ),
        }
        parts = [f"{text} ({_cases(group, len(cases))})" for text, group in groups.items() if group]
        if parts:
            yield f"{upper_first('; '.join(parts))}."


@dataclass(frozen=True, kw_only=True)
class FollowsAPowerLaw(Finding):
    """Whether a part follows a falling power law; NO with the reason why not."""

    question: str = "follows a power law"
    r2: float = nan

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say of each family which parts follow a falling power law, and why the others do not."""
        for place, parts in by_where(findings).items():
            fitted = [
                f"{part.case['part']} (alpha {estimate(part)}, R^2 {part.r2:.3f})" for part in parts if not part.reason
            ]
            others = listed([f"{part.case['part']} ({_WHY[part.reason]})" for part in parts if part.reason])
            text = f"{place}: no part follows a falling power law"
            if fitted:
                text = f"{place}: a falling power law fits {listed(fitted)}"
            if others:
                text += f"; not {others}" if fitted else f": {others}"
            yield f"{text}."


@dataclass(frozen=True, kw_only=True)
class ShareOfFall(Finding):
    """The share of a part in CE's fall over all sizes; without a part, the reason why it has none.

    Attributes:
        bias_low: KL without correction for bias over the corrected one, the lowest of all sizes.
        bias_high: the highest.

    """

    question: str = "share of CE's fall"
    bias_low: float = nan
    bias_high: float = nan

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say of each family what of a drop of CE each part has."""
        for place, shares in by_where(findings).items():
            first = shares[0]
            if first.reason:
                yield f"{place}: {_NO_SHARES[first.reason]}."
                continue
            parts = listed([f"{share.case['part']} {estimate(share, '.1%')}" for share in shares])
            yield f"{place}: the drop in CE splits into: {parts}."
            times = f"{first.bias_low:.1f} to {first.bias_high:.1f} times as large"
            yield f"{place}: without correction for bias KL would be {times}."


def _cases(findings: Sequence[ScalesAsCE], total: int) -> str:
    """Return each case with the first and last H(P) / CE; of many their number."""
    if total > _FEW:
        return f"{len(findings)} of {total} cases"
    return "; ".join(f"{where(case)}: {case.share_smallest:.3f} to {case.share_largest:.3f}" for case in findings)
