"""Other processes that draw figures, and compute whole analyzers, while this one computes."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from matplotlib.figure import Figure

from rbptrack.analysis.contract import Analyzer, Report
from rbptrack.analysis.findings import NothingToSay
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.process import cores
from rbptrack.base.secrets import guard
from rbptrack.reporting.broken import AnalyzerFault, computed
from rbptrack.reporting.discovery import load_file, plugin_file
from rbptrack.reporting.files import ReportFiles, drawn
from rbptrack.reporting.process import spare_memory_work

_FEW = 2  # analyzers for which starting a process would take longer than drawing
_MANY_RUNS, _MANY_TOKENS = 20, 10_000_000  # from which on whole analyzers are worth another process's start
_MEMORY = 2 << 30  # bytes that a process may need
_MOST = 9  # processes: the longest analyzer takes a tenth of the time of all, and more would wait for it
_UNSENDABLE = (pickle.PicklingError, AttributeError, TypeError, RuntimeError)


@dataclass(frozen=True)
class Analysed:
    """What an analyzer found in another process.

    Attributes:
        report: with empty figures: they are drawn.
        svgs: every figure for the inside of a page, by name.

    """

    report: Report
    svgs: dict[str, str]


class Workers:
    """Processes beside this one, as many as there are other cores and memory for; none for few analyzers.

    Each starts when there is work for it, and ends with the block, or with this process however that one ends.

    Args:
        analyzers: how many there are.

    """

    def __init__(self, analyzers: int) -> None:
        room = max(1, psutil.virtual_memory().available // _MEMORY)
        self._most = min(cores() - 1, analyzers - 1, room, _MOST) if analyzers > _FEW else 0
        self._computing: list[Future[Analysed | RbptrackError]] = []
        self._pool: ProcessPoolExecutor | None = None
        self._end: Connection | None = None
        if self._most:
            alive, self._end = Pipe(duplex=False)
            # spawn: a fork would inherit the threads' locks of BLAS, torch and the tracking client
            self._pool = ProcessPoolExecutor(self._most, get_context("spawn"), _begin, (alive,))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool and self._end:
            if kind:
                self._end.close()  # they end at once, in the middle of what they do
            self._pool.shutdown(cancel_futures=True)
            self._end.close()

    def draw(self, figure: Figure, path: Path, prefix: str) -> Future[str] | None:
        """Queue a figure to be drawn into path.png, .svg and .pdf, and for the page; None where it cannot be sent."""
        if self._pool is None:
            return None
        try:
            return self._pool.submit(_drawn_there, pickle.dumps(figure), str(path), prefix)
        except _UNSENDABLE:
            return None

    def are_free(self, runs: Runs) -> bool:
        """Whether one of them computes no analyzer, and these runs are many enough to give it one."""
        tokens = float(runs.frame["num_tokens"].fillna(0).sum())
        many = len(runs) >= _MANY_RUNS or tokens >= _MANY_TOKENS
        return many and sum(not one.done() for one in self._computing) < self._most

    def compute(
        self, analyzer: Analyzer, runs: Runs, folder: Path, prefix: str
    ) -> Future[Analysed | RbptrackError] | None:
        """Queue an analyzer to be computed and drawn into a folder; None where it cannot be sent.

        The future's result is what it found, or the RbptrackError that `computed` raised.
        """
        if self._pool is None:
            return None
        try:
            sent = pickle.dumps(analyzer), pickle.dumps(runs)
            future = self._pool.submit(_computed_there, plugin_file(analyzer), *sent, str(folder), prefix)
        except (*_UNSENDABLE, OSError):
            return None
        self._computing.append(future)
        return future


def result_of(future: Future[Analysed | RbptrackError]) -> Analysed | None:
    """What an analyzer found in another process; None where it has not begun there, or the process was lost.

    Raises:
        RbptrackError: what it raised there.

    """
    if future.cancel():
        return None
    try:
        found = future.result()
    except (BrokenProcessPool, *_UNSENDABLE):  # killed for want of memory, say; or what it found cannot be sent
        return None
    if isinstance(found, RbptrackError):
        raise found
    return found


def _computed_there(
    file: Path | None, analyzer: bytes, runs: bytes, folder: str, prefix: str
) -> Analysed | RbptrackError:
    """Compute and draw an analyzer that came from the first process."""
    _prepare(file)
    try:
        report = computed(pickle.loads(analyzer), _runs(runs))  # noqa: S301 - made by this program a moment ago
    except AnalyzerFault as error:
        return AnalyzerFault(str(error))  # without its cause, which may not be sendable
    except NothingToSay as error:
        return error
    except RbptrackError as error:
        return RbptrackError(str(error))
    svgs = ReportFiles(report, Path(folder), prefix=prefix).inline_svgs()
    empty = {name: replace(drawing, figure=Figure()) for name, drawing in report.drawings.items()}
    return Analysed(replace(report, drawings=empty), svgs)


@lru_cache
def _prepare(file: Path | None) -> None:
    """Import the plugin's file that an analyzer comes from, if it is none of an installed package."""
    if file:
        load_file(file)
    spare_memory_work()


@lru_cache(maxsize=1)
def _runs(pickled: bytes) -> Runs:
    """The measurements; what was read of them is kept for the next analyzer."""
    runs: Runs = pickle.loads(pickled)  # noqa: S301 - made by this program a moment ago
    return runs


def _drawn_there(pickled: bytes, path: str, prefix: str) -> str:
    """What `drawn` returns, of a figure that came from the first process. Each leaves some 100,000 objects behind."""
    gc.disable()  # else they are looked at again and again while they are made
    try:
        return drawn(pickle.loads(pickled), Path(path), prefix)  # noqa: S301 - made by this program a moment ago
    finally:
        gc.enable()
        gc.collect()


def _begin(alive: Connection) -> None:
    """Set the process up, and let it live no longer than the process that it works for, however that one ends."""
    guard()
    spare_memory_work()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then ends this one
    threading.Thread(target=_end_with_the_first, args=(alive,), name="rbptrack-first-process", daemon=True).start()


def _end_with_the_first(alive: Connection) -> None:
    """A pool's worker waits for work for ever, also when nobody is left (SIGKILL) who could send any."""
    first = parent_process()
    if first is not None:
        wait([first.sentinel, alive])
    os._exit(1)
