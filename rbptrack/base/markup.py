"""Escape texts for LaTeX, Markdown and CSV, so that no program reads a text as a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%#_{}$"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "±": r"$\pm$", "∞": r"$\infty$", "−": "$-$", "\n": " ", "\r": " "}
    | {"α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "μ": r"$\mu$", "σ": r"$\sigma$", "Δ": r"$\Delta$"}
    | {"\N{NO-BREAK SPACE}": "~", "≥": r"$\geq$", "≤": r"$\leq$", "·": r"$\cdot$"}
)
_NEGATIVE = re.compile(r"(?<![\w.)])-(?=\d)")
_EXPONENT = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_GREEK_EXPONENT = re.compile(r"\\textasciicircum\{\}(-?)\$(\\\w+)\$")  # as in S^-α
_MARKDOWN = re.compile(r"[\\`*\[\]>|~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is plain text
_MARKDOWN_ENTITIES = str.maketrans({"<": "&lt;", "&": "&amp;", "$": "&#36;"})  # MLflow prints a backslash before these
_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet computes a cell that begins with these


def latex_text(text: str) -> str:
    r"""Escape a text for LaTeX, which then prints it unchanged. The minus of a number becomes that of mathematics.

    Examples:
        >>> latex_text(r"$\input{/etc/passwd}$")
        '\\$\\textbackslash{}input\\{/etc/passwd\\}\\$'

    """
    escaped = _NEGATIVE.sub("$-$", text.translate(_LATEX))
    escaped = _EXPONENT.sub(lambda match: f"$^{{{match[0].translate(_DIGITS)}}}$", escaped)
    return _GREEK_EXPONENT.sub(r"$^{\1\2}$", escaped)


def markdown_text(text: str) -> str:
    r"""Escape a text for one line of Markdown.

    Then no part of it is read as HTML, as a link or as the border of a table cell.

    Examples:
        >>> markdown_text("nano_6k|[x](http://y)")
        'nano_6k\\|\\[x\\](http://y)'

    """
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.splitlines())).translate(_MARKDOWN_ENTITIES)


def code_block(text: str) -> str:
    """Return a text as a code block of Markdown. Three backticks in the text become three apostrophes."""
    apostrophes = "'" * 3
    return f"```\n{text.replace('```', apostrophes)}\n```"


def csv_text(frame: pd.DataFrame, float_format: str | None = None) -> str:
    """Return a table as CSV. Texts that a spreadsheet would compute, such as `=cmd|calc!A1`, get a `'` in front.

    Args:
        frame: the table. Its index is left out.
        float_format: the format of floats, such as `%.6g`; None for all digits.

    """
    safe = frame.rename(columns=lambda name: _safe_cell(str(name)))
    for number in range(frame.shape[1]):  # by number, because two columns may have one name
        if frame.iloc[:, number].dtype.kind not in "biufM":
            column: Any = frame.iloc[:, number].map(_safe_cell, na_action="ignore")
            safe.isetitem(number, column)
    return safe.to_csv(index=False, float_format=float_format, lineterminator="\n")


def _safe_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_BEGINNINGS) else value
