"""`python -m rbptrack demo`: the embedded family on the embedded corpora, in any folder, without a network."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.commands import measure

SWEEP = ("model=nano/*", "dataset=stdlib,pydocs")


def main(arguments: Sequence[str]) -> int:
    """Measure as `measure` does; returns its exit code."""
    given = {word.partition("=")[0] for word in arguments}
    return measure.main([*(word for word in SWEEP if word.partition("=")[0] not in given), *arguments])
