"""The progress of all cells in one place, while a launcher runs them elsewhere.

Every process that measures leaves how far it is in its cell's folder (see `CellProgress`), which all machines of a
launched sweep see. So the table is the same for every launcher, shows shards that have no run in the store yet, and
goes on while the store is away.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rbptrack.analysis import counted
from rbptrack.console import CellState, compact, console, drawn, duration, quiet
from rbptrack.sweep import jobs
from rbptrack.sweep.outcome import OUTCOME, Outcome, announce

_POLL_SECONDS = 1.0
_ASK_SECONDS = 15.0  # between two questions why jobs wait
_PLAIN_SECONDS = 20.0  # between two lines where there is no terminal
_SILENT_SECONDS = 60.0  # after which a process is said to be silent
_ROWS, _PLAIN_CELLS = 16, 3  # as many running cells are shown
# With the least width of a terminal that has room for them.
_COLUMNS = (("cell", 0), ("node", 78), ("tokens", 0), ("tok/s", 64), ("left", 0), ("log", 92))
_NUMBERS = ("tokens", "tok/s", "left")


class Watch:
    """Shows the cells that are being measured, and prints a line for each that ends; a context manager.

    In a terminal a table that stays below the lines; without one, a plain line on standard error now and then.

    Args:
        folder: of the sweep, in which each cell leaves its progress and its outcome.
        total: how many cells there are.
        why: what the launcher says of the jobs that wait, in a word or two; empty: nothing.

    """

    def __init__(self, folder: Path, total: int, why: Callable[[], str] = str) -> None:
        self._folder, self._total, self._why = folder, total, why
        self._reason, self._asked = "", -_ASK_SECONDS
        self._jobs: list[Path] = []  # the log of each, which it opens when it begins
        self._told: dict[Path, str] = {}  # outcome -> status
        self._logs: dict[Path, str] = {}
        self._heard: dict[Path, tuple[float, float]] = {}  # its clock's time, and this one's when that was first seen
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rbptrack-watch", daemon=True)
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
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        with suppress(OSError):
            self._tell()
        if self._live:
            self._live.stop()
        self._drawing.close()

    def expect(self, files: Sequence[Path], tasks: Sequence[Sequence[jobs.Task]]) -> None:
        """Take note of which job does what, by the jobs' files: the table names their logs."""
        self._jobs = [file.with_suffix(".log") for file in files]
        for file, mine in zip(files, tasks, strict=True):
            self._logs |= {task.folder(self._folder): file.with_suffix(".log").name for task in mine}

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            with suppress(OSError):  # a network file system may not answer for a moment: the next look tells
                self._look()

    def _look(self) -> None:
        self._tell()
        if self._jobs and time.monotonic() - self._asked > _ASK_SECONDS:
            self._asked, self._reason = time.monotonic(), self._why()
        if self._live:
            self._live.update(self.table(), refresh=True)
        elif time.monotonic() - self._said > _PLAIN_SECONDS and not quiet():
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def _tell(self) -> None:
        for path in sorted(self._folder.glob(f"*/{OUTCOME}")):
            if path not in self._told:
                outcome = Outcome.read(path)
                self._told[path] = outcome.status
                announce(outcome, f"[{int(path.parent.name) + 1}/{self._total}]")

    def table(self) -> Group:
        """How many cells ended how, and the cells and shards that are being measured."""
        shown = Table(box=None, pad_edge=False, header_style="bold")
        width = console(stderr=True).width
        kept = [i for i, (_, least) in enumerate(_COLUMNS) if width >= least]
        running = list(self._running())
        for i in kept:
            shown.add_column(_COLUMNS[i][0], justify="right" if _COLUMNS[i][0] in _NUMBERS else "left", no_wrap=True)
        for folder, state in running[:_ROWS]:
            row = self._row(folder, state)
            shown.add_row(*(Text(row[i]) for i in kept))
        if len(running) > _ROWS:
            shown.add_row(Text(f"and {len(running) - _ROWS} more"))
        counts = Text(self._counts(), no_wrap=True, overflow="ellipsis")
        return Group(counts, shown) if running else Group(counts)

    def line(self) -> str:
        """The same in one line."""
        said = []
        for folder, state in list(self._running())[:_PLAIN_CELLS]:
            title, node, tokens, speed, left, _ = self._row(folder, state)
            where = f"{title} on {node}"
            said.append(f"{where} waits" if state.waits else f"{where} {tokens} tokens, {speed} tok/s, {left} left")
        return "; ".join([self._counts(), *said])

    def _row(self, folder: Path, state: CellState) -> list[str]:
        if state.waits:
            return [state.title, state.host, "", "", "waits", self._logs.get(folder, "")]
        tokens = f"{compact(state.done)}/{compact(state.total)}"
        silent = self._silent(folder, state)
        left = f"silent {duration(silent)}" if silent > _SILENT_SECONDS else duration(state.seconds_left)
        return [state.title, state.host, tokens, compact(state.speed), left, self._logs.get(folder, "")]

    def _silent(self, folder: Path, state: CellState) -> float:
        """Seconds since a process was heard of, by this machine's clock: those of other machines may be wrong."""
        now = time.monotonic()
        said, heard = self._heard.get(folder, (math.nan, now))
        if said != state.at:
            self._heard[folder] = (state.at, heard := now)
        return now - heard

    def _counts(self) -> str:
        """`3 of 8 cells ended (1 failed), 2 running; 1 of 4 jobs waits (Priority)`."""
        failed = sum(status == "failed" for status in self._told.values())
        said = f"{len(self._told)} of {counted(self._total, 'cell')} ended" + (f" ({failed} failed)" if failed else "")
        begun = [(self._cell(folder), state.waits) for folder, state in self._running()]
        running = {cell for cell, waits in begun if not waits}
        said += f", {len(running)} running"
        if others := len({cell for cell, _ in begun} - running):
            said += f", {others} at work in another process"
        if waiting := self._waiting():
            said += f"; {waiting} of {counted(len(self._jobs), 'job')} {'waits' if waiting == 1 else 'wait'}"
            said += f" ({self._reason})" if self._reason else ""
        elif self._reason:  # of a job that was requeued
            said += f"; waiting: {self._reason}"
        return said

    def _waiting(self) -> int:
        """How many jobs have not begun."""
        return sum(not log.exists() for log in self._jobs)

    def _running(self) -> Iterator[tuple[Path, CellState]]:
        """What is being measured: the folder of each cell or shard, and how far it is."""
        for pattern in ("*", "*/shard-*"):
            for file in sorted(self._folder.glob(f"{pattern}/{CellState.FILE}")):
                folder = file.parent
                if self._cell(folder) / OUTCOME not in self._told and not (folder / OUTCOME).exists():
                    state = CellState.read(file)
                    if state is not None:
                        yield folder, state

    def _cell(self, folder: Path) -> Path:
        return self._folder / folder.relative_to(self._folder).parts[0]
