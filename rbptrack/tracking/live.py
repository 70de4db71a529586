"""Reports into a run while its cell is measured: progress, the machine's load, and that the process still lives."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

from rbptrack.errors import RbptrackError
from rbptrack.ranks import RankTable, rbp_name
from rbptrack.tracking.process import heartbeat
from rbptrack.tracking.schema import Metric
from rbptrack.tracking.writer import Writer


class Live:
    """Reports about a running cell from a thread of its own, so that a slow server does not hold up the model.

    It logs `progress/tokens`, and with scored tokens as step `progress/ce` and `progress/rbp_1`, both over what was
    measured so far; and MLflow's system metrics (`system/...`).

    Args:
        writer: of the store where the run is.
        run_id: the run; empty where the store was away when it should have begun: nothing is reported then.
        every: seconds between two reports.

    """

    def __init__(self, writer: Writer, run_id: str, *, every: float) -> None:
        self._writer, self._run_id, self._every = writer, run_id, every
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._tokens, self._nats, self._hits, self._reported = 0, 0.0, 0, 0
        self._began = time.time()
        self._monitors = _monitors()
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

    def add(self, part: RankTable) -> None:
        """Count a part that was measured or found on disk."""
        with self._lock:
            self._tokens += len(part)
            self._nats -= float(part.column("logprob").astype(np.float64).sum())
            self._hits += int(np.count_nonzero(part.rank == 1))

    def _report_until_stopped(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._report()
            except RbptrackError as error:  # the store went away; the cell goes on, and is delivered whole at its end
                self.away = str(error)
                return

    def _report(self) -> None:
        self._writer.log(self._run_id, metrics=self._load(), tags=heartbeat(), step=int(time.time() - self._began))
        with self._lock:
            tokens, nats, hits = self._tokens, self._nats, self._hits
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
    """MLflow's own monitors, those that work here."""
    found: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]  # type: ignore[no-untyped-call]
    with suppress(Exception):  # no GPU, no driver, or no nvidia-ml-py: MLflow raises what comes
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        found.append(GPUMonitor())  # type: ignore[no-untyped-call]
    return found
