"""Errors for users. Each prints one or two lines with the value, the rule and the remedy, without a traceback."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MAX_LISTED = 12  # largest number of names in a message
_NUMBER_IN_TEXT = re.compile(r"errno (\d+)\]", re.IGNORECASE)
_REMEDIES = {
    (errno.ENOSPC, errno.EDQUOT): "free some space and run again; finished measurements are kept",
    (errno.EFBIG,): "raise the limit on the size of files (`ulimit -f`), or use another file system",
    (errno.EACCES, errno.EPERM, errno.EROFS): "change its permissions, or give another path",
    (errno.EMFILE, errno.ENFILE): "allow more open files, for example with `ulimit -n 4096`, and run again",
    (errno.EIO, errno.ESTALE): "check the disk or the network file system, and run again",
    (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP): "give another path",
}
"""What a user can do if the operating system cannot open, read or write a file, by the numbers of the error."""


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


class FileAccessError(RbptrackError):
    """The operating system cannot open, read or write a file. The file may be undamaged."""


class MeasurementError(RbptrackError):
    """A measurement that had begun could not be finished."""


def unknown_name(kind: str, name: str, options: Iterable[str], near: Sequence[str] | None = None) -> BadInput:
    """Return the error for a name that does not exist. It suggests similar names and lists the options.

    Args:
        kind: a noun for the message, such as `model`.
        name: the name that does not exist.
        options: the names that exist.
        near: the names to suggest. By default, options that are spelled like the name.

    """
    names = list(options)
    suggested = suggestion(nearest(name, names) if near is None else near)
    return BadInput(f"no {kind} matches {name}.{suggested} Options: {shortened_list(names) or 'none'}")


def suggestion(names: Sequence[str]) -> str:
    """Return a sentence that suggests names, with a space before it. Without names, return an empty text.

    Examples:
        >>> suggestion(["wiki", "wiki2"])
        ' Did you mean wiki or wiki2?'

    """
    return f" Did you mean {' or '.join(names)}?" if names else ""


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


def file_access_error(error: BaseException, place: object) -> FileAccessError | None:
    """Return the error for the user if the operating system could not open, read or write a file.

    Args:
        error: any exception. A FileAccessError is returned as it is.
        place: the file or folder to name in the message if the exception does not name a file.

    Returns:
        The error, or None if the exception has another reason. A file that does not exist is another reason.

    """
    if isinstance(error, FileAccessError):
        return error
    if not isinstance(error, OSError):
        return None
    number_in_text = _NUMBER_IN_TEXT.search(str(error))  # Arrow may name the number only in its message
    number = error.errno or (int(number_in_text[1]) if number_in_text else 0)
    for numbers, remedy in _REMEDIES.items():
        if number in numbers:
            path = error.filename2 or error.filename or place  # the second file is the target of a copy
            return FileAccessError(f"{path} cannot be read or written ({os.strerror(number)}): {remedy}")
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has no message."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    return text.splitlines()[0]
