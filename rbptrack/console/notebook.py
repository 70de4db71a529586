"""A progress bar below a notebook's cell, drawn by the browser; no widgets are needed."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from html import escape
from typing import Any

from rich.progress import TaskID

_SECONDS = 0.2  # between two drawings: each is a message to the browser


def in_notebook() -> bool:
    """Return whether the program runs in a notebook's kernel, whose output a browser shows."""
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell else None
    return getattr(instance, "kernel", None) is not None


@dataclass
class _Task:
    title: str
    total: float
    completed: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """Return the bar, and beside it the texts, or how many of how many."""
        texts = [str(self.fields.get(name, "")) for name in ("text", "left", "progress_label")]
        beside = "  ".join(filter(None, texts)) or f"{self.completed:,.0f}/{self.total:,.0f}"
        bar = f'<progress value="{self.completed:g}" max="{self.total:g}"></progress>'
        return f"<div>{escape(self.title)} {bar} {escape(beside)}</div>"


class NotebookBars:
    """Bars below one cell, gone when they end; with the methods of `rich.progress.Progress` that `_Bar` calls."""

    def __init__(self) -> None:
        self._tasks: dict[TaskID, _Task] = {}
        self._display: Any = None
        self._drawn = 0.0

    def add_task(self, description: str, *, total: float, **fields: Any) -> TaskID:
        """Add a bar; returns its number."""
        number = TaskID(len(self._tasks))
        self._tasks[number] = _Task(description, total, fields=fields)
        return number

    def update(self, task: TaskID, *, completed: float, **fields: Any) -> None:
        """Set how far a bar is, and its texts."""
        self._tasks[task].completed = completed
        self._tasks[task].fields |= fields
        if time.monotonic() - self._drawn > _SECONDS:
            self._draw()

    def remove_task(self, task: TaskID) -> None:
        """Remove a bar."""
        del self._tasks[task]

    def start(self) -> None:
        """Begin to draw."""
        from IPython.display import HTML, display

        self._display = display(HTML(""), display_id=True)  # type: ignore[no-untyped-call]
        self._draw()

    def stop(self) -> None:
        """Remove the drawing."""
        self._tasks.clear()
        self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML

        self._drawn = time.monotonic()
        if self._display is not None:
            self._display.update(HTML("".join(task.html() for task in self._tasks.values())))  # type: ignore[no-untyped-call]
