"""Peak memory of one measurement."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil
import torch

_SECONDS = 0.02  # between two samples of the process's memory


class PeakMemory:
    """The most memory that was in use at a time while this context was entered.

    On CUDA: the most that torch had allocated on the device, from torch's own counter, which is reset on entry. On a
    CPU: the highest resident set of the whole process, weights included, sampled every 20 ms; what comes and goes
    between two samples is missed. Both include memory that was in use on entry.

    Args:
        device: where the model runs.

    Attributes:
        bytes: the peak so far.

    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="rbptrack-memory", daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cuda:
            self.bytes = int(torch.cuda.max_memory_allocated(self._device))
        else:
            self._stop.set()
            self._thread.join()

    def _sample_until_stopped(self) -> None:
        process = psutil.Process()
        while True:
            self.bytes = max(self.bytes, int(process.memory_info().rss))
            if self._stop.wait(_SECONDS):
                break
        self.bytes = max(self.bytes, int(process.memory_info().rss))
