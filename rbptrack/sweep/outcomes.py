"""The outcomes of a cell: it was measured, it was found in the store, or it failed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rbptrack.base.errors import BadInput, RbptrackError, file_access_error, first_line
from rbptrack.config.paths import cells_folder
from rbptrack.measurement.document import Measurement

log = logging.getLogger(__name__)

TITLE_WIDTH = 24
"""The width of the column of titles in the lines of a sweep, if no title is longer."""


@dataclass(frozen=True)
class Measured:
    """The outcome of a cell that was measured.

    Attributes:
        title: the title of the cell.
        measurement: the measurement.
        run_id: the ID of the run in the store; empty if the measurement is not delivered.
        delivery_error: why the delivery failed; the measurement then waits on disk. Empty without an error.

    """

    title: str
    measurement: Measurement
    run_id: str = ""
    delivery_error: str = ""

    def line(self, title_width: int = TITLE_WIDTH) -> str:
        """Return the line about this outcome that the terminal shows."""
        measurement = self.measurement
        parts = [f"{self.title:<{title_width}} CE {measurement.ce:.3f}"]
        if measurement.rbp:
            nearest_to_10 = min(measurement.rbp, key=lambda k: max(k / 10, 10 / k))
            parts.append(f"RBP_{nearest_to_10} {measurement.rbp[nearest_to_10]:.3f}")
        parts.append(f"{measurement.num_tokens:>11,.0f} tokens")
        if measurement.tokens_per_second is not None:
            parts.append(f"{measurement.tokens_per_second:,.0f} tok/s")
        if self.delivery_error:
            parts.append("waits for the store")
        return "  ".join(parts)


@dataclass(frozen=True)
class Found:
    """The outcome of a cell that is already measured.

    Attributes:
        title: the title of the cell.
        run_id: the ID of the run in the store.

    """

    title: str
    run_id: str

    def line(self, title_width: int = TITLE_WIDTH) -> str:
        """Return the line about this outcome that the terminal shows."""
        return f"{self.title:<{title_width}} already measured"


@dataclass(frozen=True)
class Failed:
    """The outcome of a cell that could not be measured.

    Attributes:
        title: the title of the cell.
        message: why it failed, in one line.
        bad_input: whether it failed because of a mistake in what the user asked for.

    """

    title: str
    message: str
    bad_input: bool = False

    @classmethod
    def from_error(cls, title: str, error: Exception) -> Failed:
        """Make the outcome of a cell that ended with an error. If the error is unexpected, log its traceback."""
        expected_error = error if isinstance(error, RbptrackError) else file_access_error(error, cells_folder())
        if expected_error is None:
            log.error("%s failed", title, exc_info=error)
            message = f"{type(error).__name__}: {first_line(error)}"
        else:
            message = " ".join(str(expected_error).split())
        return cls(title, message, bad_input=isinstance(error, BadInput))

    def line(self) -> str:
        """Return the line about this outcome that the terminal shows."""
        return f"{self.title}  failed: {self.message}"


Outcome = Measured | Found | Failed
"""How a cell ended."""
