"""Run a sweep: measure its cells, deliver the measurements, and analyse them."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from rbptrack.analysis import Analyzer
from rbptrack.analysis.plugin import make_plugin_with_ks
from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.base.formatting import counted, short_path
from rbptrack.config.schema import Config, Launch
from rbptrack.console.output import print_problem, print_text, program_name
from rbptrack.console.progress import spinner
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.measurement.document import measurement_title, names_of
from rbptrack.measurement.parts import Label
from rbptrack.sweep.backends import make_backend
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.messages import failure_cause, failure_lines, note_lines
from rbptrack.sweep.outcomes import TITLE_WIDTH, Failed, Found, Measured, Outcome
from rbptrack.sweep.resolver import Resolver
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.names import READING_FILE


def run(configs: Sequence[Config], words: Sequence[str]) -> int:
    """Run a sweep. Cells that are measured already are skipped, and one failed cell does not stop the others.

    Args:
        configs: one configuration for each cell, from `config.compose`.
        words: the words of the command line. The report shows them.

    Returns:
        The exit code: 0 for success; 1 if a cell or an analyzer failed, or if measurements wait for the store; 2 if
        all cells failed because of bad input.

    """
    began = time.time()
    settings = configs[0]  # the settings of the whole sweep are equal in all cells
    sweep_name = _make_sweep_name(configs)
    store = Store(settings.tracking.uri, settings.tracking.experiment)
    analyzers: list[Analyzer] = []
    if settings.deliver:
        chooses_k = any(word.startswith(("k=", "k.values=")) for word in words)
        analyzers = _make_analyzers(settings, settings.k.values if chooses_k else [])
        _deliver_waiting(store)
    progress = _SweepProgress(len(configs))
    cells = _resolve_cells(configs, sweep_name, progress)
    progress.title_width = max([TITLE_WIDTH, *(len(cell.title) for cell in cells.values())])
    if settings.deliver and not settings.force:
        _skip_measured(progress.remaining(cells), store, progress)
    remaining_cells = progress.remaining(cells)
    if remaining_cells:
        if settings.deliver:
            with suppress(StoreAway):  # a store that is away gets the measurements later
                store.check_writable(cell.config.dataset.name for cell in remaining_cells.values())
        folder_name = sweep_name or next(iter(remaining_cells.values())).fingerprint[:12]
        make_backend(settings, store, folder_name).run(remaining_cells, progress.add)
    if not progress.outcomes:  # launch.show=true
        return 0
    failures = [outcome for outcome in progress.outcomes.values() if isinstance(outcome, Failed)]
    if len(failures) == len(progress.outcomes):  # nothing to deliver or analyse
        return 2 if all(failure.bad_input for failure in failures) else 1
    num_waiting = _retry_deliveries(cells, store, progress) if settings.deliver else 0
    _relabel_found(cells, store, progress, words)
    for note in progress.notes():
        print_text(note)
    num_problems = num_waiting + len(failures)
    if analyzers and len(configs) > 1 and not num_waiting:
        command = f"{program_name()} {shlex.join(words)}"
        outcomes = list(progress.outcomes.values())
        num_problems += _analyse(
            store, outcomes, analyzers, name=sweep_name, command=command, ks=settings.k.values, began=began
        )
    return int(num_problems > 0)


@dataclass
class _SweepProgress:
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


def _make_sweep_name(configs: Sequence[Config]) -> str:
    """Return the name of a sweep: by default the time and a random suffix, or an empty text for a single cell."""
    if configs[0].sweep or len(configs) == 1:
        return configs[0].sweep
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _deliver_waiting(store: Store) -> None:
    """Deliver the measurements that earlier commands and jobs left on this disk."""
    outbox = Outbox(store)
    if not outbox.waiting_folders():
        return
    with suppress(StoreAway):
        for delivery in outbox.deliver_waiting():
            print_text(delivery.line())


def _resolve_cells(configs: Sequence[Config], sweep_name: str, progress: _SweepProgress) -> dict[int, Cell]:
    """Resolve the configurations of a sweep to cells, by number. A cell that cannot be resolved has failed."""
    resolver = Resolver()
    cells = {}
    errors = {}
    with spinner("looking up models and datasets"):
        for number, config in enumerate(configs):
            try:
                _check_device(config)
                cells[number] = resolver.resolve(replace(config, sweep=sweep_name))
            except RbptrackError as error:
                errors[number] = measurement_title(config.model.name, config.dataset.name), error
    progress.add_unresolved(errors)
    return cells


def _check_device(config: Config) -> None:
    """Raise BadInput if this process would measure a cell on a device that this machine does not have."""
    device = config.model.device
    if device not in ("auto", "cpu") and config.launch.kind is Launch.local:
        from rbptrack.models.device import torch_device  # imports torch, which takes seconds

        torch_device(device)


def _skip_measured(cells: Mapping[int, Cell], store: Store, progress: _SweepProgress) -> None:
    """Add the outcome `Found` for each cell that the store has already."""
    try:
        run_ids = store.find_all({cell.fingerprint for cell in cells.values()})
    except StoreAway as error:
        print_problem(f"{error}. The sweep goes on, and its measurements wait on this disk")
        return
    for number, cell in cells.items():
        if cell.fingerprint in run_ids:
            progress.add(number, Found(cell.title, run_ids[cell.fingerprint]))


def _relabel_found(cells: Mapping[int, Cell], store: Store, progress: _SweepProgress, words: Sequence[str]) -> None:
    """Give the measurements that were made before the labels that the command line sets, such as `model.family=mine`.

    Prints the old and the new name of each measurement whose labels change.
    """
    keys_set = {word.lstrip("+").partition("=")[0] for word in words}
    if "model.family" in keys_set:
        keys_set.add("model.size")  # its default depends on the family
    labels = [
        name for name in names_of(Label) if ("dataset.name" if name == "dataset" else f"model.{name}") in keys_set
    ]
    run_ids_by_values: dict[tuple[object, ...], list[str]] = {}
    for number, outcome in progress.outcomes.items():
        if labels and isinstance(outcome, Found):
            values = tuple(cells[number].description[name] for name in labels)
            run_ids_by_values.setdefault(values, []).append(outcome.run_id)
    try:
        for values, run_ids in run_ids_by_values.items():
            for line in store.relabel(store.runs(run_ids=run_ids), dict(zip(labels, values, strict=True))):
                print_text(f"labels changed: {line}")
    except RbptrackError as error:
        print_problem(f"the labels of the measurements that exist are not changed: {error}")


def _retry_deliveries(cells: Mapping[int, Cell], store: Store, progress: _SweepProgress) -> int:
    """Try once more to deliver the measurements that wait. Returns how many still wait."""
    waiting: dict[int, Measured] = {}
    for number, outcome in progress.outcomes.items():
        if isinstance(outcome, Measured) and outcome.delivery_error:
            waiting[number] = outcome
    if not waiting:
        return 0
    with suppress(RbptrackError):
        Outbox(store).deliver_waiting()
        for number, measured in list(waiting.items()):
            if run_id := store.find(cells[number].fingerprint):
                progress.outcomes[number] = replace(measured, run_id=run_id, delivery_error="")
                del waiting[number]
    if waiting:
        reason = next(iter(waiting.values())).delivery_error
        waiting_text = f"waiting on this disk: {counted(len(waiting), 'finished measurement')}"
        print_problem(f"{reason}; {waiting_text}. {program_name()} sync delivers them")
    return len(waiting)


def _analyse(
    store: Store,
    outcomes: Sequence[Outcome],
    analyzers: Sequence[Analyzer],
    *,
    name: str,
    command: str,
    ks: Sequence[int],
    began: float,
) -> int:
    """Run analyzers on a sweep in which all cells have ended. Prints their results, and saves them as a run.

    Args:
        store: the tracking store.
        outcomes: the outcomes of all cells.
        analyzers: the analyzers.
        name: the name of the sweep.
        command: the command line.
        ks: the values of k that were measured.
        began: when the sweep began, in seconds since 1970.

    Returns:
        The number of analyzers that failed, plus the number of measurements with unreadable files.

    """
    from rbptrack import reporting

    run_ids = [outcome.run_id for outcome in outcomes if isinstance(outcome, Measured | Found) and outcome.run_id]
    runs = store.runs(run_ids=run_ids)
    with spinner("analysing"):
        analyses = reporting.run_analyzers(runs, analyzers)
    print_text("")
    reporting.print_summary(analyses)
    reading_page = ""
    try:
        reading_page = reporting.render_reading(runs, command=command)[0]
    except RbptrackError as error:  # the measurements keep no texts
        print_text(f"no reading page: {error}")
    reading_link = READING_FILE if reading_page else ""
    page = reporting.render(runs, analyses, command=command, reading=reading_link, filters={"sweep": name})
    params = {
        "k": ",".join(map(str, ks)),
        "cells": len(outcomes),
        "cells_measured": sum(isinstance(outcome, Measured) for outcome in outcomes),
        "cells_failed": sum(isinstance(outcome, Failed) for outcome in outcomes),
        "seconds": round(time.time() - began, 1),
    }
    try:
        address = reporting.save_report(
            store, runs, analyses, page, command=command, reading=reading_page, sweep=name, params=params, began=began
        )
        print_text(f"report   {short_path(address)}")
        store.save_view()
    except RbptrackError as error:  # the measurements are in the store, and `report` can repeat the analysis
        print_problem(f"the report is not logged: {error}")
    num_failed = sum(analysis.report is None for analysis in analyses)
    return num_failed + reporting.print_unreadable(runs, analyses)


def _make_analyzers(settings: Config, ks: Sequence[int]) -> list[Analyzer]:
    """Make the analyzers that a configuration names. They show the k that the command line chooses."""
    if not settings.analyzers:
        return []
    plugins = find_plugins(ANALYZERS, settings.plugins.path)
    analyzers = [
        make_plugin_with_ks(analyzer_class, ks) for analyzer_class in plugins.load_matching(settings.analyzers)
    ]
    for error in plugins.broken:
        print_problem(f"{error}; the other plugins are used", error.trace)
    return analyzers
