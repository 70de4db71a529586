"""Combine the messages of many cells. Each cause of failure and each note is printed once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rbptrack.base.errors import RbptrackError, shortened_list
from rbptrack.base.formatting import counted
from rbptrack.sources.hub import NotCached, ways_without_download

_MAX_NAMES = 4  # number of models that are named in front of a note


def failure_cause(title: str, message: str) -> str:
    """Return the message of a failed cell with `…` in place of the names of its model and dataset.

    Cells that failed for the same reason then have equal causes. The names are in the title of the cell.
    """
    for name in title.split(" / "):
        message = re.sub(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", "…", message)
    return message


def failure_lines(failures: Sequence[tuple[str, RbptrackError]], *, verb: str = "failed") -> list[str]:
    """Return one text for each cause of failure, from pairs of a cell's title and its error.

    Each text begins with the number of cells and `verb`, such as `3 cells (a / b and 2 more) failed`. If there are
    several cells, all missing repositories of the Hub are one cause.
    """
    not_cached = [error for _, error in failures if isinstance(error, NotCached)]
    failures_by_cause: dict[str, list[tuple[str, str]]] = {}
    for title, error in failures:
        if not isinstance(error, NotCached) or len(failures) == 1:
            message = " ".join(str(error).split())
            failures_by_cause.setdefault(failure_cause(title, message), []).append((title, message))
    lines = []
    for equal_failures in failures_by_cause.values():
        titles = [title for title, _ in equal_failures]
        lines.append(f"{_cell_names(titles)} {verb}: {equal_failures[0][1]}")
    if len(failures) > 1 and not_cached:
        lines.append(_download_text(not_cached, verb))
    return lines


def note_lines(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return each note once, preceded by the names of its models, from pairs of a cell's title and a note.

    If a note is about one of several datasets, the line names the dataset, too.
    """
    cells_by_note: dict[str, list[tuple[str, str]]] = {}
    for title, note in notes:
        model, _, dataset = title.partition(" / ")
        cells_by_note.setdefault(note, []).append((model, dataset))
    all_datasets = {dataset for cells in cells_by_note.values() for _, dataset in cells}
    lines = []
    for note, cells in cells_by_note.items():
        names = shortened_list(list(dict.fromkeys(model for model, _ in cells)), limit=_MAX_NAMES)
        datasets = {dataset for _, dataset in cells}
        place = f" on {min(datasets)}" if len(datasets) == 1 < len(all_datasets) else ""
        lines.append(f"{names}{place}: {note}")
    return lines


def _cell_names(titles: Sequence[str]) -> str:
    """Name one cell by its title, and several cells by their number: `3 cells (a / b and 2 more)`."""
    if len(titles) == 1:
        return titles[0]
    return f"{counted(len(titles), 'cell')} ({titles[0]} and {len(titles) - 1} more)"


def _download_text(errors: Sequence[NotCached], verb: str) -> str:
    """Return the commands that download the missing repositories, each with the number of cells that need it."""
    repositories = sorted((missing for error in errors for missing in error.missing), key=lambda missing: missing.kind)
    cells_by_repository = Counter(repositories)
    width = max(len(repository.command) for repository in cells_by_repository)
    reason = (
        f"{counted(len(errors), 'cell')} {verb}: the Hub cannot be reached, and these models and datasets are not in "
        "the cache. On a machine with a network, run:"
    )
    commands = [
        f"    {repository.command:<{width}}  # {counted(number, 'cell')}"
        for repository, number in cells_by_repository.items()
    ]
    return "\n".join([reason, *commands, ways_without_download(list(cells_by_repository))])
