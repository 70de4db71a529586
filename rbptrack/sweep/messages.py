"""Combine the messages of many cells, so that each cause of failure and each note is printed once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rbptrack.base.errors import RbptrackError, shortened
from rbptrack.base.formatting import counted
from rbptrack.sources.hub import NotCached, other_ways

_MAX_NAMES = 4  # number of models that are named in front of a note


def cause(title: str, message: str) -> str:
    """Return the message of a failed cell, with the names in its title replaced by `…`.

    Cells that failed for the same reason then have equal texts.

    Args:
        title: the names of model and dataset, such as `pythia-70m / wiki`.
        message: the message of the failure.

    """
    for name in title.split(" / "):
        message = re.sub(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", "…", message)
    return message


def failure_lines(failures: Sequence[tuple[str, RbptrackError]]) -> list[str]:
    """Return one line for each cause of failure. It says how many cells failed for this cause.

    Args:
        failures: pairs of a cell's title and its error.

    """
    not_cached = [error for _, error in failures if isinstance(error, NotCached)]
    others: dict[str, list[tuple[str, str]]] = {}
    for title, error in failures:
        if not isinstance(error, NotCached) or len(failures) == 1:
            message = " ".join(str(error).split())
            others.setdefault(cause(title, message), []).append((title, message))
    lines = [f"{_cell_names([title for title, _ in cells])} failed: {cells[0][1]}" for cells in others.values()]
    return [*lines, *_download_lines(not_cached)] if len(failures) > 1 else lines


def note_lines(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return each note once, preceded by the names of the models that have it.

    Args:
        notes: pairs of a cell's title and a note on its measurement.

    """
    models: dict[str, list[str]] = {}
    for title, note in notes:
        models.setdefault(note, []).append(title.partition(" / ")[0])
    return [f"{shortened(list(dict.fromkeys(names)), limit=_MAX_NAMES)}: {note}" for note, names in models.items()]


def _cell_names(cells: Sequence[str]) -> str:
    """Return the title of one cell, or the number of cells and the first title: `3 cells (a / b and 2 more)`."""
    if len(cells) == 1:
        return cells[0]
    return f"{counted(len(cells), 'cell')} ({cells[0]} and {len(cells) - 1} more)"


def _download_lines(errors: Sequence[NotCached]) -> list[str]:
    """Return a text with a command for each missing repository, and the number of cells that need the repository."""
    if not errors:
        return []
    needed = sorted((missing for error in errors for missing in error.missing), key=lambda missing: missing.kind)
    cells = Counter(needed)
    width = max(len(missing.command) for missing in cells)  # the comments after the commands are aligned
    head = (
        f"{counted(len(errors), 'cell')} failed: the hub cannot be reached, and these models and datasets are not in "
        "the cache. On a machine with a network, run:"
    )
    commands = [f"    {missing.command:<{width}}  # {counted(number, 'cell')}" for missing, number in cells.items()]
    return ["\n".join([head, *commands, other_ways(list(cells))])]
