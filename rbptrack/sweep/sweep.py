"""Run a sweep: resolve its cells, skip those already measured, measure and deliver the rest, and analyse all."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from rbptrack.analysis import Analyzer, Runs
from rbptrack.base import markup
from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.base.formatting import counted, listed, short_path
from rbptrack.config.schema import Config, Launch
from rbptrack.console.output import complain, program, say
from rbptrack.console.progress import spinner
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.sweep.backends import make_backend
from rbptrack.sweep.cells import Cell, Resolver
from rbptrack.sweep.measuring import Failed, Found, Measured, Outcome
from rbptrack.sweep.messages import failure_cause, failure_lines, note_lines
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.facts import title
from rbptrack.tracking.names import READING_FILE, Kind


def run(configs: Sequence[Config], words: Sequence[str]) -> int:
    """Run a sweep: measure its cells, deliver the measurements, and analyse them.

    Args:
        configs: one configuration for each cell, from `config.compose`.
        words: the words of the command line, which the report shows.

    Returns:
        The exit code: 0 for success; 1 if a cell or an analyzer failed, or if measurements wait for the store; 2 if
        all cells failed because of what the user asked for.

    """
    began = time.time()
    settings = configs[0]  # the settings of the whole sweep are equal in all cells
    name = _sweep_name(configs)
    store = Store(settings.tracking.uri, settings.tracking.experiment)
    analyzers: list[Analyzer] = []
    if settings.deliver:
        analyzers = _analyzers(settings)
        _deliver_earlier_ones(store)
    ended = _Outcomes(len(configs))
    cells = _resolve(configs, name, ended)
    if settings.deliver and not settings.force:
        _skip_measured(ended.remaining(cells), store, ended)
    remaining_cells = ended.remaining(cells)
    if remaining_cells and settings.deliver:
        with suppress(StoreAway):  # a store that is away gets the measurements later
            store.check_writable()
    if remaining_cells:
        folder = name or next(iter(remaining_cells.values())).fingerprint[:12]
        make_backend(settings, store, folder).run(remaining_cells, ended.add)
    if not ended.outcomes:  # launch.show=true
        return 0
    failures = [outcome for outcome in ended.outcomes.values() if isinstance(outcome, Failed)]
    if len(failures) == len(ended.outcomes):  # nothing to deliver or analyse
        return 2 if all(failure.bad_input for failure in failures) else 1
    waiting = _waiting_after_another_try(cells, store, ended) if settings.deliver else 0
    for note in ended.notes():
        say(note)
    problems = waiting + len(failures)
    if analyzers and len(configs) > 1 and not waiting:
        summary = _Summary(store, name, f"{program()} {shlex.join(words)}", began, tuple(ended.outcomes.values()))
        problems += summary.analyse(analyzers)
        _say_other_ks(settings.k.values, analyzers, name)
    return int(problems > 0)


@dataclass
class _Outcomes:
    """The outcomes of the cells that have ended. Each is printed when it is added.

    Attributes:
        total: the number of cells of the sweep.
        outcomes: the outcomes, by the number of the cell.

    """

    total: int
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)  # cause -> title of the first cell that failed for it

    def add(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of a cell, and print it."""
        self.outcomes[number] = outcome
        if self.total == 1 and isinstance(outcome, Failed):
            complain(outcome.message)
            return
        width = len(str(self.total))
        label = f"[{len(self.outcomes):>{width}}/{self.total}] " if self.total > 1 else ""
        if isinstance(outcome, Failed):
            first = self._failures.setdefault(failure_cause(outcome.title, outcome.message), outcome.title)
            line = outcome.line() if first == outcome.title else f"{outcome.title}  failed: same reason as {first}"
            complain(f"{label}{line}")
        else:
            say(f"{label}{outcome.line()}")

    def add_unknown(self, errors: Mapping[int, tuple[str, RbptrackError]]) -> None:
        """Keep the failures of cells that could not be resolved, and print one line for each cause.

        Args:
            errors: the title and the error of each cell, by the cell's number.

        """
        self.outcomes |= {number: Failed.from_error(title, error) for number, (title, error) in errors.items()}
        lines = failure_lines(list(errors.values())) if self.total > 1 else [str(error) for _, error in errors.values()]
        for line in lines:
            complain(line)

    def remaining(self, cells: Mapping[int, Cell]) -> dict[int, Cell]:
        """Return the cells that have not ended, by number.

        Args:
            cells: the cells to choose from, by number.

        """
        return {number: cell for number, cell in cells.items() if number not in self.outcomes}

    def notes(self) -> list[str]:
        """Return the notes on the measurements. Each note appears once, with the names of its models."""
        measured = [outcome for outcome in self.outcomes.values() if isinstance(outcome, Measured)]
        return note_lines((outcome.title, note) for outcome in measured for note in outcome.notes)


