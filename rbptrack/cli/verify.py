"""The command `verify`, which looks for damaged measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from rbptrack.base.words import counted
from rbptrack.cli.options import Selection, selects, whole_store
from rbptrack.console.output import program, say


@selects(whole_store)
def verify(
    selection: Selection,
    repair: Annotated[
        bool, typer.Option("--repair", help="mark damaged measurements; the next sweep measures them again")
    ] = False,
) -> int:
    """Check that no measurement was altered and that metrics agree with ranks."""
    from rbptrack.console.progress import spinner

    damaged = set()
    with spinner(f"verifying {selection.store.shown}"):
        for fault in selection.store.verify(repair=repair):
            damaged.add(fault.run_id)
            say(f"{fault.name} ({fault.run_id[:8]}): {fault.text}")
    if not damaged:
        say("no measurement is damaged")
        return 0
    if repair:
        say(f"{counted(len(damaged), 'measurement')} marked: the next sweep measures them again")
    else:
        number = counted(len(damaged), "measurement")
        say(f"{number} damaged. To measure them again with the next sweep, run {program()} verify --repair")
    return 1
