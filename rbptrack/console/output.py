"""What the terminal prints: as wide as it is, at most 100 columns; only errors where the user asked for quiet."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap

from rich.console import Console

from rbptrack.base.errors import shortened

WIDTH = 100
"""Columns of the longest sentence, and of all of them without a terminal."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BREAK = re.compile(r"[\t\n]")
_QUIET = "RBPTRACK_QUIET"  # in the environment, because launchers start other processes


_TYPED = "rbptrack" if Path(sys.argv[0]).name == "rbptrack" else "python -m rbptrack"  # before Hydra changes it


def program() -> str:
    """Return the command that the user typed to start the program."""
    return _TYPED


def hush() -> None:
    """Print only errors and requested output from now on, also in the processes that this one starts."""
    os.environ[_QUIET] = "1"


def quiet() -> bool:
    """Return whether the user asked for quiet."""
    return bool(os.environ.get(_QUIET))


def columns(*, stderr: bool = False) -> int | None:
    """Return the width of the terminal, or what COLUMNS says; None with neither, as in a file."""
    terminal = Console(stderr=stderr)
    return terminal.width if terminal.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


def sentence_width() -> int:
    """Return columns of a sentence."""
    return min(columns() or WIDTH, WIDTH)


_LIVE: list[Console] = []  # drawings at the foot of the terminal, such as a bar


@contextmanager
def drawn(live: Console) -> Iterator[None]:
    """Print sentences above a drawing at the foot of the terminal, whichever stream they go to."""
    _LIVE.append(live)
    try:
        yield
    finally:
        _LIVE.remove(live)


def console(*, stderr: bool = False) -> Console:
    """Return standard output (or error) that leaves names and numbers as they are."""
    if _LIVE and (sys.stderr if stderr else sys.stdout).isatty():
        return _LIVE[-1]
    return Console(highlight=False, soft_wrap=False, stderr=stderr)


def say(text: str, *, whole: bool = False, style: str | None = None) -> None:
    """Print lines on standard output; a line that is wider than the terminal is wrapped between words.

    Args:
        text: one or several lines.
        whole: never wrap, as a command that is to be copied.
        style: a colour of rich's, on a terminal.

    """
    if not quiet():
        shown = printable(text)
        fitted = shown if whole else _fitted(shown, columns())
        console().print(fitted, markup=False, emoji=False, soft_wrap=True, style=style)


def say_wrapped(text: str, *, lines: int | None = None) -> None:
    """Print a sentence, wrapped; cut after some lines."""
    for line in _wrapped(text, sentence_width(), lines=lines):
        say(line)


def complain(text: str) -> None:
    """Print an error on standard error."""
    shown = _fitted(f"error: {printable(text)}", columns(stderr=True))
    console(stderr=True).print(shown, markup=False, emoji=False, soft_wrap=True, style="red")


def complain_alike(errors: Sequence[tuple[str, str]]) -> None:
    """Print errors of several subjects, such as `nano-6k / wiki`; those that differ by their subject's names, once."""
    subjects: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for subject, text in errors:
        kind = text
        for name in (subject, *re.split(r" / |, ", subject)):
            kind = kind.replace(name, "*")
        subjects.setdefault(kind, []).append(subject)
        first.setdefault(kind, f"{subject}: {text}")
    for kind, names in subjects.items():
        others = f" ({len(names) - 1:,} more like this: {shortened(names[1:])})" if names[1:] else ""
        complain(first[kind] + others)


def printable(text: str) -> str:
    """Return the text with control characters, which would command the terminal, as `?`."""
    return _CONTROL.sub("?", text)


def on_a_line(text: str) -> str:
    """Return the text as a cell of a table: printable, ends of lines and tabs as spaces."""
    return printable(_BREAK.sub(" ", text))


def _fitted(text: str, width: int | None) -> str:
    """Return the text with lines of at most so many columns, where words allow it: a path or an address stays whole."""
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in (_wrapped(line, width) if line else [""]))


def _wrapped(line: str, width: int, *, lines: int | None = None) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = str(re.match(" *", line)[0])  # type: ignore[index]
    form = {"subsequent_indent": indent + "  ", "break_long_words": False, "break_on_hyphens": False}
    wrapped = wrap(line, max(width, 20), max_lines=lines, placeholder=" ...", **form)  # type: ignore[arg-type]
    kept = " ".join(wrapped).lstrip()
    if kept.endswith(" ..."):  # half a parenthesis says nothing
        while kept.count("(") > kept.count(")"):
            kept = kept[: kept.rindex("(")].rstrip() + " ..."
        wrapped = wrap(indent + kept, max(width, 20), **form)  # type: ignore[arg-type]
    return wrapped
