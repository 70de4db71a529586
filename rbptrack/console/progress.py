"""Progress of a cell, or of an analyzer: a bar, or a plain line now and then without a terminal."""

from __future__ import annotations

import math
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.spinner import Spinner

from rbptrack.base.words import compact, duration
from rbptrack.console.notebook import NotebookBars, in_notebook
from rbptrack.console.output import console, drawn, quiet

_WITH_BAR, _WITH_SPEED = 96, 68  # columns of a terminal that has room for these
_STATE_SECONDS = 1.0  # between two states that are kept for others to read
_FOUND_SECONDS, _RECENT_SECONDS = 0.5, 30.0  # of a measurement: when parts on disk are read; what its speed is taken of
_PLAIN_SECONDS, _ANALYZER_SECONDS = 10.0, 30.0  # between two lines without a terminal


_PARTS = tuple(TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("text", "left", "progress_label"))
T = TypeVar("T")


@dataclass(frozen=True)
class CellState:
    """A measurement's progress, as others see it.

    Attributes:
        title: `pythia-70m / wiki`.
        host: the machine.
        done: scored tokens so far, those found on disk included.
        total: scored tokens of the measurement.
        speed: tokens per second lately.
        at: seconds since 1970.
        waits: whether another process measures it, and this one waits until that has ended.

    """

    title: str
    host: str
    done: int
    total: int
    speed: float
    at: float
    waits: bool = False

    @property
    def seconds_left(self) -> float:
        """At the present speed; infinite at a standstill."""
        return (self.total - self.done) / self.speed if self.speed else math.inf


class _Bar:
    """A bar at the foot of the terminal, on standard error, as long as the block; none without a terminal.

    Args:
        title: what it is about.
        total: of the counted units.
        *parts: what stands beside the bar.
        below: a bar below which this one stands, with the same parts.
        **fields: of the parts' texts.

    """

    def __init__(
        self, title: str, total: float, *parts: ProgressColumn, below: _Bar | None = None, **fields: Any
    ) -> None:
        self._drawing = ExitStack()
        self._below = below
        self._bar: Progress | NotebookBars | None = below._bar if below else None
        shown = console(stderr=True)
        if not below and shown.is_terminal and not quiet():
            first: list[ProgressColumn] = [TextColumn("{task.description:<22.34}", markup=False)]
            first += [BarColumn(bar_width=24)] if shown.width >= _WITH_BAR else []
            self._bar = Progress(*first, *parts, console=shown, transient=True)
        elif not below and in_notebook() and not quiet():
            self._bar = NotebookBars()
        if self._bar:
            self._task = self._bar.add_task(title, total=total, **fields)

    def __enter__(self) -> Self:
        if self._bar and not self._below:
            if isinstance(self._bar, Progress):
                self._drawing.enter_context(drawn(self._bar.console))
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar and self._below:
            self._bar.remove_task(self._task)
        elif self._bar:
            self._bar.stop()
        self._drawing.close()


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner during work of unknown length, below a running sweep's bar; nothing without a terminal."""
    shown = console(stderr=True)
    if not shown.is_terminal or quiet():
        yield
    elif _SWEEPS:
        with _SWEEPS[-1].phase(text):
            yield
    else:
        status = Live(
            Spinner("dots", escape(text), style="status.spinner"),
            console=shown,
            refresh_per_second=12.5,
            transient=True,
        )
        with drawn(shown), status:
            status.refresh()  # its thread may have to wait for an import
            yield


