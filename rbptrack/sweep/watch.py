"""The progress of all cells in one place, while their jobs run elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rbptrack.analysis.executors import Job
from rbptrack.base.words import compact, counted, duration
from rbptrack.console.output import console, drawn, quiet
from rbptrack.console.progress import CellState
from rbptrack.sweep.reports import Inbox
from rbptrack.sweep.results import Results

_PLAIN_SECONDS = 20.0  # between two lines without a terminal
_SILENT_SECONDS = 60.0  # after which a process is shown as silent
_ROWS = 16  # running cells that the table shows
_PLAIN_CELLS = 3  # and a plain line
# With the least width of a terminal that has room for them.
_COLUMNS = (("cell", 0), ("node", 78), ("tokens", 0), ("tok/s", 64), ("left", 0), ("log", 92))
_NUMBERS = ("tokens", "tok/s", "left")


class Watch:
    """Shows the cells that are being measured; a context manager.

    In a terminal a table that stays below the lines; without one, a plain line on standard error now and then.
    """

    def __init__(self, results: Results, inbox: Inbox, jobs: Sequence[Job], *, total: int) -> None:
        self._results = results
        self._inbox = inbox
        self._jobs = jobs
        self._total = total
        self._heard: dict[int, tuple[float, float]] = {}  # its clock's time, and this one's when that was first seen
        self._drawing = ExitStack()
        shown = console(stderr=True)
        self._live = (
            Live(console=shown, transient=True, auto_refresh=False) if shown.is_terminal and not quiet() else None
        )
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._drawing.enter_context(drawn(self._live.console))
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        self._drawing.close()

    def show(self, reason: str) -> None:
        """Show how far the sweep is, and why jobs wait, in a word or two; empty: nothing is known."""
        if self._live:
            self._live.update(self.table(reason), refresh=True)
        elif time.monotonic() - self._said > _PLAIN_SECONDS and not quiet():
            self._said = time.monotonic()
            print(self.line(reason), file=sys.stderr, flush=True)

    def table(self, reason: str = "") -> Group:
        """Count the cells by how they ended, and list the cells and shards in progress."""
        shown = Table(box=None, pad_edge=False, header_style="bold")
        width = console(stderr=True).width
        kept = [i for i, (_, least) in enumerate(_COLUMNS) if width >= least]
        running = self._running()
        for i in kept:
            shown.add_column(_COLUMNS[i][0], justify="right" if _COLUMNS[i][0] in _NUMBERS else "left", no_wrap=True)
        for job, _, state in running[:_ROWS]:
            row = self._row(job, state)
            shown.add_row(*(Text(row[i]) for i in kept))
        if len(running) > _ROWS:
            shown.add_row(Text(f"and {len(running) - _ROWS} more"))
        counts = Text(self._counts(reason), no_wrap=True, overflow="ellipsis")
        return Group(counts, shown) if running else Group(counts)

    def line(self, reason: str = "") -> str:
        """Return the same in one line."""
        parts = []
        for job, _, state in self._running()[:_PLAIN_CELLS]:
            title, node, tokens, speed, left, _ = self._row(job, state)
            where = f"{title} on {node}"
            parts.append(f"{where} waits" if state.waits else f"{where} {tokens} tokens, {speed} tok/s, {left} left")
        return "; ".join([self._counts(reason), *parts])

    def _row(self, job: Job, state: CellState) -> list[str]:
        if state.waits:
            return [state.title, state.host, "", "", "waits", job.log.name]
        tokens = f"{compact(state.done)}/{compact(state.total)}"
        silent = self._silent(job, state)
        left = f"silent {duration(silent)}" if silent > _SILENT_SECONDS else duration(state.seconds_left)
        return [state.title, state.host, tokens, compact(state.speed), left, job.log.name]

    def _silent(self, job: Job, state: CellState) -> float:
        """Return seconds since a process was heard of, by this machine's clock: those of other machines may be
        wrong.
        """
        now = time.monotonic()
        its_clock, heard = self._heard.get(job.number, (math.nan, now))
        if its_clock != state.at:
            heard = now
            self._heard[job.number] = (state.at, heard)
        return now - heard

    def _counts(self, reason: str) -> str:
        """Return `3 of 8 cells ended (1 failed), 2 running; 1 of 4 jobs waits (Priority)`."""
        ended = self._results.cells.values()
        failed = sum(outcome.status == "failed" for outcome in ended)
        line = f"{len(ended)} of {counted(self._total, 'cell')} ended" + (f" ({failed} failed)" if failed else "")
        running = {cell for _, cell, state in self._running() if not state.waits}
        line += f", {len(running)} running"
        if others := len({cell for _, cell, _ in self._running()} - running):
            line += f", {others} at work in another process"
        if waiting := sum(job.number not in self._inbox.reports for job in self._jobs):
            line += f"; {waiting} of {counted(len(self._jobs), 'job')} {'waits' if waiting == 1 else 'wait'}"
            line += f" ({reason})" if reason else ""
        elif reason:  # of a job that was requeued
            line += f"; waiting: {reason}"
        return line

    def _running(self) -> list[tuple[Job, int, CellState]]:
        """List the measurements in progress: the job, the number of its cell, and its progress."""
        reports = ((job, self._inbox.reports.get(job.number)) for job in self._jobs)
        at_work = [(job, *report.at_work) for job, report in reports if report and report.at_work]
        return [progress for progress in at_work if progress[1] not in self._results.cells]
