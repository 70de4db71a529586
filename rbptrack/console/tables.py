"""Tables on the terminal: no number is ever cut; in a narrow terminal whole columns make room."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from rbptrack.console.output import columns, console, on_a_line, printable, quiet, say_wrapped


class Format(Enum):
    """How a command answers: for people, or as one JSON document for programs."""

    table = "table"
    json = "json"


_GAP = 2  # columns of the terminal between two of the table


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    text_columns: int = 2,
    first_out: Sequence[str] = (),
) -> None:
    """Print a table; the first `text_columns` columns are aligned left, the others right.

    Where it is wider than the terminal, columns are left out, and a line below the table names them. Without a
    terminal, as in a file, all are there.

    Args:
        headers: of the columns.
        rows: the cells of each.
        title: a line above the table.
        text_columns: how many columns hold words; they stay, and wrap where they alone are too wide.
        first_out: the columns that make room, the least important first; after them the rightmost.

    """
    if quiet():
        return
    headers = [on_a_line(name) for name in headers]
    rows = [[on_a_line(cell) for cell in row] for row in rows]
    width = columns()
    kept = _kept(headers, rows, width, text_columns, first_out)
    widths = {i: _width(headers, rows, i) for i in kept}
    out = console()
    out.width = width or max(1, *(column_width + _GAP for column_width in widths.values())) * len(kept)
    if title:
        out.print(printable(title), markup=False, emoji=False, style="bold", soft_wrap=width is None)
    if width is None or sum(widths.values()) + _GAP * (len(kept) - 1) <= width:
        write = partial(out.print, markup=False, emoji=False, highlight=False, soft_wrap=True)
        write(_line(headers, widths, text_columns), style="bold")
        if rows:
            write("\n".join(_line(row, widths, text_columns) for row in rows))
    else:
        out.print(_wrapped(headers, rows, kept, text_columns))
    left_out = [headers[i] for i in range(len(headers)) if i not in kept and headers[i]]
    if left_out:
        between = "; " if any("," in name for name in left_out) else ", "
        say_wrapped(f"not shown in {width} columns: {between.join(left_out)}")


def _line(cells: Sequence[str], widths: Mapping[int, int], text_columns: int) -> str:
    """Return the cells of a row, each as wide as its column, by number; rich takes half a millisecond for it."""
    spaces = {i: " " * (width - cell_len(cells[i])) for i, width in widths.items()}
    return (" " * _GAP).join(cells[i] + room if i < text_columns else room + cells[i] for i, room in spaces.items())


def _wrapped(headers: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int], text_columns: int) -> Table:
    """Wrap the words of a cell."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for i in kept:
        words = i < text_columns
        shown.add_column(Text(headers[i]), justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(row[i]) for i in kept))
    return shown


def _kept(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    text_columns: int,
    first_out: Sequence[str],
) -> list[int]:
    """Return the columns that fit."""
    kept = list(range(len(headers)))
    if width is None:
        return kept
    widths = [_width(headers, rows, i) for i in kept]
    numbers = [i for i in reversed(kept) if i >= text_columns]
    leaving = [headers.index(name) for name in first_out if name in headers]
    leaving += [i for i in numbers if i not in leaving]
    while len(leaving) > 1 and sum(widths[i] for i in kept) + _GAP * (len(kept) - 1) > width:  # one number stays
        kept.remove(leaving.pop(0))
    return kept


def _width(headers: Sequence[str], rows: Sequence[Sequence[str]], column: int) -> int:
    return max(cell_len(headers[column]), *(cell_len(row[column]) for row in rows), 0)


def print_json(document: Any) -> None:
    """Print one JSON document, also where the user asked for quiet; numbers that are none are null."""
    finite = json.loads(json.dumps(plain(document)), parse_constant=lambda name: None)
    sys.stdout.write(json.dumps(finite, indent=1, ensure_ascii=False) + "\n")


def plain(value: Any) -> Any:
    """Convert a value to JSON's types: texts, numbers, lists and names; anything else as its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # a number of numpy's
        return plain(value.item())
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas, which is not imported for it
        return None
    return value if isinstance(value, str | bool | int | float) else str(value)