def _sweep_name(configs: Sequence[Config]) -> str:
    """Return the name of a sweep. The default is the time and a random suffix; for a single cell it is empty."""
    if configs[0].sweep or len(configs) == 1:
        return configs[0].sweep
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _deliver_earlier_ones(store: Store) -> None:
    """Deliver measurements that earlier commands and jobs left on this disk."""
    outbox = Outbox(store)
    if not outbox.waiting():
        return
    with suppress(StoreAway):
        for delivered in outbox.deliver_waiting():
            say(f"{delivered.name}: {delivered.error or 'delivered (an earlier command measured it)'}")


def _resolve(configs: Sequence[Config], name: str, ended: _Outcomes) -> dict[int, Cell]:
    """Resolve the configurations of a sweep to cells, by number. Cells that cannot be resolved end as failed."""
    resolver = Resolver()
    cells = {}
    errors = {}
    with spinner("looking up models and datasets"):
        for number, config in enumerate(configs):
            try:
                _check_device(config)
                cells[number] = resolver.resolve(replace(config, sweep=name))
            except RbptrackError as error:
                errors[number] = title(config.model.name, config.dataset.name), error
    ended.add_unknown(errors)
    return cells


def _check_device(config: Config) -> None:
    """Raise BadInput if a cell is to be measured in this process on a device that this machine does not have."""
    device = config.model.device
    if device not in ("auto", "cpu") and config.launch.kind is Launch.local:
        from rbptrack.models.device import torch_device  # imports torch, which takes seconds

        torch_device(device)


def _skip_measured(cells: Mapping[int, Cell], store: Store, ended: _Outcomes) -> None:
    """Add the outcome `Found` for each cell that the store has already. The store is asked once for all cells."""
    try:
        run_ids = store.find_all({cell.fingerprint for cell in cells.values()})
    except StoreAway as error:
        complain(f"{error}; the sweep goes on, and measurements wait on this disk")
        return
    for number, cell in cells.items():
        if cell.fingerprint in run_ids:
            ended.add(number, Found(cell.title, run_ids[cell.fingerprint]))


def _waiting_after_another_try(cells: Mapping[int, Cell], store: Store, ended: _Outcomes) -> int:
    """Try once more to deliver the measurements that wait, and return how many still wait."""
    waiting = {n: outcome for n, outcome in ended.outcomes.items() if isinstance(outcome, Measured) and outcome.waits}
    if not waiting:
        return 0
    with suppress(RbptrackError):
        Outbox(store).deliver_waiting()
        for number, outcome in list(waiting.items()):
            if run_id := store.find(cells[number].fingerprint):
                ended.outcomes[number] = replace(outcome, run_id=run_id, waits="")
                del waiting[number]
    for outcome in list(waiting.values())[:1]:
        complain(
            f"{outcome.waits}: {counted(len(waiting), 'finished measurement')} wait on this disk. "
            f"{program()} sync delivers them"
        )
    return len(waiting)


