"""Keep a log of warnings and of the tracebacks of unexpected errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOGGER = logging.getLogger("rbptrack")


class _LogFile(logging.FileHandler):
    """A log file that is created, with its folder, when the first line is logged. Errors of writing are ignored."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, delay=True, encoding="utf-8", errors="backslashreplace")
        self.setFormatter(logging.Formatter("%(asctime)s %(process)d %(message)s"))

    def _open(self):  # type: ignore[no-untyped-def]
        Path(self.baseFilename).parent.mkdir(exist_ok=True)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass


@contextmanager
def logged(file: Path, *, on_terminal: bool = False) -> Iterator[None]:
    """Write rbptrack's log to a file while the block runs.

    Args:
        file: the log file. New lines are appended.
        on_terminal: whether to print errors with their tracebacks on standard error, too.

    """
    handlers: list[logging.Handler] = [_LogFile(file)]
    if on_terminal:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setLevel(logging.ERROR)
    for handler in handlers:
        _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            _LOGGER.removeHandler(handler)
            handler.close()


def keep_traceback(text: str, trace: str) -> str:
    """Log an error message and its traceback. Returns the path of the log file, or an empty text if no log is open."""
    _LOGGER.error("%s\n%s", text, trace.rstrip())
    files = [handler for handler in _LOGGER.handlers if isinstance(handler, _LogFile)]
    return files[0].baseFilename if files else ""
