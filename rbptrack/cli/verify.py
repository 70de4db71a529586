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
        bool, typer.Option("--repair", help="mark damaged measurements, so that they can be measured or imported again")
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
    damaged = {fault.run_id: fault for fault in faults if not fault.lost}
    lost = {fault.run_id for fault in faults} - damaged.keys()
    measurements = [fault for fault in damaged.values() if fault.is_measurement]
    files = sorted({fault.imported_from for fault in measurements if fault.imported_from})
    imported = sum(bool(fault.imported_from) for fault in measurements)
    measured = len(measurements) - imported
    others = len(damaged) - len(measurements)
    done = "marked" if repair else "damaged"
    if measured and repair:
        say(f"{counted(measured, 'measurement')} marked: the next sweep measures them again")
    elif measured:
        number = counted(measured, "measurement")
        say(f"{number} damaged. To measure them again with the next sweep, run {program()} verify --repair")
    if imported:
        say(f"{counted(imported, 'imported measurement')} {done}. A sweep does not measure imports again:")
        before = "" if repair else f"run {program()} verify --repair, and then "
        say(f"{before}import again: {', '.join(files)}")
    if others:
        say(f"{counted(others, 'run')} of sweeps, analyses or scores {done}")
    if lost:
        say(f"{counted(len(lost), 'run')} lost; --repair cannot mark lost runs")
    return 1
