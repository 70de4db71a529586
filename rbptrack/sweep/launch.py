"""A sweep from its first job to its summary."""

from __future__ import annotations

import secrets
import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.executors import Executor
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.process import INTERRUPTED
from rbptrack.base.words import counted, short_path
from rbptrack.config.paths import home
from rbptrack.config.patterns import as_value
from rbptrack.config.request import Request
from rbptrack.config.schema import Config, SweepConfig, TrackingConfig
from rbptrack.console.output import complain, program, say
from rbptrack.console.progress import spinner
from rbptrack.sweep import elsewhere, hydra_jobs, measured_before
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.drive import until_interrupted
from rbptrack.sweep.here import measure_here
from rbptrack.sweep.interrupted import tell_what_is_kept
from rbptrack.sweep.outcome import Outcome, announce, summarise
from rbptrack.sweep.reports import Inbox
from rbptrack.sweep.resolved import Resolved
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task, shards
from rbptrack.sweep.work import label, logged
from rbptrack.tracking import outbox
from rbptrack.tracking.store import Store
from rbptrack.tracking.uri import resolve_uri


@dataclass
class Sweep:
    """A sweep that is about to run; a single cell is one without analyses."""

    request: Request
    settings: SweepConfig
    cells: Sequence[Config]
    resolved: Sequence[Resolved]
    analyzers: Sequence[Analyzer]  # run over the measurements at the end
    ks: Sequence[int]  # the k that the terminal shows
    id: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
    began: float = field(default_factory=time.time)  # seconds since 1970
    results: Results = field(default_factory=Results)

    @property
    def folder(self) -> Path:
        """The folder of its jobs."""
        return home() / "hydra" / self.id

    @property
    def name(self) -> str:
        """What ties its runs together in the store."""
        return self.settings.sweep or self.id

    def run(self) -> int:
        """Measure every cell, summarise and analyse.

        Returns:
            The exit code: 0; 1 if a cell or an analyzer failed, or measurements wait for the store; 2 if no cell could
            be measured as asked; 130 or 143 for an interrupt.

        """
        if self.request.multirun:
            models = {c.model.name for c in self.cells}
            datasets = {c.dataset.name for c in self.cells}
            sides = f"{counted(len(models), 'model')} x {counted(len(datasets), 'dataset')}"
            say(f"measuring {counted(len(self.cells), 'cell')}: {sides}")
        if self.settings.shards not in (1, "auto") and self._local:
            say("the shards of a cell run here, one after the other; launch=NAME runs them side by side")
        outbox.repair_and_deliver(self.settings.tracking, tell=say)
        # Not above: a cluster's job, which imports this module, needs no analyzers. Not at the sweep's end: after hours
        # of measuring, the code on the disk may be another.
        import_module("rbptrack.sweep.analyses")
        interrupted = self._measure()
        outcomes = self.results.collect(self.cells)
        if self._local and not interrupted and not any(o.run_id or o.status != "failed" for o in outcomes):
            return _nothing_ran(outcomes, self.folder)
        if not interrupted:
            self._deliver_waiting(outcomes)
        if interrupted:
            tell_what_is_kept(self.cells, self.resolved, self.results, self._command)
            return interrupted
        summarise(outcomes, total=len(self.cells), ks=self.ks)
        if waiting := sum(bool(o.waits) for o in outcomes):
            complain(
                f"the tracking store is away: {waiting} measurements wait, complete, in "
                f"{short_path(str(outbox.folder()))}. Once it answers: {program()} sync, then analyze"
            )
            return 1
        failed = sum(o.status == "failed" for o in outcomes) + (len(self.cells) - len(outcomes))
        try:
            failed += self._analyze(outcomes)
        except KeyboardInterrupt:
            return INTERRUPTED
        say(f"compare  {program()} ui")
        return 1 if failed else 0

    @property
    def _command(self) -> str:
        return f"{program()} {shlex.join(self.request.typed)}".strip()

    def _deliver_waiting(self, outcomes: Sequence[Outcome]) -> None:
        """Deliver what waited; an outcome whose measurement has arrived, by whomever delivered, waits no more."""
        if not any(o.waits for o in outcomes):
            return
        delivered = outbox.repair_and_deliver(self.settings.tracking, tell=say).runs
        store = Store(self.settings.tracking)
        for outcome in outcomes:
            if outcome.waits and outbox.find(store, outcome.fingerprint) is None:
                with suppress(RbptrackError):
                    run_id = delivered.get(outcome.fingerprint) or store.reader.find(outcome.fingerprint)
                    outcome.run_id, outcome.waits = (run_id, "") if run_id else (outcome.run_id, outcome.waits)

    def _analyze(self, outcomes: Sequence[Outcome]) -> int:
        """Run the analyzers over a sweep; returns how many failed."""
        if self.request.multirun:
            from rbptrack.sweep.analyses import analyze_sweep

            return analyze_sweep(
                self.settings,
                self.name,
                outcomes,
                analyzers=self.analyzers,
                overrides=self.request.overrides,
                began=self.began,
            )
        if outcomes and outcomes[0].status == "measured":
            example = f"{program()} -m 'model=nano/*' dataset=stdlib,pydocs"
            say(f"sweep several sizes for a law, for example: {example}")
        return 0

    def _measure(self) -> int:
        """Have every cell measured, here or elsewhere; returns 0, or the exit code of an interrupt."""
        by_hydra = self._local and hydra_jobs.wanted(self.request)
        if not by_hydra:
            self._skip_known()
            if len(self.results.cells) == len(self.cells):
                return 0
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with logged(self.folder / "rbptrack.log"):
                if not self._local:
                    code = self._measure_elsewhere()
                else:
                    code = until_interrupted(self._measure_by_hydra if by_hydra else self._measure_here)
        except BadInput:
            _leave_nothing(self.folder)
            raise
        with suppress(OSError):  # it holds something
            self.folder.rmdir()
        return code

    def _measure_here(self) -> None:
        self.cells = [replace(cell, shards=len(shards(cell))) for cell in self._own_cells]
        tasks = [Task(number, shard, cell) for number, cell in enumerate(self.cells) for shard in shards(cell)]
        left = [task for task in tasks if not self.results.knows_end_of(task)]
        measure_here(left, self.results, self.resolved, total=len(self.cells))

    def _measure_by_hydra(self) -> None:
        extra = [
            f"hydra.run.dir={as_value(f'{self.folder}/0')}",
            f"hydra.sweep.dir={as_value(str(self.folder))}",
            "hydra.sweep.subdir=${hydra.job.num}",
            f"tracking.uri={as_value(self._tracking.uri)}",
            *([f"sweep={self.id}"] if self.request.multirun and not self.settings.sweep else []),
        ]
        inbox = Inbox(self.results, total=len(self.cells), aloud=False)
        hydra_jobs.run(self.request, inbox, self.folder, total=len(self.cells), extra=extra)

    def _measure_elsewhere(self) -> int:
        executor: Executor = self.settings.launch
        self.cells, drive = elsewhere.prepared(
            executor, self._own_cells, self.resolved, self.results, folder=self.folder.absolute(), sweep=self.id
        )
        if self._tracking.uri.startswith("sqlite:") and not executor.one_machine:
            say(
                "the tracking store is a SQLite file, which only one machine may write: for jobs on several, start a "
                "server and export MLFLOW_TRACKING_URI=http://HOST:5000 (docs/cluster.md)"
            )
        return drive.run(total=len(self.cells))

    def _skip_known(self) -> None:
        store = Store(self.settings.tracking)
        total = len(self.cells)
        cells = [(r, Delivery.of(c, r, store)) for c, r in zip(self._own_cells, self.resolved, strict=True)]
        with spinner("looking for finished measurements"):
            outcomes = measured_before.outcomes_of(cells)
        for number, outcome in outcomes.items():
            announce(outcome, label(number, total))
            self.results.take(number, 0, outcome, whole=True)

    @property
    def _local(self) -> bool:
        """Whether this process measures, and no executor's jobs."""
        return self.settings.launch is None

    @property
    def _own_cells(self) -> list[Config]:
        """The cells with the absolute address of the store, and the sweep that they belong to."""
        sweep = self.name if self.request.multirun else self.settings.sweep
        tracking = self._tracking
        return [replace(cell, tracking=tracking, sweep=sweep) for cell in self.cells]

    @property
    def _tracking(self) -> TrackingConfig:
        """Tracking config with an absolute URI, for remote jobs."""
        return replace(self.settings.tracking, uri=resolve_uri(self.settings.tracking))


def _nothing_ran(outcomes: Sequence[Outcome], folder: Path) -> int:
    """Say once why no run began, and leave the folder as it was."""
    for message in dict.fromkeys(o.message for o in outcomes):
        complain(message)
    _leave_nothing(folder)
    return 2 if outcomes and all(o.bad_input for o in outcomes) else 1


def _leave_nothing(folder: Path) -> None:
    """Remove the folder of a sweep in which nothing ran, and folders above it that are empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    for emptied in (folder.parent, home() / "partial", home()):
        with suppress(OSError):  # not there, or not empty
            emptied.rmdir()
