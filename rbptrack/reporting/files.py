"""A report's files: its tables, and its figures drawn once each, in a second process where there is one to spare."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Self

from matplotlib.figure import Figure

from rbptrack.analysis.contract import Report
from rbptrack.analysis.figures import draw
from rbptrack.names import file_name
from rbptrack.reporting.process import spare_memory_work

_FEW = 2


class ReportFiles:
    """A report's files under a folder: tables/*.csv at once, figures/*.png and *.svg when `svgs` returns.

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
        self._sent: dict[str, Future[None]] = {}
        for name, figure in self._figures.items():
            sent = drawer.send(figure, self._paths[name]) if drawer else None
            if sent is not None:
                self._sent[name] = sent

    def ready(self) -> bool:
        """Whether `svgs` would return at once."""
        return all(future.done() for future in self._sent.values())

    def svgs(self) -> dict[str, str]:
        """Every figure as SVG text, by name; waits for those that are being drawn."""
        found = {}
        for name, path in self._paths.items():
            if name not in self._sent or self._sent[name].exception() is not None:
                draw(self._figures[name], path)  # a plugin's own class, say, which no other process can load
            text = Path(f"{path}.svg").read_text(encoding="utf-8")
            found[name] = text[text.index("<svg") :]
        return found


class DrawingProcess:
    """A second process that draws figures while this one goes on computing: drawing is half of an analysis's time.

    Args:
        analyzers: how many analyzers draw; for few, starting the process would take longer than drawing.

    """

    def __init__(self, analyzers: int) -> None:
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

    def send(self, figure: Figure, path: Path) -> Future[None] | None:
        """Queue a figure to be drawn into path.png and path.svg; None where it cannot be sent."""
        if self._pool is None:
            return None
        try:
            return self._pool.submit(_draw, pickle.dumps(figure), str(path))
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):
            return None


def _draw(pickled: bytes, path: str) -> None:
    draw(pickle.loads(pickled), Path(path))  # noqa: S301 - made by this program a moment ago


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
