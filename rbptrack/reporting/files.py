"""A report's files: its tables, and its figures drawn once each, in a second process where there is one to spare."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Self

from matplotlib.figure import Figure

from rbptrack.analysis.contract import Report
from rbptrack.analysis.figures import draw
from rbptrack.names import file_name
from rbptrack.reporting.inline_svg import inline_svg
from rbptrack.reporting.process import spare_memory_work

_FEW = 2


class ReportFiles:
    """A report's files under a folder: tables/*.csv at once, figures/*.png, *.svg and *.pdf when `inline_svgs` returns.

    Args:
        report: what to write.
        folder: where to.
        drawer: draws in its process; None: in this one.

    """

    def __init__(self, report: Report, folder: Path, *, drawer: DrawingProcess | None = None) -> None:
        for sub in ("tables", "figures"):
            (folder / sub).mkdir(parents=True, exist_ok=True)
        for name, table in report.tables.items():
            table.frame.to_csv(folder / "tables" / f"{file_name(name)}.csv", index=False)
        self._figures = {name: drawing.figure for name, drawing in report.drawings.items()}
        self._paths = {name: folder / "figures" / file_name(name) for name in self._figures}
        numbers = drawer.numbers if drawer else count()
        self._prefixes = {name: f"f{next(numbers)}" for name in self._figures}  # other names in each drawing of a page
        self._sent: dict[str, Future[str]] = {}
        for name, figure in self._figures.items():
            sent = drawer.send(figure, self._paths[name], self._prefixes[name]) if drawer else None
            if sent is not None:
                self._sent[name] = sent

    def ready(self) -> bool:
        """Whether `inline_svgs` would return at once."""
        return all(future.done() for future in self._sent.values())

    def inline_svgs(self) -> dict[str, str]:
        """Every figure as SVG for the inside of a page, by name; waits for those that are being drawn."""
        found = {}
        for name, path in self._paths.items():
            if name in self._sent and self._sent[name].exception() is None:
                found[name] = self._sent[name].result()
            else:  # a plugin's own class, say, which no other process can load
                found[name] = _drawn(self._figures[name], path, self._prefixes[name])
        return found


class DrawingProcess:
    """A second process that draws figures while this one goes on computing: drawing is half of an analysis's time.

    Args:
        analyzers: how many analyzers draw; for few, starting the process would take longer than drawing.

    Attributes:
        numbers: of all drawings, in the order in which they come.

    """

    def __init__(self, analyzers: int) -> None:
        self.numbers = count()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        # spawn: a fork would inherit the threads' locks of BLAS, torch and the tracking client
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _begin) if cores > 1 and analyzers > _FEW else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def send(self, figure: Figure, path: Path, prefix: str) -> Future[str] | None:
        """Queue a figure to be drawn into path.png, .svg and .pdf, and for the page; None where it cannot be sent."""
        if self._pool is None:
            return None
        try:
            return self._pool.submit(_drawn_there, pickle.dumps(figure), str(path), prefix)
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):
            return None


def _drawn_there(pickled: bytes, path: str, prefix: str) -> str:
    """What `_drawn` returns, of a figure that came from the first process. Each leaves some 100,000 objects behind."""
    gc.disable()  # else they are looked at again and again while they are made
    try:
        return _drawn(pickle.loads(pickled), Path(path), prefix)  # noqa: S301 - made by this program a moment ago
    finally:
        gc.enable()
        gc.collect()


def _drawn(figure: Figure, path: Path, prefix: str) -> str:
    """Draw a figure into path.png, .svg and .pdf; returns its SVG for the inside of a page."""
    draw(figure, path)
    text = Path(f"{path}.svg").read_text(encoding="utf-8")
    return inline_svg(text[text.index("<svg") :], prefix)


def _begin() -> None:
    """Set the process up, and let it live exactly as long as the process that draws are for, however that one ends."""
    spare_memory_work()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then ends this one
    threading.Thread(target=_end_with_the_first, name="rbptrack-first-process", daemon=True).start()


def _end_with_the_first() -> None:
    """A pool's worker waits for work for ever, also when nobody is left (SIGKILL) who could send any."""
    first = parent_process()
    if first is not None:
        wait([first.sentinel])
    os._exit(1)
