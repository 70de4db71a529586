"""The law in size and training tokens: how the best size grows with compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, metric_of, with_verdict
from rbptrack.base.words import listed


def compute_optimum(findings: Sequence[Finding]) -> Iterator[str]:
    """Of each family: the exponents of the best size, which of them differ, and what the checkpoints can tell."""
    for place, mine in by_where(findings).items():
        about = mine[0].extras
        optima = listed([f"{estimate(one, '.2f')} for {metric_of(one)}" for one in mine])
        yield f"{place}: the best size grows with compute as C^a, a = {optima}."
        first, apart = metric_of(mine[0]), with_verdict(mine, Verdict.DIFFERENT)
        if apart:
            yield f"{place}: ranks ask for other sizes than {first}: {listed(list(map(metric_of, apart)))}."
        elif len(mine) > 1:
            yield f"{place}: no sign that ranks ask for other sizes than {first} (the intervals overlap)."
        least, most = about["tokens_per_parameter"]
        yield (
            f"{place}: {about['checkpoints']} checkpoints of {about['sizes']} sizes, {least:.3g} to {most:.3g} tokens "
            f"per parameter; {about['level']:.0%} intervals."
        )
        if unsure := [metric_of(one) for one in mine if one.reason]:
            yield f"{place}: the fit of {listed(unsure)} is not identifiable: its starts disagree."


SENTENCES = {"compute optimum": compute_optimum}
