"""What the terminal shows: progress of a cell, tables of results; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from types import TracebackType
from typing import Self

import humanize
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

WIDTH = 100
_PLAIN_SECONDS = 10.0  # between two lines where there is no terminal


def console(*, stderr: bool = False) -> Console:
    """Standard output (or error): as wide as the terminal, at most 100 columns, which is also the width without one."""
    found = Console(highlight=False, soft_wrap=False, stderr=stderr)
    found.width = min(found.width, WIDTH) if found.is_terminal else WIDTH
    return found


def say(text: str) -> None:
    """Print a line on standard output, as it is."""
    console().print(text, markup=False, soft_wrap=True)


def say_wrapped(text: str, *, lines: int | None = None) -> None:
    """Print a sentence, wrapped; cut after some lines."""
    for line in wrap(text, WIDTH, max_lines=lines, placeholder=" ...", subsequent_indent="  "):
        say(line)


def complain(text: str) -> None:
    """Print an error on standard error, as it is."""
    Console(stderr=True, highlight=False).print(f"error: {text}", markup=False, soft_wrap=True, style="red")


def compact(number: float) -> str:
    """341000 -> 341k, 1.4e9 -> 1.4B, as models' sizes are written; humanize writes `341 k` and `1.4 G`."""
    number = float(f"{number:.3g}") if number >= 1e3 else number  # before a suffix is chosen: 999,999 is 1M
    for limit, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{suffix}"
    return f"{number:.0f}"


def compact_bytes(number: float) -> str:
    """341,000,000 -> `341 MB`, in decimal units; nothing is `0`."""
    return humanize.naturalsize(float(f"{number:.3g}"), format="%.3g") if number else "0"


class CellProgress:
    """Progress of one measurement, on standard error; call it with the number of newly finished tokens.

    Args:
        title: `pythia-70m / wiki`.
        total: scored tokens of the measurement.
        progress_label: `[3/14]`, or nothing for a single cell.

    """

    def __init__(self, title: str, *, total: int, progress_label: str) -> None:
        self._title, self._total, self._progress_label = title, total, progress_label
        self._done, self._began, self._said = 0, time.monotonic(), time.monotonic()
        self._bar: Progress | None = None
        shown = Console(stderr=True)
        if shown.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description:<22.22}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[progress_label]}", markup=False),
                console=shown,
                transient=True,
            )
            self._task = self._bar.add_task(title, total=total, text="", progress_label=progress_label)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, tokens: int) -> None:
        """Count newly finished tokens."""
        self._done += tokens
        now = time.monotonic()
        speed = self._done / max(now - self._began, 1e-9)
        text = f"{compact(self._done)}/{compact(self._total)} tokens  {compact(speed)} tok/s"
        if self._bar:
            self._bar.update(self._task, completed=self._done, text=text)
        elif now - self._said > _PLAIN_SECONDS:
            self._said = now
            left = (self._total - self._done) / max(speed, 1e-9)
            print(f"{self._title}  {text}  {left:.0f} s left  {self._progress_label}", file=sys.stderr, flush=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", text_columns: int = 2) -> None:
    """Print a table; the first `text_columns` columns are aligned left, the others right."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for i, header in enumerate(headers):
        shown.add_column(header, justify="left" if i < text_columns else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*map(Text, row))
    if title:  # not the table's own, which would wrap at the table's width
        console().print(title, markup=False, soft_wrap=True, style="bold")
    console().print(shown)


def short_path(location: str) -> str:
    """A path below the working folder relative to it; anything else as it is."""
    path = Path(location)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else location
