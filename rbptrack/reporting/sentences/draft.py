"""Models as drafts of a larger one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rbptrack.analysis.findings import Finding
from rbptrack.analysis.phrases import estimate, interval, where
from rbptrack.base.words import number, spread

_FEW = 4  # drafts that are named


def draft(findings: Sequence[Finding]) -> Iterator[str]:
    """What is accepted, and how much faster that is."""
    if len(findings) > _FEW:
        rates = spread([one.estimate for one in findings], ".1%")
        faster = spread([one.extras["faster"].value for one in findings if isfinite(one.extras["faster"].value)], ".2f")
        yield f"Of tokens that a draft proposes the reference accepts {rates}; the speed-up is {faster}."
    for one in findings if len(findings) <= _FEW else ():
        case, extras = one.case, one.extras
        yield (
            f"{case['reference']} accepts {estimate(one, '.1%')} of the tokens that {case['family']}-{case['size']} "
            f"drafts on {case['dataset']}."
        )
        if not isfinite(extras["accepted"]):
            continue
        yield (
            f"Of {extras['length']} drafted tokens {number(extras['accepted'], '.2f')} are accepted in a row "
            f"({number(extras['independent'], '.2f')} if each were independent of the others)."
        )
        faster, plural = extras["faster"], "s" * (extras["best"] != 1)
        sure, cost = interval(faster.low, faster.high, ".2f"), number(extras["cost"], ".3f")
        if faster.value <= 1:
            yield f"No draft is faster than none at a cost of {cost} (at best {number(faster.value, '.2f')} times)."
        else:
            text = f"Drafts of {extras['best']} token{plural} are best: {number(faster.value, '.2f')} times the speed"
            yield f"{text} ({sure}) at a cost of {cost}."


def law(findings: Sequence[Finding]) -> Iterator[str]:
    """How acceptance rises with the size of the draft."""
    for one in findings:
        accepted = f"-ln of acceptance by {one.case['reference']}"
        yield f"{where(one)}: {accepted} falls with S by an exponent of {estimate(one)}."


SENTENCES = {"draft": draft, "acceptance in size": law}
