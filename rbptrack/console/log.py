"""Write warnings and the tracebacks of unexpected errors to a log file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rbptrack.base.secrets import without_password

_LOGGER = logging.getLogger("rbptrack")


class _Formatter(logging.Formatter):
    """A formatter that hides secrets, also in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return without_password(super().format(record))


class _LogFile(logging.FileHandler):
    """A log file. It is created with its folder when the first line is logged.

    If the file cannot be created or written, the line is lost and no error is raised.

    Attributes:
        failed: whether the last line could not be written.

    """

    def __init__(self, file: Path) -> None:
        super().__init__(file, delay=True, encoding="utf-8", errors="backslashreplace")
        self.failed = False
        self.setFormatter(_Formatter("%(asctime)s %(process)d %(message)s"))

    def _open(self):  # type: ignore[no-untyped-def]
        Path(self.baseFilename).parent.mkdir(exist_ok=True)
        return super()._open()

    def emit(self, record: logging.LogRecord) -> None:
        self.failed = False
        try:
            super().emit(record)
        except OSError:
            self.failed = True

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        self.failed = True

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def log_to_file(file: Path, *, on_terminal: bool = False) -> Iterator[None]:
    """Append rbptrack's log to a file while a block runs.

    With `on_terminal`, errors and their tracebacks are also printed on standard error.
    """
    handlers: list[logging.Handler] = [_LogFile(file)]
    if on_terminal:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setFormatter(_Formatter())
        handlers[-1].setLevel(logging.ERROR)
    for handler in handlers:
        _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            _LOGGER.removeHandler(handler)
            handler.close()


def log_traceback(text: str, trace: str) -> str:
    """Log an error message and its traceback. Returns the path of the log file.

    The path is empty if no log is open, or if the file cannot be written.
    """
    _LOGGER.error("%s\n%s", text, trace.rstrip())
    files = [handler for handler in _LOGGER.handlers if isinstance(handler, _LogFile) and not handler.failed]
    return files[0].baseFilename if files else ""
