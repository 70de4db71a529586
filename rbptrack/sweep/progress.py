"""Keep and print the outcomes of a sweep's cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rbptrack.base.errors import RbptrackError
from rbptrack.console.output import print_problem, print_text
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.messages import failure_cause, failure_lines, note_lines
from rbptrack.sweep.outcomes import TITLE_WIDTH, Failed, Measured, Outcome


@dataclass
class SweepProgress:
    """The outcomes of the cells that have ended. Each outcome is printed when it is added.

    Attributes:
        total: the number of cells of the sweep.
        title_width: the width of the column of titles.
        outcomes: the outcomes, by the number of the cell.

    """

    total: int
    title_width: int = TITLE_WIDTH
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    _first_title_by_cause: dict[str, str] = field(default_factory=dict)  # of failed cells

    def add(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of a cell, and print it."""
        self.outcomes[number] = outcome
        if self.total == 1 and isinstance(outcome, Failed):
            print_problem(outcome.message)
            return
        width = len(str(self.total))
        label = f"[{len(self.outcomes):>{width}}/{self.total}] " if self.total > 1 else ""
        if isinstance(outcome, Failed):
            cause = failure_cause(outcome.title, outcome.message)
            first_title = self._first_title_by_cause.setdefault(cause, outcome.title)
            line = outcome.line()
            if first_title != outcome.title:
                line = f"{outcome.title}  failed for the same reason as {first_title}"
            print_problem(f"{label}{line}")
        else:
            print_text(f"{label}{outcome.line(self.title_width)}")

    def add_unresolved(self, errors: Mapping[int, tuple[str, RbptrackError]]) -> None:
        """Keep the failures of cells that could not be resolved, and print one line for each cause.

        Args:
            errors: the title and the error of each cell, by the number of the cell.

        """
        for number, (title, error) in errors.items():
            self.outcomes[number] = Failed.from_error(title, error)
            if self.total == 1:
                print_problem(str(error))
        if self.total > 1:
            for line in failure_lines(list(errors.values())):
                print_problem(line)

    def remaining(self, cells: Mapping[int, Cell]) -> dict[int, Cell]:
        """Return the cells that have not ended, by number."""
        return {number: cell for number, cell in cells.items() if number not in self.outcomes}

    def notes(self) -> list[str]:
        """Return the notes on the measurements. Each note appears once, with the names of its models."""
        measured = [outcome for outcome in self.outcomes.values() if isinstance(outcome, Measured)]
        return note_lines((outcome.title, note) for outcome in measured for note in outcome.measurement.note_list)
