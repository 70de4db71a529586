"""How help pages are laid out: paragraphs, and lists of words with their meanings, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from rbptrack.console.output import console, printable, sentence_width

FILTERS_IN_WORDS = (
    "Filters take lists, wildcards and, after !, names to leave out ('model=pythia*,!pythia-12b'); a run must match "
    "all filters."
)

AS_JSON = "one JSON document, for programs"

HELP_FLAGS = ("-h", "--help")
_WHOLE: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # paths and addresses
_NARROWEST = 20  # columns of a text beside a word


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether `-h` or `--help` is among the arguments."""
    return any(word in HELP_FLAGS for word in arguments)


def write(text: str, *, style: str = "", indent: int = 0) -> None:
    """Print a paragraph of a help page; the user asked for it, so quiet does not silence it."""
    width = max(sentence_width() - indent, _NARROWEST)
    for line in wrap(text, width, **_WHOLE) or [""]:
        _print(" " * indent + line, style)


def entries(title: str, rows: Mapping[str, str], *, stacked: bool = False, word_width: int = 0) -> None:
    """Print a titled list of words and their meanings.

    `stacked`: the meaning stands below its word. `word_width`: columns of the words, where several lists follow.
    """
    if not rows:
        return
    write("")
    write(title, style="bold")
    column = max(word_width, *map(len, rows)) + 4
    for word, meaning in rows.items():
        if stacked or column > sentence_width() // 2:
            _print(f"  {word}")  # one piece, to be copied
            write(meaning, indent=6) if meaning else None
            continue
        first, *rest = wrap(meaning, max(sentence_width() - column, _NARROWEST), **_WHOLE) or [""]
        _print(f"  {word}".ljust(column) + first)
        for line in rest:
            _print(" " * column + line)


def _print(line: str, style: str = "") -> None:
    console().print(printable(line), style=style, markup=False, emoji=False, soft_wrap=True)
