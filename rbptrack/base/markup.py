"""Texts that others wrote, as plain text of LaTeX, Markdown and spreadsheets: a name is never read as a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%#_{}$"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "\n": " ", "\r": " "}
)
_MARKDOWN = re.compile(r"[\\`*\[\]<>|$&~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is plain text
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # with these, a cell is a formula to a spreadsheet


def latex_text(text: str) -> str:
    r"""Return text as LaTeX that prints it.

    Examples:
        >>> latex_text(r"$\input{/etc/passwd}$")
        '\\$\\textbackslash{}input\\{/etc/passwd\\}\\$'

    """
    return text.translate(_LATEX)


def markdown_text(text: str) -> str:
    r"""Return text as Markdown that shows it, in one line: no HTML, no link, no end of a table's cell.

    Examples:
        >>> markdown_text("nano_6k|[x](http://y)")
        'nano_6k\\|\\[x\\](http://y)'

    """
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.splitlines()))


def fenced(text: str) -> str:
    """Return text as a block of Markdown that is shown as it is, in letters of one width."""
    return f"```\n{text.replace('```', chr(39) * 3)}\n```"


def csv_text(frame: pd.DataFrame, float_format: str | None = None) -> str:
    """Return a table as CSV. Texts that a spreadsheet would compute, such as `=cmd|calc!A1`, begin with `'`."""
    safe = frame.rename(columns=lambda name: _cell(str(name)))
    for place in range(frame.shape[1]):
        if frame.iloc[:, place].dtype.kind not in "biufM":
            column: Any = frame.iloc[:, place].map(_cell, na_action="ignore")
            safe.isetitem(place, column)
    return safe.to_csv(index=False, float_format=float_format, lineterminator="\n")


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
