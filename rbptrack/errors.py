"""The errors that people see: one or two lines, without a traceback."""

from collections.abc import Iterable


class RbptrackError(Exception):
    """Something that the user can set right; its text is the value, the rule and the remedy."""


class BadInput(RbptrackError):
    """What was asked for cannot be done as asked; nothing ran and nothing was written."""


class MeasurementError(RbptrackError):
    """A measurement that had begun could not be finished."""


def unknown(what: str, given: object, options: Iterable[str], *, label: str = "Options") -> BadInput:
    """The error for a name that does not exist, with the names that do."""
    listed = ", ".join(options) or "none"
    return BadInput(f"no {what} matches {given}. {label}: {listed}")
