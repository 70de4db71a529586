"""The errors that people see: one or two lines, without a traceback."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
from os.path import commonprefix
from pathlib import Path

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the system's errors that mean that the disk is full."""

_WRONG_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EPERM)
_MOST_LISTED = 12  # names in an error
_ALIKE = 0.6  # of two spellings: the least share of letters in common that makes a suggestion
_SHORT, _ALIKE_SHORT = 3, 0.65  # words of so few letters are alike by chance
_MARGIN = 0.12  # how much less alike than the nearest name another suggestion may be
_PREFIX = 3  # letters that a beginning of a name must have to stand for it


class RbptrackError(Exception):
    """Something that the user can set right; its text is the value, the rule and the remedy."""


class BadInput(RbptrackError):
    """A request that cannot be carried out; nothing ran and nothing was written."""


class StoreAway(RbptrackError):
    """The tracking store does not answer now; measurements wait on disk meanwhile."""


class MissingArtifact(RbptrackError):
    """A run's file is not there."""


class MeasurementError(RbptrackError):
    """A measurement that had begun could not be finished."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it came from, and so on."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def unknown(
    what: str, given: object, options: Iterable[str], *, label: str = "Options", most: int = _MOST_LISTED
) -> BadInput:
    """Return the error for a name that does not exist: the nearest names first, then the others."""
    listed = list(options)
    near = nearest(str(given), listed)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(f"no {what} matches {given}.{meant} {label}: {shortened(listed, most=most) or 'none'}")


def nearest(given: str, options: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the names that are spelled most alike, the nearest first; those that are clearly farther than it left
    out.
    """
    by_lower = {name.lower(): name for name in options}
    word = given.lower().strip()
    if word in by_lower:
        return [by_lower[word]]
    cutoff = _ALIKE if len(word) > _SHORT else _ALIKE_SHORT
    close = get_close_matches(word, by_lower, n=2 * most, cutoff=cutoff)
    close.sort(key=lambda name: (_likeness(word, name), len(commonprefix([word, name]))), reverse=True)  # noqa: RUF071
    alike = [name for name in close if _likeness(word, name) >= _likeness(word, close[0]) - _MARGIN]
    begun = [name for name in by_lower if len(word) >= _PREFIX and name.startswith(word)]
    return [by_lower[name] for name in dict.fromkeys([*alike, *begun])][:most]


def _likeness(name: str, other: str) -> float:
    return SequenceMatcher(None, other, name).ratio()


def shortened(names: Sequence[str], *, most: int = _MOST_LISTED) -> str:
    """Return the names, separated by commas; of a long list the first, and the number of the others."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 2])} and {len(names) - most + 2} more"


def disk_trouble(error: Exception, folder: Path) -> RbptrackError | None:
    """Return the words for a disk that is full or cannot be written, if that is what an error says."""
    if not isinstance(error, OSError):
        return None
    text = str(error)  # Arrow's errors carry the number in their text only
    if error.errno in DISK_FULL or f"errno {errno.ENOSPC}]" in text:
        return RbptrackError(f"the disk is full at {folder}: free some space and run again; measurements are kept")
    if error.errno in (errno.EACCES, errno.EROFS) or "Read-only file system" in text:
        return RbptrackError(f"{error.filename or folder} cannot be written: check its permissions")
    if error.errno in _WRONG_PATH:
        return RbptrackError(f"{error.filename or folder}: {error.strerror}; give another path")
    return None


@contextmanager
def said_of_the_disk(folder: Path) -> Iterator[None]:
    """Say of a disk that is full or cannot be written what `disk_trouble` says of it."""
    try:
        yield
    except OSError as error:
        if trouble := disk_trouble(error, folder):
            raise trouble from error
        raise


def first_line(error: Exception) -> str:
    """Return an exception's message for people: its first line, or its type where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
