"""The errors that people see: one or two lines with the value, the rule and the remedy, and no traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

_MAX_LISTED = 12  # names in an error


class RbptrackError(Exception):
    """Something that the user can set right."""

    trace: str = ""
    """The traceback of an unexpected error behind this one, which goes to the log."""


class BadInput(RbptrackError):
    """A request that cannot be carried out; nothing ran and nothing was written."""


class StoreAway(RbptrackError):
    """The tracking store does not answer now; measurements wait on disk meanwhile."""


class StoreRefuses(BadInput):
    """The tracking store does not let this user write; measurements wait on disk until it does."""


class MissingArtifact(RbptrackError):
    """A run's file is not there, or is damaged."""


class MeasurementError(RbptrackError):
    """A measurement that had begun could not be finished."""


def unknown(what: str, given: str, options: Iterable[str]) -> BadInput:
    """Make the error for a name that does not exist: the nearest names, then all the others."""
    names = list(options)
    near = nearest(given, names)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(f"no {what} matches {given}.{meant} Options: {shortened(names) or 'none'}")


def nearest(given: str, options: Iterable[str]) -> list[str]:
    """At most three names that begin with this one, or are spelled like it."""
    by_lower = {name.lower(): name for name in options}
    word = given.lower().strip()
    if word in by_lower:
        return [by_lower[word]]
    begun = [name for name in by_lower if len(word) >= 3 and name.startswith(word)]
    near = dict.fromkeys([*begun, *get_close_matches(word, by_lower, n=3)])
    return [by_lower[name] for name in near][:3]


def is_panic(error: BaseException) -> bool:
    """Whether a library that is written in Rust has crashed: what it raises is not an Exception."""
    return type(error).__name__ == "PanicException"


def shortened(names: Sequence[str], *, limit: int = _MAX_LISTED) -> str:
    """The names separated by commas; of a long list the first, and how many more there are."""
    if len(names) <= limit:
        return ", ".join(names)
    shown = limit - 2
    return f"{', '.join(names[:shown])} and {len(names) - shown} more"


def disk_trouble(error: BaseException, folder: Path) -> RbptrackError | None:
    """Say in a line that a disk is full, or a file cannot be read or written, if that is what an error means."""
    if not isinstance(error, OSError):
        return None
    text = str(error)  # Arrow's errors carry the system's number in their text only
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or f"errno {errno.ENOSPC}]" in text:
        return RbptrackError(f"the disk is full at {folder}: free some space and run again; measurements are kept")
    if error.errno in (errno.EACCES, errno.EROFS) or "Read-only file system" in text:
        return RbptrackError(f"{error.filename or folder} cannot be read or written: {error.strerror or text}")
    if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EPERM):
        return RbptrackError(f"{error.filename or folder}: {error.strerror}; give another path")
    return None


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type where it has none."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    return text.splitlines()[0]
