"""The command `read`, which writes a page with each token coloured by its rank."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rbptrack.base.files import write_whole
from rbptrack.base.words import compact_bytes, short_path
from rbptrack.commands.report import check_page
from rbptrack.commands.selection import Selection
from rbptrack.console.output import command_line, say
from rbptrack.console.progress import spinner
from rbptrack.reporting import render_reading


def read(
    selection: Selection, *, documents: Sequence[str] = (), tokens: int, out: Path, open_page: bool = False
) -> int:
    """Write the reading page of the measurements."""
    check_page(out)
    runs = selection.runs()
    with spinner(f"reading the ranks of {len(runs)} measurements"):
        page, notes = render_reading(runs, documents=documents, tokens=tokens, command=command_line())
    write_whole(out, page)
    for note in notes:
        say(note)
    say(f"page     {short_path(out)} ({compact_bytes(out.stat().st_size)})")
    if open_page:
        webbrowser.open(out.absolute().as_uri())
    return 0
