"""Escape texts for LaTeX, Markdown and CSV, so that no program reads a text as a command."""

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
    r"""Escape a text for LaTeX, which then prints it unchanged.

    Examples:
        >>> latex_text(r"$\input{/etc/passwd}$")
        '\\$\\textbackslash{}input\\{/etc/passwd\\}\\$'

    """
    return text.translate(_LATEX)


def markdown_text(text: str) -> str:
    r"""Escape a text for one line of Markdown, which then shows it without HTML, links and borders of table cells.

    Examples:
        >>> markdown_text("nano_6k|[x](http://y)")
        'nano_6k\\|\\[x\\](http://y)'

    """
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.splitlines()))


def fenced(text: str) -> str:
    """Return a text as a code block of Markdown."""
    return f"```\n{text.replace('```', chr(39) * 3)}\n```"


def csv_text(frame: pd.DataFrame, float_format: str | None = None) -> str:
    """Return a table as CSV. Texts that a spreadsheet would compute, such as `=cmd|calc!A1`, get a `'` in front."""
    safe = frame.rename(columns=lambda name: _cell(str(name)))
    for place in range(frame.shape[1]):
        if frame.iloc[:, place].dtype.kind not in "biufM":
            column: Any = frame.iloc[:, place].map(_cell, na_action="ignore")
            safe.isetitem(place, column)
    return safe.to_csv(index=False, float_format=float_format, lineterminator="\n")


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
