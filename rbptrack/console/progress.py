"""Progress of a cell: a bar, or a plain line now and then where there is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from rbptrack.console.numbers import compact
from rbptrack.console.words import quiet

_WITH_BAR, _WITH_SPEED = 96, 68  # columns of a terminal that has room for these
_PLAIN_SECONDS = 10.0  # between two lines where there is no terminal


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
        self._speed = shown.width >= _WITH_SPEED
        if shown.is_terminal and not quiet():
            parts: list[ProgressColumn] = [TextColumn("{task.description:<22.22}", markup=False)]
            parts += [BarColumn(bar_width=24)] if shown.width >= _WITH_BAR else []
            parts += [TextColumn("{task.fields[text]}"), TimeRemainingColumn(compact=True)]
            parts += [TextColumn("{task.fields[progress_label]}", markup=False)]
            self._bar = Progress(*parts, console=shown, transient=True)
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
        text = f"{compact(self._done)}/{compact(self._total)}"
        text += f" tokens  {compact(speed)} tok/s" if self._speed or not self._bar else ""
        if self._bar:
            self._bar.update(self._task, completed=self._done, text=text)
        elif now - self._said > _PLAIN_SECONDS and not quiet():
            self._said = now
            left = (self._total - self._done) / max(speed, 1e-9)
            print(f"{self._title}  {text}  {left:.0f} s left  {self._progress_label}", file=sys.stderr, flush=True)
