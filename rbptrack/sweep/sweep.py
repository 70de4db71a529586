"""A sweep from its words to its report: resolve, measure what is not measured, deliver, analyse."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from rbptrack.analysis import Analyzer, Runs
from rbptrack.base import markup
from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.base.words import counted, short_path
from rbptrack.config.schema import Config, Launch
from rbptrack.console.output import complain, program, say
from rbptrack.console.progress import spinner
from rbptrack.discovery import ANALYZERS, find
from rbptrack.sweep.cell import (
    FAILED,
    FOUND,
    MEASURED,
    Outcome,
    deliver_finished,
    failed_outcome,
    failure_file,
    measure_cell,
)
from rbptrack.sweep.launch import Jobs, prepare_jobs, run_jobs, write_slurm_script
from rbptrack.sweep.resolve import Cell, Resolver
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.facts import title
from rbptrack.tracking.names import READING_FILE, Kind

_PATIENCE_SECONDS = 60.0  # for another command that delivers a job's result


def run(configs: Sequence[Config], words: Sequence[str]) -> int:
    """Measure every cell, deliver, and analyse the sweep.

    Args:
        configs: of the cells, as `config.compose` makes them of the words.
        words: of the command line.

    Returns:
        The exit code: 0; 1 if a cell or an analyzer failed or measurements wait for the store; 2 if nothing could be
        measured as asked.

    """
    return _Sweep(configs, words).run()


class _Sweep:
    """One command's cells, each with a number, and how they ended."""

    def __init__(self, configs: Sequence[Config], words: Sequence[str]) -> None:
        self.configs = configs
        self.words = words
        self.began = time.time()
        self.settings = configs[0]  # of the whole sweep
        self.several = len(configs) > 1
        self.name = self.settings.sweep
        if self.several and not self.name:
            self.name = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self.store = Store(self.settings.tracking.uri, self.settings.tracking.experiment)
        self.outbox = Outbox(self.store)
        self.resolver = Resolver()
        self.cells: dict[int, Cell] = {}
        self.outcomes: dict[int, Outcome] = {}

    def run(self) -> int:
        deliver = self.settings.deliver
        launch = self.settings.launch
        analyzers = _analyzers(self.settings) if deliver else []
        if deliver:
            self._deliver_earlier_ones()
        self._resolve()
        if deliver and not self.settings.force:
            self._look_for_measured()
        if deliver and self.unfinished:
            self._check_permission()
        if self.unfinished and launch.kind is Launch.local:
            self._measure_here()
        elif self.unfinished and (jobs := self._prepared_jobs()):
            if launch.kind is Launch.slurm and launch.show:
                say(write_slurm_script(jobs, launch.options))
                return 0
            self._measure_in_jobs(jobs)
        failures = [outcome for outcome in self.outcomes.values() if outcome.status == FAILED]
        if len(failures) == len(self.outcomes):  # nothing to deliver or analyse
            return 2 if all(outcome.bad_input for outcome in failures) else 1
        waiting = self._waiting_after_another_try() if deliver else 0
        problems = waiting + len(failures)
        for note in dict.fromkeys(note for outcome in self.outcomes.values() for note in outcome.notes):
            say(note)
        if analyzers and self.several and not waiting:
            problems += self._analyse(analyzers)
        return 1 if problems else 0

    @property
    def unfinished(self) -> dict[int, Cell]:
        """The cells without an outcome."""
        return {number: cell for number, cell in self.cells.items() if number not in self.outcomes}

    def _end(self, number: int, outcome: Outcome) -> None:
        """Take note of how a cell ended, and say it."""
        self.outcomes[number] = outcome
        if not self.several and outcome.status == FAILED:
            complain(outcome.message)
            return
        width = len(str(len(self.configs)))
        label = f"[{len(self.outcomes):>{width}}/{len(self.configs)}] " if self.several else ""
        print_line = complain if outcome.status == FAILED else say
        print_line(f"{label}{outcome.line()}")

    def _deliver_earlier_ones(self) -> None:
        """Deliver what earlier commands and jobs have finished."""
        if not self.outbox.waiting():
            return
        with suppress(StoreAway):
            for delivered in self.outbox.deliver_waiting():
                say(f"{delivered.name}: {delivered.error or 'delivered; it was measured before'}")

    def _resolve(self) -> None:
        with spinner("looking up models and datasets"):
            for number, config in enumerate(self.configs):
                try:
                    self._check_device(config.model.device)
                    self.cells[number] = self.resolver.resolve(replace(config, sweep=self.name))
                except RbptrackError as error:
                    self._end(number, failed_outcome(title(config.model.name, config.dataset.name), error))

    def _check_device(self, device: str) -> None:
        """Refuse a device that this machine does not have, before it is asked whether the cell is measured already."""
        if device not in ("auto", "cpu") and self.settings.launch.kind is Launch.local:
            from rbptrack.models.device import device_of  # torch

            device_of(device)

    def _look_for_measured(self, old: Mapping[int, str] = MappingProxyType({})) -> None:
        """Ask the store once for the cells that have no outcome; `old` runs do not count."""
        for number, run_id in (self._find_unfinished() or {}).items():
            if run_id != old.get(number):
                self._end(number, Outcome(self.cells[number].title, FOUND, run_id))

    def _find_unfinished(self) -> dict[int, str] | None:
        """The runs in the store of cells without an outcome; None, and a line that says so, where it is away."""
        cells = self.unfinished
        try:
            run_ids = self.store.find_all({cell.fingerprint for cell in cells.values()})
        except StoreAway as error:
            complain(f"{error}; the sweep goes on, and measurements wait on this disk")
            return None
        return {number: run_ids[cell.fingerprint] for number, cell in cells.items() if cell.fingerprint in run_ids}

    def _check_permission(self) -> None:
        """Refuse to measure if the store would refuse the measurements. One that is away gets them later."""
        with suppress(StoreAway):
            self.store.check_writable()

    def _measure_here(self) -> None:
        """Check every cell before the first is measured, and measure one after the other."""
        from rbptrack.sweep.loading import Loader

        loader = Loader()
        self._check(loader.fit)
        for number, cell in self.unfinished.items():
            self._end(number, measure_cell(cell, self.store, loader=loader, deliver=self.settings.deliver))

    def _check(self, check: Callable[[Cell], object]) -> None:
        """End the cells that a check refuses."""
        with spinner("checking models and tokenizers"):
            for number, cell in self.unfinished.items():
                try:
                    check(cell)
                except RbptrackError as error:
                    self._end(number, failed_outcome(cell.title, error))

    def _prepared_jobs(self) -> Jobs | None:
        """Jobs for the cells without an outcome, if there are any whose model can be read."""
        from rbptrack.sweep.loading import Loader

        loader = Loader()
        self._check(lambda cell: loader.parameters(cell.weights))
        if not self.unfinished:
            return None
        return prepare_jobs(self.unfinished, self.words, self.resolver, loader, sweep=self.name)

    def _measure_in_jobs(self, jobs: Jobs) -> None:
        """Let jobs measure the cells, and deliver each as it is finished."""
        for cell in self.unfinished.values():
            failure_file(cell).unlink(missing_ok=True)  # of an earlier job
        deliver = self.settings.deliver
        old = self._find_unfinished() if deliver and self.settings.force else {}
        run_jobs(jobs, self.settings.launch, self._deliver_from_jobs)
        self._deliver_from_jobs(patience=_PATIENCE_SECONDS)
        if deliver and self.unfinished and old is not None:  # another command may have delivered them
            self._look_for_measured(old)
        for number, cell in self.unfinished.items():
            message = f"its job left no result; see {short_path(jobs.folder)}/*.log"
            self._end(number, Outcome(cell.title, FAILED, message=message))

    def _deliver_from_jobs(self, patience: float = 0) -> None:
        for number, cell in self.unfinished.items():
            if outcome := deliver_finished(cell, self.store, deliver=self.settings.deliver, patience=patience):
                self._end(number, outcome)

    def _waiting_after_another_try(self) -> int:
        """Try once more to deliver what waits; returns how many measurements still do."""
        waiting = {number: outcome for number, outcome in self.outcomes.items() if outcome.waits}
        if not waiting:
            return 0
        with suppress(RbptrackError):
            self.outbox.deliver_waiting()
            for number, outcome in waiting.items():
                if run_id := self.store.find(self.cells[number].fingerprint):
                    outcome.run_id = run_id
                    outcome.waits = ""
        reasons = [outcome.waits for outcome in waiting.values() if outcome.waits]
        if reasons:
            complain(
                f"{reasons[0]}: {counted(len(reasons), 'finished measurement')} wait on this disk. "
                f"{program()} sync delivers them"
            )
        return len(reasons)

    def _analyse(self, analyzers: Sequence[Analyzer]) -> int:
        """Analyse what the sweep measured or found, and save it as a run; returns how many analyzers failed."""
        from rbptrack import reporting
        from rbptrack.reporting.save import PAGE, description, pages

        command = f"{program()} {shlex.join(self.words)}"
        run_ids = [outcome.run_id for outcome in self.outcomes.values() if outcome.run_id]
        runs = self.store.runs(run_ids=run_ids)
        with spinner("analysing"):
            analyses = reporting.analyse(runs, analyzers)
        say("")
        reporting.show_summary(analyses)
        reading = self._reading_page(runs, command)
        page = reporting.render(runs, analyses, command=command, reading=READING_FILE if reading else "")
        lead = next((analysis for analysis in analyses if analysis.leads), None)
        about = description(lead, command) if lead else markup.fenced(command)
        try:
            reporting.keep(self.store, runs, analyses, page, command=command, sweep=self.name, reading=reading)
            run_id = self._save(run_ids, description=about, files=pages(page, reading))
            address = self.store.reports.page(run_id) or short_path(self.store.artifact(run_id, PAGE))
            say(f"report   {address}")
        except RbptrackError as error:  # the measurements are in the store, and `report` makes the page again
            complain(f"the report is not logged: {error}")
        return sum(analysis.report is None for analysis in analyses)

    def _reading_page(self, runs: Runs, command: str) -> str:
        """The reading page of the sweep; empty, and a line that says why, if its measurements keep no texts."""
        from rbptrack import reporting

        try:
            return reporting.render_reading(runs, command=command)[0]
        except RbptrackError as error:
            say(f"no reading page: {error}")
            return ""

    def _save(self, run_ids: Sequence[str], *, description: str, files: Mapping[str, str]) -> str:
        """Save the sweep as a run of its own, and the view of its measurements in MLflow; returns the run's id."""
        ended = [outcome.status for outcome in self.outcomes.values()]
        run_id = self.store.save(
            Kind.SWEEP,
            f"sweep {self.name}",
            sweep=self.name,
            description=description,
            metrics={
                "cells": len(self.configs),
                "cells_measured": ended.count(MEASURED),
                "cells_failed": ended.count(FAILED),
                "seconds": time.time() - self.began,
            },
            files=files,
            covers=run_ids,
            began=self.began,
        )
        self.store.save_view()
        return run_id


def _analyzers(settings: Config) -> list[Analyzer]:
    """The analyzers that the config names, with their own options' defaults."""
    if not settings.analyzers:
        return []
    plugins = find(ANALYZERS, settings.plugins.path)
    analyzers = [analyzer() for analyzer in plugins.chosen(settings.analyzers)]
    for line in plugins.broken:
        complain(f"{line}; the others run", line.trace)
    return analyzers
