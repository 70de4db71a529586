"""The command `verify`, which looks for damaged measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rbptrack.base.formatting import counted
from rbptrack.cli.options import OutputFormat, Selection, select_all, with_selection
from rbptrack.console.output import print_json, print_text, program_name

if TYPE_CHECKING:
    from rbptrack.tracking.verify import Fault


@with_selection(select_all)
def verify(
    selection: Selection,
    repair: Annotated[
        bool, typer.Option("--repair", help="mark damaged measurements; you can then measure or import them again")
    ] = False,
    since: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="only runs that began at this date or later"),
    ] = None,
    format_: OutputFormat = "text",
) -> int:
    """Check that no measurement was altered and that metrics agree with ranks."""
    from rbptrack.console.progress import spinner

    found = []
    store = selection.open_store()
    with spinner(f"verifying {store.shown_address}"):
        for fault in store.verify(repair=repair, since=since.timestamp() if since else 0.0):
            found.append(fault)
            if format_ == "text":
                print_text(f"{fault.name} ({fault.run_id[:8]}): {fault.text}")
    faults = [fault for fault in found if fault.kind != "superseded"]
    if format_ == "json":
        print_json([asdict(fault) for fault in found])
    elif faults:
        _print_totals(faults, repair=repair)
    else:
        print_text("no measurement is damaged")
    return 1 if faults else 0


def _print_totals(faults: Sequence[Fault], *, repair: bool) -> None:
    """Print how many runs are damaged, lost or unreadable, and what the user can do."""
    damaged = {fault.run_id: fault for fault in faults if fault.kind == "damaged"}
    lost = {fault.run_id for fault in faults if fault.kind == "lost"} - damaged.keys()
    unreadable = {fault.run_id for fault in faults if fault.kind == "unreadable"}
    imported = [fault for fault in damaged.values() if fault.imported_from]
    num_imported = sum(fault.is_measurement for fault in imported)
    num_imported_scores = len(imported) - num_imported
    num_measured = sum(fault.is_measurement and not fault.imported_from for fault in damaged.values())
    num_other_runs = len(damaged) - len(imported) - num_measured
    state = "marked" if repair else "damaged"
    first_step = "" if repair else f"run {program_name()} verify --repair, and then "
    if num_measured and repair:
        print_text(f"{counted(num_measured, 'measurement')} marked: the next sweep measures them again")
    elif num_measured:
        number = counted(num_measured, "measurement")
        print_text(f"{number} damaged. To measure them again with the next sweep, run {program_name()} verify --repair")
    if num_imported:
        print_text(f"{counted(num_imported, 'imported measurement')} {state}")
    if num_imported_scores:
        print_text(f"{counted(num_imported_scores, 'run')} of imported scores {state}")
    if imported:
        files = ", ".join(sorted({fault.imported_from for fault in imported}))
        print_text(f"A sweep does not replace imports: {first_step}import again: {files}")
    if num_other_runs:
        print_text(f"{counted(num_other_runs, 'run')} of sweeps or analyses {state}")
        print_text(f"Their measurements are not affected. To save them again, {first_step}run their commands again")
    if lost:
        print_text(f"{counted(len(lost), 'run')} missing from the store; --repair cannot mark missing runs")
    if unreadable:
        print_text(f"{counted(len(unreadable), 'run')} not checked to the end, because a file cannot be read")
