"""The command `verify`, which looks for damaged measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from rbptrack.base.formatting import counted
from rbptrack.cli.options import Selection, whole_store, with_selection
from rbptrack.console.output import program, say


@with_selection(whole_store)
def verify(
    selection: Selection,
    repair: Annotated[
        bool, typer.Option("--repair", help="mark damaged measurements; the next sweep measures them again")
    ] = False,
) -> int:
    """Check that no measurement was altered and that metrics agree with ranks."""
    from rbptrack.console.progress import spinner

    faults = []
    with spinner(f"verifying {selection.store.shown}"):
        for fault in selection.store.verify(repair=repair):
            faults.append(fault)
            say(f"{fault.name} ({fault.run_id[:8]}): {fault.text}")
    if not faults:
        say("no measurement is damaged")
        return 0
    damaged = {fault.run_id: fault.is_measurement for fault in faults if not fault.lost}
    lost = {fault.run_id for fault in faults} - damaged.keys()
    measurements = sum(damaged.values())
    others = len(damaged) - measurements
    done = "marked" if repair else "damaged"
    if measurements and repair:
        say(f"{counted(measurements, 'measurement')} marked: the next sweep measures them again")
    elif measurements:
        number = counted(measurements, "measurement")
        say(f"{number} damaged. To measure them again with the next sweep, run {program()} verify --repair")
    if others:
        say(f"{counted(others, 'run')} of sweeps, analyses or scores {done}")
    if lost:
        say(f"{counted(len(lost), 'run')} lost; --repair cannot mark lost runs")
    return 1
