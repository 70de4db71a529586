"""Errors for users. Each prints one or two lines with the value, the rule and the remedy, without a traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

_MAX_LISTED = 12  # largest number of names in a message


class RbptrackError(Exception):
    """An error that the user can correct."""

    trace: str = ""
    """The traceback of the unexpected error that caused this one. It is written to the log."""


class BadInput(RbptrackError):
    """A request cannot be carried out. Nothing ran and nothing was written."""


class StoreAway(RbptrackError):
    """The tracking store does not answer. Measurements stay on the local disk until it does."""


class StoreRefuses(BadInput):
    """The tracking store refuses to write. Measurements stay on the local disk until it accepts them."""


class MissingArtifact(RbptrackError):
    """A file of a run is missing or damaged."""


class MeasurementError(RbptrackError):
    """A measurement that had begun could not be finished."""


def unknown_name(kind: str, name: str, options: Iterable[str]) -> BadInput:
    """Return the error for a name that does not exist. It suggests similar names and lists the options.

    Args:
        kind: the kind of the name, such as `model`.
        name: the name.
        options: all names that exist.

    """
    names = list(options)
    near = nearest(name, names)
    suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(f"no {kind} matches {name}.{suggestion} Options: {shortened_list(names) or 'none'}")


def nearest(typed: str, options: Iterable[str]) -> list[str]:
    """Return the options that begin with a typed name or are spelled like it, at most three. Case does not matter.

    If an option differs from the typed name in case only, return this option.
    """
    option_by_lowered = {option.lower(): option for option in options}
    lowered = typed.lower().strip()
    if lowered in option_by_lowered:
        return [option_by_lowered[lowered]]
    longer = [option for option in option_by_lowered if len(lowered) >= 3 and option.startswith(lowered)]
    near = dict.fromkeys([*longer, *get_close_matches(lowered, option_by_lowered, n=3)])
    return [option_by_lowered[option] for option in near][:3]


def is_panic(error: BaseException) -> bool:
    """Return whether an error is the panic of a library written in Rust. Panics do not extend Exception."""
    return type(error).__name__ == "PanicException"


def shortened_list(names: Sequence[str], *, limit: int = _MAX_LISTED) -> str:
    """Join names by commas. If there are more than `limit`, give the first names and the number of the others."""
    if len(names) <= limit:
        return ", ".join(names)
    shown = limit - 2
    return f"{', '.join(names[:shown])} and {len(names) - shown} more"


def disk_error(error: BaseException, folder: Path) -> RbptrackError | None:
    """Return an error for the user if an exception means a full disk or a path that cannot be used.

    Args:
        error: any exception.
        folder: the folder to name in the message if the exception does not name a file.

    Returns:
        The error, or None if the exception has another reason.

    """
    if not isinstance(error, OSError):
        return None
    text = str(error)  # Arrow gives the number of a system error in the text only
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or f"errno {errno.ENOSPC}]" in text:
        return RbptrackError(f"the disk is full at {folder}: free some space and run again; measurements are kept")
    if error.errno in (errno.EACCES, errno.EROFS) or "Read-only file system" in text:
        reason = error.strerror or text
        return RbptrackError(
            f"{error.filename or folder} cannot be read or written ({reason}): change its permissions or give another "
            "path"
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EPERM):
        return RbptrackError(f"{error.filename or folder}: {error.strerror}; give another path")
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has no message."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    return text.splitlines()[0]
