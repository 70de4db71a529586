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
    runs = {kind: {fault.run_id: fault for fault in faults if fault.kind == kind} for kind in ("damaged", "lost")}
    damaged = list(runs["damaged"].values())
    files = ", ".join(sorted({fault.imported_from for fault in damaged if fault.imported_from}))
    measured = [fault for fault in damaged if fault.is_measurement and not fault.imported_from]
    reports = [fault for fault in damaged if not fault.is_measurement and not fault.imported_from]
    state = "marked: " if repair else f"damaged: run {program_name()} verify --repair. Then "
    for noun, number, remedy in (
        ("measurement", len(measured), "the next sweep measures them again"),
        ("import", len(damaged) - len(measured) - len(reports), f"import again: {files}"),
        ("run", len(reports), "run the commands of these sweeps and analyses again; their measurements are undamaged"),
    ):
        if number:
            print_text(f"{counted(number, noun)} {state}{remedy}")
    if lost := runs["lost"].keys() - runs["damaged"].keys():
        print_text(f"{counted(len(lost), 'run')} missing from the store; --repair cannot mark missing runs")
    if unreadable := {fault.run_id for fault in faults if fault.kind == "unreadable"}:
        print_text(f"{counted(len(unreadable), 'run')} not checked to the end, because a file cannot be read")
