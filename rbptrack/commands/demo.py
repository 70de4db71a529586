"""`python -m rbptrack demo`: the embedded family on the embedded corpora, in any folder, without a network."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.commands import measure
from rbptrack.commands.usage import Help, asks_for_help

SWEEP = ("model=nano/*", "dataset=stdlib,pydocs")

HELP = Help(
    "demo [KEY=VALUE ...]",
    f"""Measures the seven embedded models on the two embedded corpora, fits their laws and writes a report. It needs no
    network, and takes two to three minutes on two cores. It is short for: {" ".join(SWEEP)}

    It takes every option of measure.""",
    examples={"demo": "seven models, two corpora, one law", "demo dataset=pydocs": "on one corpus"},
)


def main(arguments: Sequence[str]) -> int:
    """Measure as `measure` does; returns its exit code."""
    if asks_for_help(arguments):
        HELP.show()
        return 0
    given = {word.partition("=")[0] for word in arguments}
    return measure.main([*(word for word in SWEEP if word.partition("=")[0] not in given), *arguments])
