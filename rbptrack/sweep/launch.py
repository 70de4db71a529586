"""A sweep from its first job to its summary: Hydra runs the jobs, here or through a launcher, and we collect them."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path

from rbptrack import interrupts
from rbptrack.analysis import counted
from rbptrack.analysis.contract import Analyzer
from rbptrack.config.compose import Request
from rbptrack.config.paths import home
from rbptrack.config.patterns import as_value
from rbptrack.config.schema import Config, SweepConfig, TrackingConfig, Where
from rbptrack.console import complain, program, say, short_path
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.redaction import without_password
from rbptrack.sweep import here, jobs, launchers, work
from rbptrack.sweep.interrupted import tell_what_is_kept
from rbptrack.sweep.outcome import Outcome, collect, summarise
from rbptrack.sweep.watch import Watch
from rbptrack.tracking import Connection, Reader, outbox, resolve_uri

_ROUNDS = 2  # of a launcher; the second takes what was lost in the first


@dataclass(frozen=True)
class Sweep:
    """A sweep that is about to run; a single cell is one without analyses.

    Attributes:
        request: the command line.
        settings: what holds for every cell.
        cells: the config of each.
        analyzers: what runs over the measurements at the end.
        ks: the k that the terminal shows.
        id: made of date and time; the sweep's name, unless the settings give one.
        began: seconds since 1970.

    """

    request: Request
    settings: SweepConfig
    cells: Sequence[Config]
    analyzers: Sequence[Analyzer]
    ks: Sequence[int]
    id: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
    began: float = field(default_factory=time.time)

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
            models, datasets = ({c.model.name for c in self.cells}, {c.dataset.name for c in self.cells})
            sides = f"{counted(len(models), 'model')} x {counted(len(datasets), 'dataset')}"
            say(f"measuring {counted(len(self.cells), 'cell')}: {sides}")
        if self.settings.shards > 1 and self.settings.launch.where is Where.local:
            say("the shards of a cell run here, one after the other; launch=gpus, ray or slurm runs them side by side")
        outbox.repair_and_deliver(self.settings.tracking, tell=say)
        # Not above: a cluster's job, which imports this module, needs no analyzers. Not at the sweep's end: after hours
        # of measuring, the code on the disk may be another.
        import_module("rbptrack.sweep.analyses")
        launched = self.settings.launch.where is not Where.local
        interrupted = self._launch_jobs() if launched else self._run_jobs()
        outcomes = collect(self.folder, self.cells, all_ended=launched and not interrupted)
        if not launched and not interrupted and not any(o.run_id or o.status != "failed" for o in outcomes):
            return _nothing_ran(outcomes, self.folder)
        if not interrupted:
            self._deliver_waiting(outcomes)
        summarise(outcomes, total=len(self.cells), ks=self.ks)
        if interrupted:
            tell_what_is_kept(self.cells, outcomes, folder=self.folder, command=self._command)
            return interrupted
        if waiting := sum(bool(o.waits) for o in outcomes):
            complain(
                f"the tracking store is away: {waiting} measurements wait, complete, in "
                f"{short_path(str(outbox.folder()))}. Once it answers: python -m rbptrack sync, then analyze"
            )
            return 1
        failed = sum(o.status == "failed" for o in outcomes) + (len(self.cells) - len(outcomes))
        try:
            failed += self._analyze(outcomes)
        except KeyboardInterrupt:
            return interrupts.INTERRUPTED
        say("compare  python -m rbptrack ui")
        return 1 if failed else 0

    @property
    def _command(self) -> str:
        """The command line as it was given, for a shell."""
        return f"{program()} {shlex.join(self.request.typed)}".strip()

    def _deliver_waiting(self, outcomes: Sequence[Outcome]) -> None:
        """Deliver what waited; an outcome whose measurement has arrived, by whomever delivered, waits no more."""
        if not any(o.waits for o in outcomes):
            return
        delivered = outbox.repair_and_deliver(self.settings.tracking, tell=say).runs
        connection = Connection(self.settings.tracking)
        for outcome in outcomes:
            if outcome.waits and outbox.find(connection, outcome.fingerprint) is None:
                with suppress(RbptrackError):
                    found = delivered.get(outcome.fingerprint) or Reader(connection).find(outcome.fingerprint)
                    outcome.run_id, outcome.waits = (found, "") if found else (outcome.run_id, outcome.waits)

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
            example = "python -m rbptrack -m 'model=nano/*' dataset=stdlib,pydocs"
            say(f"sweep several sizes for a law, for example: {example}")
        return 0

    def _launch_jobs(self) -> int:
        """Let a preset's launcher run the cells elsewhere; returns 0, or the exit code of an interrupt.

        A launcher gives up when one of its jobs is lost. The others go on: they are waited for, and what is missing
        then is launched once more.
        """
        launch = self.settings.launch
        cells = self._own_cells
        todo = jobs.grouped(cells, launch.group)
        found = launchers.check(launch, len(todo), [cell.model for cell in cells])
        say(f"{found}; what they print: {short_path(str(self.folder))}/job-*.log")
        why = partial(launchers.reason, launch, name=self._queue_name)
        if launch.where is not Where.gpus and resolve_uri(self.settings.tracking).startswith("sqlite:"):
            say(
                "the tracking store is a SQLite file, which only one machine may write: for jobs on several, start a "
                "server and export MLFLOW_TRACKING_URI=http://HOST:5000 (docs/cluster.md)"
            )
        with Watch(self.folder, len(cells), why) as watch:
            for number in range(_ROUNDS):
                if number:
                    complain(f"not ended: {counted(len(todo), 'job')}; launched once more")
                if code := self._launch_round(cells, todo, watch):
                    return code
                todo = [left for job in todo if (left := [t for t in job if not t.ended(self.folder)])]
                if not todo:
                    break
        return 0

    def _launch_round(self, cells: Sequence[Config], todo: Sequence[Sequence[jobs.Task]], watch: Watch) -> int:
        """Launch jobs of some cells and wait until they have ended; returns 0, or the exit code of an interrupt."""
        launch, name = self.settings.launch, self._queue_name
        files = jobs.write(self.folder, cells, todo)
        watch.expect(files, todo)
        extra = [
            f"hydra.sweep.dir={as_value(f'{self.folder}/jobs')}",
            "hydra.sweep.subdir=${hydra.job.num}",
            "launch.job=" + ",".join(as_value(str(file)) for file in files),
            *launchers.overrides(launch, name=name),
        ]
        words = ["--multirun", *(w for w in self.request.words if w not in ("-m", "--multirun"))]
        own = [o for o in self.request.overrides if o.lstrip("+~").startswith("hydra.")]
        one = replace(self.request, words=words, overrides=own)
        try:
            launchers.prepare(launch, name=name)
            code = _handed(partial(one.launch, work.launched_job, extra=extra))
        except Exception as error:
            code = interrupts.received()
            refused = launchers.refused(launch, error)
            if not code and refused and not any(self.folder.glob("job-*.log")):  # none of any round has begun
                _leave_nothing(self.folder)
                raise BadInput(refused) from error
            if not code:
                complain(refused or launchers.lost(launch, error))
            if os.environ.get("HYDRA_FULL_ERROR"):
                traceback.print_exception(error)
        if not code and not all(task.ended(self.folder) for job in todo for task in job):
            code = _handed(partial(launchers.wait_for_others, launch, name=name, tell=complain))
        if code == interrupts.INTERRUPTED:
            launchers.cancel(launch, name=name, tell=complain)
        elif code and (more := launchers.goes_on(launch)):  # a terminal was closed, say: nobody wanted the jobs to end
            say(more)
        return code

    @property
    def _queue_name(self) -> str:
        """What its jobs are called in a cluster's queue."""
        return f"rbptrack-{self.id}"

    @property
    def _own_cells(self) -> list[Config]:
        """The cells with the absolute address of the store, and the sweep that they belong to."""
        sweep = self.name if self.request.multirun else self.settings.sweep
        return [replace(cell, tracking=self._tracking, sweep=sweep) for cell in self.cells]

    @property
    def _tracking(self) -> TrackingConfig:
        """The store as jobs elsewhere are told of it: its absolute URI; a password stays in the environment."""
        uri = resolve_uri(self.settings.tracking)
        return replace(self.settings.tracking, uri=uri if without_password(uri) == uri else "")

    def _run_jobs(self) -> int:
        """Measure the cells here, or hand them to Hydra where it has a launcher of its own.

        Returns:
            0, or the exit code of an interrupt that stopped them.

        """
        if here.possible(self.request):
            every = self.request.jobs()
            words = [w for w in self.request.words if w not in ("-m", "--multirun")]
            extra = [f"hydra.run.dir={as_value(str(self.folder))}", "hydra.output_subdir=null"]
            one = replace(self.request, words=words, overrides=every[0])
            every_cell = here.job(self._own_cells, every, self.folder)
            return _handed(partial(one.hand_to_hydra, every_cell, extra=extra))
        os.environ[work.CELLS] = str(len(self.cells))
        uri = resolve_uri(self.settings.tracking)
        extra = [
            f"hydra.run.dir={as_value(f'{self.folder}/0')}",
            f"hydra.sweep.dir={as_value(str(self.folder))}",
            "hydra.sweep.subdir=${hydra.job.num}",
            # Workers get the absolute URI; one that holds a password stays in the environment, never in a file.
            *([f"tracking.uri={as_value(uri)}"] if without_password(uri) == uri else []),
            *([f"sweep={self.id}"] if self.request.multirun and not self.settings.sweep else []),
        ]
        return _handed(partial(self.request.hand_to_hydra, work.job, extra=extra))


def _handed(run: Callable[[], None]) -> int:
    """Let Hydra run its jobs; returns 0, or the exit code of an interrupt."""
    try:
        run()
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    except SystemExit:  # also how Hydra ends after a job that failed, which the outcomes say better
        pass
    return interrupts.received()


def _nothing_ran(outcomes: Sequence[Outcome], folder: Path) -> int:
    """No run began: say why once, and leave nothing behind but what was there before."""
    for message in dict.fromkeys(o.message for o in outcomes):
        complain(message)
    _leave_nothing(folder)
    return 2 if outcomes and all(o.bad_input for o in outcomes) else 1


def _leave_nothing(folder: Path) -> None:
    """Remove the folder of a sweep of which nothing ran, and those around it that are empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    for emptied in (folder.parent, home() / "partial", home()):
        with suppress(OSError):  # not there, or not empty
            emptied.rmdir()
