"""The progress of all cells in one place, while a launcher runs them elsewhere."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from rbptrack.sweep.outcome import Outcome, announce

_POLL_SECONDS = 1.0


class Watch:
    """Prints a line for each cell when it ends, wherever it was measured; a context manager.

    Args:
        folder: of the sweep, in which each cell leaves its outcome.
        total: how many cells there are.

    """

    def __init__(self, folder: Path, total: int) -> None:
        self._folder, self._total = folder, total
        self._told: set[Path] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rbptrack-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._tell()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self._tell()

    def _tell(self) -> None:
        for path in sorted(self._folder.glob("*/outcome.json")):
            if path not in self._told:
                self._told.add(path)
                announce(Outcome.read(path), f"[{int(path.parent.name) + 1}/{self._total}]")
