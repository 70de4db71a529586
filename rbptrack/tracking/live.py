"""Reports into a run while a process works on it: that the process lives, how far it is, and the machine's load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import RankTable, rbp_name
from rbptrack.tracking.process import STALE_SECONDS, heartbeat
from rbptrack.tracking.schema import Metric
from rbptrack.tracking.writer import Writer

EVERY_SECONDS = 10.0
LONGEST_PAUSE = STALE_SECONDS / 10
MOST_SECONDS = STALE_SECONDS / 5  # whatever tracking.every says, a living run must not look dead


class Heartbeat:
    """Says every so often, into a run that this process works on, that the process lives; a context manager.

    It does so from a thread and over a connection of its own, so that neither holds up the other. A store that does not
    answer, for a moment or for hours, is asked again, less and less often, for as long as the process works.

    `run_id` is empty where the store was away when the run should have begun: nothing is reported then.
    """

    def __init__(self, writer: Writer, run_id: str, *, every: float = EVERY_SECONDS) -> None:
        self._writer = Writer(writer.connection.another())
        self._run_id = run_id
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report_until_stopped, name="rbptrack-live", daemon=True)
        self.away = ""

    def __enter__(self) -> Self:
        if self._run_id:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _report_until_stopped(self) -> None:
        pause = self._every
        while not self._stop.wait(pause):
            try:
                self._report()
                pause = self._every
                self.away = ""
            except Exception as error:  # whatever it was, a run whose process lives must not look dead
                pause = min(2 * pause, max(self._every, LONGEST_PAUSE))
                self.away = str(error)

    def _report(self) -> None:
        self._writer.log(self._run_id, tags=heartbeat())


@contextmanager
def working(writer: Writer, name: str, tags: Mapping[str, str]) -> Iterator[str]:
    """Yield a run of its own, for as long as the block works on it; yields its id.

    It ends FINISHED, or FAILED where the block raises, or KILLED where that is an interrupt.
    """
    run_id = writer.begin(name, tags)
    try:
        with Heartbeat(writer, run_id):
            yield run_id
    except BaseException as error:
        with suppress(RbptrackError):  # repaired at the next start
            writer.end(run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
        raise
    writer.end(run_id)


class Live(Heartbeat):
    """Reports about a cell that is measured: a heartbeat, its progress, and the machine's load.

    It logs `progress/tokens`, and with scored tokens as step `progress/ce` and `progress/rbp_1`, both over the tokens
    measured so far; and MLflow's system metrics (`system/...`).
    """

    def __init__(self, writer: Writer, run_id: str, *, every: float) -> None:
        super().__init__(writer, run_id, every=min(every, MOST_SECONDS))
        self._lock = threading.Lock()
        self._tokens = 0
        self._nats = 0.0
        self._hits = 0
        self._reported = 0
        self._began = time.time()
        self._monitors = _monitors()

    def add(self, part: RankTable) -> None:
        """Count a part that was measured or found on disk."""
        with self._lock:
            self._tokens += len(part)
            self._nats -= float(part.column("logprob").astype(np.float64).sum())
            self._hits += int(np.count_nonzero(part.rank == 1))

    def _report(self) -> None:
        super()._report()
        self._writer.log(self._run_id, metrics=self._load(), step=int(time.time() - self._began))
        with self._lock:
            tokens = self._tokens
            nats = self._nats
            hits = self._hits
        if tokens > self._reported:
            self._reported = tokens
            numbers = {"tokens": tokens, Metric.CE: nats / tokens, rbp_name(1): hits / tokens}
            progress = {f"{Metric.PROGRESS}{name}": number for name, number in numbers.items()}
            self._writer.log(self._run_id, metrics=progress, step=tokens)

    def _load(self) -> dict[str, float]:
        load: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            load |= {f"{Metric.SYSTEM}{name}": value for name, value in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        return load


def _monitors() -> list[Any]:
    """Return MLflow's own monitors, those that work here."""
    monitors: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]  # type: ignore[no-untyped-call]
    with suppress(Exception):  # no GPU, no driver, or no nvidia-ml-py: MLflow raises what comes
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        monitors.append(GPUMonitor())  # type: ignore[no-untyped-call]
    return monitors
