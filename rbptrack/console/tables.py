"""Print tables on the terminal. If the terminal is narrow, whole columns are left out, and no number is cut."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from tqdm import tqdm

from rbptrack.console.output import print_text, printable

if TYPE_CHECKING:
    import pandas as pd

_GAP_WIDTH = 2  # spaces between two columns
_SPACE = re.compile(r"\s+")


def print_table(frame: pd.DataFrame, *, by_importance: Sequence[str] = (), wrap: bool = False) -> None:
    """Print a frame without its index. Texts are aligned left and numbers right; missing values are empty cells.

    Floats have four significant digits. If the table is wider than the terminal, some columns are left out, and a line
    below names them. Files and pipes get all columns.

    Args:
        frame: the table.
        by_importance: the columns to keep if the table is too wide, the most important first. If one of them does not
            fit, no less important column is shown. Of the other columns, the leftmost are kept first. The first column
            of the frame is always shown.
        wrap: if True, no column is left out. If the table is too wide, the last column is broken into lines.

    """
    console = Console(highlight=False)
    max_width = console.width if console.is_terminal else sys.maxsize
    (head, *rows), left_out = table_lines(frame, sys.maxsize if wrap else max_width, by_importance=by_importance)
    if wrap:
        indent = " " * min(head.rindex(str(frame.columns[-1])), max_width // 2)
        rows = [line for row in rows for line in textwrap.wrap(row, max_width, subsequent_indent=indent)]
    with tqdm.external_write_mode(file=sys.stdout):
        console.print(Text(head, style="bold"), soft_wrap=True)
        for row in rows:
            print(row)
    if left_out:
        print_text(f"not shown, because the terminal is too narrow: {', '.join(left_out)}")


def table_lines(
    frame: pd.DataFrame, max_width: int, *, by_importance: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Format a frame as lines of text.

    Args:
        frame: the table.
        max_width: the largest width of a line in characters. Columns that do not fit are left out.
        by_importance: the columns to keep if the table is too wide, the most important first.

    Returns:
        The lines, beginning with the line of column names, and the names of the columns that are left out.

    """
    columns = {str(name): list(map(_format_cell, frame[name])) for name in frame}
    numeric = {str(name) for name in frame if frame[name].dtype.kind in "iuf"}
    widths = {name: max(map(cell_len, (name, *cells))) for name, cells in columns.items()}
    shown, left_out = _choose_columns(widths, max_width, by_importance)
    padded = [_pad([name, *columns[name]], widths[name], align_right=name in numeric) for name in shown]
    return [(" " * _GAP_WIDTH).join(cells).rstrip() for cells in zip(*padded, strict=True)], left_out


def _choose_columns(
    widths: Mapping[str, int], max_width: int, by_importance: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the columns that fit and of those that do not, both in the order of the table."""
    first, *others = widths
    important = [name for name in by_importance if name in others]
    free_width = max_width - widths[first]
    shown = {first}
    for name in [*important, *(name for name in others if name not in important)]:
        if widths[name] + _GAP_WIDTH <= free_width:
            free_width -= widths[name] + _GAP_WIDTH
            shown.add(name)
        elif name in important:
            break
    return [name for name in widths if name in shown], [name for name in widths if name not in shown]


def _pad(cells: Sequence[str], width: int, *, align_right: bool) -> list[str]:
    spaces = [" " * (width - cell_len(cell)) for cell in cells]
    return [space + cell if align_right else cell + space for cell, space in zip(cells, spaces, strict=True)]


def _format_cell(value: Any) -> str:
    if value is None or str(value) in ("<NA>", "NaT") or value != value:  # NaN differs from itself
        return ""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format(value, ",")
    if isinstance(value, float):
        return format(value, ".4g")
    return printable(_SPACE.sub(" ", str(value)))