def _say_other_ks(ks: Sequence[int], analyzers: Sequence[Analyzer], sweep: str) -> None:
    """Print the command for the laws at the sweep's own k, if the table of the leading analyzer has other k."""
    lead = next((analyzer for analyzer in analyzers if analyzer.leads), None)
    shown = getattr(lead, "ks", ())
    own = [str(k) for k in ks if k not in shown]
    if lead is not None and own and not set(shown) <= set(ks):
        words = shlex.join(["analyze", lead.name, f"ks={','.join(own)}", "--sweep", sweep])
        say(f"for k = {listed(own)}: {program()} {words}")


@dataclass(frozen=True)
class _Summary:
    """Analyses the measurements of a sweep, and saves the results as a run.

    Attributes:
        store: the tracking store.
        name: the name of the sweep.
        command: the command line.
        began: when the sweep began, in seconds since 1970.
        outcomes: the outcomes of all cells.

    """

    store: Store
    name: str
    command: str
    began: float
    outcomes: Sequence[Outcome]

    def analyse(self, analyzers: Sequence[Analyzer]) -> int:
        """Run analyzers, and print and save their results. Returns the number of analyzers that failed."""
        from rbptrack import reporting
        from rbptrack.reporting.save import PAGE, description, page_files

        run_ids = self._run_ids()
        runs = self.store.runs(run_ids=run_ids)
        with spinner("analysing"):
            analyses = reporting.run_analyzers(runs, analyzers)
        say("")
        reporting.print_summary(analyses)
        reading = self._reading_page(runs)
        link = READING_FILE if reading else ""
        page = reporting.render(runs, analyses, command=self.command, reading=link, filters={"sweep": self.name})
        lead = next((analysis for analysis in analyses if analysis.leads), None)
        about = description(lead, self.command) if lead else markup.code_block(self.command)
        try:
            reporting.save_reports(
                self.store, runs, analyses, page, command=self.command, sweep=self.name, reading=reading
            )
            run_id = self._save(run_ids, description=about, files=page_files(page, reading))
            address = self.store.reports.page(run_id) or short_path(self.store.artifact(run_id, PAGE))
            say(f"report   {address}")
        except RbptrackError as error:  # the measurements are in the store, and `report` can repeat the analysis
            complain(f"the report is not logged: {error}")
        return sum(analysis.report is None for analysis in analyses)

    def _run_ids(self) -> list[str]:
        ended = [outcome for outcome in self.outcomes if isinstance(outcome, Measured | Found)]
        return [outcome.run_id for outcome in ended if outcome.run_id]

    def _reading_page(self, runs: Runs) -> str:
        """Return the reading page. If the measurements keep no texts, print a line and return an empty text."""
        from rbptrack import reporting

        try:
            return reporting.render_reading(runs, command=self.command)[0]
        except RbptrackError as error:
            say(f"no reading page: {error}")
            return ""

    def _save(self, run_ids: Sequence[str], *, description: str, files: Mapping[str, str]) -> str:
        """Save the sweep as a run, and the view of measurements in MLflow. Returns the ID of the run."""
        run_id = self.store.save(
            Kind.SWEEP,
            f"sweep {self.name}",
            sweep=self.name,
            description=description,
            metrics={
                "cells": len(self.outcomes),
                "cells_measured": sum(isinstance(outcome, Measured) for outcome in self.outcomes),
                "cells_failed": sum(isinstance(outcome, Failed) for outcome in self.outcomes),
                "seconds": time.time() - self.began,
            },
            files=files,
            covers=run_ids,
            began=self.began,
        )
        self.store.save_view()
        return run_id


def _analyzers(settings: Config) -> list[Analyzer]:
    """Return the analyzers that the configuration names, with default options."""
    if not settings.analyzers:
        return []
    plugins = find_plugins(ANALYZERS, settings.plugins.path)
    analyzers = [analyzer() for analyzer in plugins.load_matching(settings.analyzers)]
    for line in plugins.broken:
        complain(f"{line}; the other plugins are used", line.trace)
    return analyzers