class SweepProgress(_Bar):
    """Progress of a sweep in this process: one bar for all of it, with the time left; the present cell's is below it.

    Args:
        weights: of the cells, in proportion to how long each is expected to take; asked for when they are shown.

    """

    def __init__(self, weights: Callable[[], Sequence[float]]) -> None:
        self._weights = weights
        self._ended = 0
        self._began = time.monotonic()
        super().__init__("sweep", 1.0, *_PARTS, text="", left="", progress_label="")

    def over(self, items: Sequence[T]) -> Iterator[T]:
        """Yield the items, one for each cell; where the next is asked for, the one before has ended."""
        self._weights = cache(self._weights)
        _SWEEPS.append(self)
        try:
            for item in items:
                yield item
                self._ended += 1
        finally:
            _SWEEPS.remove(self)

    @contextmanager
    def phase(self, text: str) -> Iterator[None]:
        """Show what the sweep does between two cells' bars."""
        if not isinstance(self._bar, Progress):
            yield
            return
        task = self._bar.add_task(text, total=None, text="", left="", progress_label="")
        try:
            yield
        finally:
            self._bar.remove_task(task)

    def show(self, part: float) -> str:
        """Show how far the sweep is, of whose present cell so much is done; returns the time left, in words."""
        weights = self._weights()
        done = (sum(weights[: self._ended]) + part * weights[self._ended]) / sum(weights)
        seconds = (time.monotonic() - self._began) * (1 - done) / done if done else math.inf
        left = f"about {duration(seconds)} left" if math.isfinite(seconds) else ""
        if self._bar:
            text = f"{self._ended}/{len(weights)} cells"
            self._bar.update(self._task, completed=done, text=text, left=left)
        return left


_SWEEPS: list[SweepProgress] = []  # under way: one, or none


class CellProgress(_Bar):
    """Progress of one measurement, on standard error; call it with the number of newly finished tokens.

    Args:
        title: `pythia-70m / wiki`.
        total: scored tokens of the measurement.
        progress_label: `[3/14]`, or nothing for a single cell.
        tell: told how far it is, about every second.

    """

    def __init__(
        self, title: str, *, total: int, progress_label: str, tell: Callable[[CellState], None] | None = None
    ) -> None:
        self._title = title
        self._total = total
        self._progress_label = progress_label
        self._tell = tell
        self._done = 0
        self._began = time.monotonic()
        self._said = time.monotonic()
        self._kept = 0.0
        self._recent = deque([(self._began, 0)])  # when so many tokens were done
        self._says_speed = console(stderr=True).width >= _WITH_SPEED
        self._sweep = _SWEEPS[-1] if _SWEEPS else None
        super().__init__(title, total, *_PARTS, below=self._sweep, text="", left="", progress_label=progress_label)

    def __call__(self, tokens: int) -> None:
        """Count newly finished tokens."""
        self._done += tokens
        now = time.monotonic()
        speed = self._speed(now)
        if self._tell and now - self._kept > _STATE_SECONDS:
            self._kept = now
            self._tell(CellState(self._title, socket.gethostname(), self._done, self._total, speed, time.time()))
        text = f"{compact(self._done)}/{compact(self._total)}"
        text += f" tokens  {compact(speed)} tok/s" if self._says_speed or not self._bar else ""
        left = duration((self._total - self._done) / speed) if speed else ""
        says_it = not self._bar and now - self._said > _PLAIN_SECONDS and not quiet()
        of_sweep = self._sweep.show(self._done / self._total) if self._sweep and (self._bar or says_it) else ""
        if self._bar:
            self._bar.update(self._task, completed=self._done, text=text, left=left)
        elif says_it:
            self._said = now
            label = self._progress_label.replace("]", f", {of_sweep}]") if of_sweep else self._progress_label
            print(f"{self._title}  {text}  {left} left  {label}", file=sys.stderr, flush=True)

    def _speed(self, now: float) -> float:
        """Return tokens per second of the last half minute; tokens that were on disk at the very start are not
        counted.
        """
        if now - self._began < _FOUND_SECONDS:
            self._recent.clear()
        self._recent.append((now, self._done))
        while now - self._recent[0][0] > _RECENT_SECONDS and len(self._recent) > 2:
            self._recent.popleft()
        then, done = self._recent[0]
        return (self._done - done) / (now - then) if now > then else 0.0


class AnalyzerProgress(_Bar):
    """Progress of one analyzer, on standard error; call it for each measurement that was read.

    Args:
        name: of the analyzer.
        total: measurements.

    """

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._said = time.monotonic()
        read = TextColumn("{task.completed:,}/{task.total:,} measurements")
        super().__init__(name, total, read, TimeRemainingColumn(compact=True))

    def __call__(self) -> None:
        """Count a measurement; some analyzers read each more than once."""
        self._done = min(self._done + 1, self._total)
        now = time.monotonic()
        if self._bar:
            self._bar.update(self._task, completed=self._done)
        elif now - self._said > _ANALYZER_SECONDS and not quiet():
            self._said = now
            print(f"{self._name}: {self._done:,} of {self._total:,} measurements", file=sys.stderr, flush=True)
