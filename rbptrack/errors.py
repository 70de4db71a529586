"""The errors that people see: one or two lines, without a traceback."""

import errno
from collections.abc import Iterable
from pathlib import Path


class RbptrackError(Exception):
    """Something that the user can set right; its text is the value, the rule and the remedy."""


class BadInput(RbptrackError):
    """What was asked for cannot be done as asked; nothing ran and nothing was written."""


class StoreAway(RbptrackError):
    """The tracking store does not answer now; what is measured meanwhile waits on disk."""


class MeasurementError(RbptrackError):
    """A measurement that had begun could not be finished."""


def unknown(what: str, given: object, options: Iterable[str], *, label: str = "Options") -> BadInput:
    """The error for a name that does not exist, with the names that do."""
    listed = ", ".join(options) or "none"
    return BadInput(f"no {what} matches {given}. {label}: {listed}")


def disk_trouble(error: Exception, folder: Path) -> RbptrackError | None:
    """The words for a disk that is full or cannot be written, if that is what an error says."""
    if not isinstance(error, OSError):
        return None
    text = str(error)  # Arrow's errors carry the number in their text only
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or f"errno {errno.ENOSPC}]" in text:
        return RbptrackError(f"the disk is full at {folder}: free some space and run again; what was measured is kept")
    if error.errno in (errno.EACCES, errno.EROFS) or "Read-only file system" in text:
        return RbptrackError(f"{error.filename or folder} cannot be written: check its permissions")
    return None


def first_line(error: Exception) -> str:
    """An exception's message for people: its first line, or its type where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
