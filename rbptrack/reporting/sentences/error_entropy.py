"""The parts of cross-entropy: which of them scales, and as CE does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, upper_first, where, with_verdict
from rbptrack.base.words import listed

_FEW = 3  # cases that are named
ABSTRACT = "the abstract of arXiv 2510.04067"
_WHY = {
    "not positive": "not positive at every size",
    "grows": "it grows with S",
    "flat": "its interval includes 0",
    "poor fit": "R^2 is below 0.95",
}
_NO_SHARES = {
    "CE does not fall": "CE does not fall, so no part makes it fall",
    "within sampling error": "the fall of CE is within its sampling error, so its shares cannot be told",
    "too few ranks": "too few ranks to correct H(P) and KL for bias, so shares in the fall of CE cannot be told",
}


def scales_as_ce(findings: Sequence[Finding]) -> Iterator[str]:
    """What the share of error entropy in CE does as models grow."""
    mine = [one for one in findings if one.case["part"] == "error entropy"]
    sure = with_verdict(mine, Verdict.DIFFERENT, Verdict.CLOSE)
    groups = {
        f"H(P) / CE grows with S, against {ABSTRACT}": [one for one in sure if one.estimate < 0],
        f"H(P) / CE falls with S, as {ABSTRACT} has it": [one for one in sure if one.estimate > 0],
        "H(P) scales as CE": with_verdict(mine, Verdict.SAME),
        "whether H(P) scales as CE cannot be told": with_verdict(mine, Verdict.UNTOLD),
    }
    said = [f"{text} ({_cases(some, len(mine))})" for text, some in groups.items() if some]
    if said:
        yield f"{upper_first('; '.join(said))}."


def _cases(findings: Sequence[Finding], total: int) -> str:
    """Each case with the first and last H(P) / CE; of many their number."""
    if total > _FEW:
        return f"{len(findings)} of {total} cases"
    ends = ((one.extras["share_smallest"], one.extras["share_largest"]) for one in findings)
    return "; ".join(f"{where(one)}: {a:.3f} to {b:.3f}" for one, (a, b) in zip(findings, ends, strict=True))


def follows_a_power_law(findings: Sequence[Finding]) -> Iterator[str]:
    """Of each family: which parts follow a falling power law, and why the others do not."""
    for place, mine in by_where(findings).items():
        yes = [
            f"{one.case['part']} (alpha {estimate(one)}, R^2 {one.extras['r2']:.3f})" for one in mine if not one.reason
        ]
        no = [f"{one.case['part']} ({_WHY[one.reason]})" for one in mine if one.reason]
        text = (
            f"{place}: a falling power law fits {listed(yes)}"
            if yes
            else f"{place}: no part follows a falling power law"
        )
        yield f"{text}{'; not ' if yes else ': '}{listed(no)}." if no else f"{text}."


def share_of_fall(findings: Sequence[Finding]) -> Iterator[str]:
    """Of each family: what of a fall of CE by 1 nat each part has."""
    for place, mine in by_where(findings).items():
        if mine[0].reason:
            yield f"{place}: {_NO_SHARES[mine[0].reason]}."
            continue
        parts = listed([f"{one.case['part']} {estimate(one, '.1%')}" for one in mine])
        low, high = mine[0].extras["bias"]
        yield f"{place}: of a fall of CE the parts have: {parts}."
        yield f"{place}: without correction for bias KL would be {low:.1f} to {high:.1f} times as large."


SENTENCES = {
    "scales as CE": scales_as_ce,
    "follows a power law": follows_a_power_law,
    "share of CE's fall": share_of_fall,
}
