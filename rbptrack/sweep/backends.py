"""Where the cells of a sweep are measured: in this process, on each GPU of this machine, or as one array of SLURM.

`Gpus` and `Slurm` write the cells into job files. `rbptrack job FILE` measures the cells of one file, leaves finished
records in their folders, and never touches the tracking store. The process that launched the jobs delivers the records
as they appear, so any store will do, even a file on a laptop. If a job ends early, run the command again to continue.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from rbptrack.base.errors import BadInput, RbptrackError, StoreAway
from rbptrack.base.escape import file_part
from rbptrack.base.files import write_whole
from rbptrack.base.words import counted, short_path
from rbptrack.config.paths import home
from rbptrack.config.schema import Config, Launch
from rbptrack.console.output import say
from rbptrack.console.progress import spinner
from rbptrack.sweep.cells import Cell, check_unchanged, read_job, write_job
from rbptrack.sweep.measuring import Failed, Found, Outcome, deliver_finished, failure_file, leave_failure, measure_cell
from rbptrack.tracking import Store

LARGE = 1e9
"""A model with at least this many parameters has one job per dataset. Several GPUs can then share its work."""

Finished = Callable[[int, Outcome], None]
"""Is told how a cell ended, by the cell's number."""

_POLL_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0  # for another command that delivers a job's result
_GPU = re.compile(r"\d+|(GPU|MIG)-.+")  # in CUDA_VISIBLE_DEVICES
_SCRIPT_FILE = "job.sh"
_ARRAY_FILE = "array.txt"  # SLURM's number of it, and the fingerprints of its cells

# The limit's signal must not be TERM: a requeue and scancel send that, too, and a cancelled job would come back.
_SCRIPT = """\
#!/bin/bash
#SBATCH --array=0-{last}
#SBATCH --requeue --open-mode=append --signal=B:USR1@90
#SBATCH --output="{logs}/%A_%a.log"
{options}
cd {working_folder}
end() {{ kill -TERM $child; wait $child; }}
trap 'end; exit 143' TERM  # cancelled, or requeued for another job
trap 'end; scontrol requeue ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID; exit 0' USR1  # its time is over
{python} -m rbptrack job {jobs}/$SLURM_ARRAY_TASK_ID.json & child=$!
wait $child
"""


class Backend(Protocol):
    """Measures the cells of a sweep somewhere."""

    def run(self, cells: Mapping[int, Cell], finished: Finished) -> None:
        """Measure cells; every one of them is finished when this returns.

        Args:
            cells: by their number in the sweep.
            finished: is called once for each cell.

        """


@dataclass(frozen=True)
class Local:
    """Measures one cell after the other in this process.

    Attributes:
        store: where measurements go.
        deliver: whether they are delivered to the store.

    """

    store: Store
    deliver: bool = True

    def run(self, cells: Mapping[int, Cell], finished: Finished) -> None:
        """Check every cell before the first is measured, and measure those that pass."""
        from rbptrack.sweep.load import Loader

        loader = Loader()
        for number, cell in _accepted(cells, loader.fit, finished).items():
            finished(number, measure_cell(cell, self.store, loader=loader, deliver=self.deliver))


@dataclass(frozen=True)
class Gpus:
    """Runs jobs side by side, each on the next free GPU of this machine.

    Attributes:
        store: where measurements go.
        folder: for job files and the jobs' output.
        names: of the GPUs, as in CUDA_VISIBLE_DEVICES; empty for all.
        deliver: whether measurements are delivered to the store.

    """

    store: Store
    folder: Path
    names: Sequence[str] = ()
    deliver: bool = True

    def run(self, cells: Mapping[int, Cell], finished: Finished) -> None:
        """Run jobs to their end. If this process is interrupted, so are they."""
        gpus = self.names or _all_gpus()
        jobs, sized = _jobs_of(cells, finished, self.folder, at_a_time=len(gpus))
        if not jobs:
            return
        collect = Collector(sized, self.store, self.folder, finished, deliver=self.deliver)
        commands = [job_command(job) for job in jobs]
        say(f"{counted(len(jobs), 'job')} on {counted(len(gpus), 'GPU')}; their output: {short_path(self.folder)}")
        run_side_by_side(commands, gpus, self.folder, collect)
        collect.end()


@dataclass(frozen=True)
class Slurm:
    """Submits jobs as one array of SLURM, and waits for its end.

    Attributes:
        store: where measurements go.
        folder: for job files, the script and the jobs' output; every node must see it.
        options: of sbatch, such as {"partition": "gpu", "gres": "gpu:1", "time": "4:00:00"}.
        show: print the script and submit nothing.
        deliver: whether measurements are delivered to the store.

    """

    store: Store
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    show: bool = False
    deliver: bool = True

    def run(self, cells: Mapping[int, Cell], finished: Finished) -> None:
        """Run jobs to their end. If this process is interrupted, the array goes on without it.

        Raises:
            BadInput: SLURM is not here, refuses the script, or still measures some of these cells.

        """
        fingerprints = [cell.fingerprint for cell in cells.values()]
        _refuse_while_an_array_runs(self.folder, fingerprints)
        jobs, accepted = _jobs_of(cells, finished, self.folder)
        if not jobs:
            return
        script = self._write_script(len(jobs))
        if self.show:
            say(script.read_text())
            return
        collect = Collector(accepted, self.store, self.folder, finished, deliver=self.deliver)
        submit_and_wait(script, fingerprints, collect)
        collect.end()

    def _write_script(self, jobs: int) -> Path:
        path = self.folder / _SCRIPT_FILE
        script = _SCRIPT.format(
            last=jobs - 1,
            logs=str(self.folder).replace("%", "%%"),
            options="\n".join(f"#SBATCH --{name}={value}" for name, value in self.options.items()),
            working_folder=shlex.quote(str(Path.cwd())),
            python=shlex.quote(sys.executable),
            jobs=shlex.quote(str(self.folder)),
        )
        write_whole(path, script)
        return path


def backend_of(settings: Config, store: Store, name: str) -> Backend:
    """The backend that a configuration asks for.

    Args:
        settings: of the whole sweep.
        store: where measurements go.
        name: of the folder of job files.

    """
    launch = settings.launch
    if launch.kind is Launch.local:
        return Local(store, deliver=settings.deliver)
    folder = home() / "launch" / file_part(name)
    if launch.kind is Launch.gpus:
        return Gpus(store, folder, launch.gpus, deliver=settings.deliver)
    return Slurm(store, folder, launch.options, launch.show, deliver=settings.deliver)


def run_job(path: Path) -> int:
    """Measure the cells of a job file and leave their finished folders; returns 1 if a cell failed.

    Raises:
        BadInput: the file cannot be read, or is not a job.

    """
    from rbptrack.sweep.load import Loader

    loader = Loader()
    outcomes: list[Outcome] = []
    for cell in read_job(path):
        store = Store(cell.config.tracking.uri, cell.config.tracking.experiment)
        try:
            check_unchanged(cell)
        except RbptrackError as error:
            outcome: Outcome = Failed.by(cell.title, error)
            leave_failure(cell, str(error))
        else:
            outcome = measure_cell(cell, store, loader=loader, deliver=False)
        say(outcome.line())
        outcomes.append(outcome)
    return int(any(isinstance(outcome, Failed) for outcome in outcomes))


class Collector:
    """Delivers what jobs have finished, and says how each cell ended.

    Args:
        cells: that jobs measure, by number.
        store: where measurements go.
        folder: of the jobs' output.
        finished: is told how each cell ended.
        deliver: whether measurements are delivered to the store.

    """

    def __init__(
        self, cells: Mapping[int, Cell], store: Store, folder: Path, finished: Finished, *, deliver: bool = True
    ) -> None:
        self._cells = dict(cells)
        self._store = store
        self._folder = folder
        self._finished = finished
        self._deliver = deliver
        self._before: set[str] | None = set()  # runs that were there before; None: the store was away
        for cell in cells.values():
            failure_file(cell).unlink(missing_ok=True)  # of an earlier job
        if deliver and any(cell.config.force for cell in cells.values()):
            found = self._found()
            self._before = None if found is None else set(found.values())

    def __call__(self, patience: float = 0) -> None:
        """Deliver what is finished now; `patience`: seconds to wait for another process that is delivering it."""
        for number, cell in list(self._cells.items()):
            outcome = deliver_finished(cell, self._store, deliver=self._deliver, patience=patience)
            if outcome is not None:
                self._end(number, outcome)

    def end(self) -> None:
        """Deliver the rest after the jobs have ended. A cell without a result failed, unless the store has it."""
        self(patience=_PATIENCE_SECONDS)
        if self._deliver and self._cells and self._before is not None:
            for number, run_id in (self._found() or {}).items():  # another command may have delivered them
                if run_id not in self._before:
                    self._end(number, Found(self._cells[number].title, run_id))
        for number, cell in list(self._cells.items()):
            self._end(number, Failed(cell.title, f"its job left no result; see {short_path(self._folder)}/*.log"))

    def _found(self) -> dict[int, str] | None:
        """The runs of the remaining cells that the store has; None if the store is away."""
        try:
            run_ids = self._store.find_all({cell.fingerprint for cell in self._cells.values()})
        except StoreAway:
            return None
        return {
            number: run_ids[cell.fingerprint] for number, cell in self._cells.items() if cell.fingerprint in run_ids
        }

    def _end(self, number: int, outcome: Outcome) -> None:
        del self._cells[number]
        self._finished(number, outcome)


def group_into_jobs(cells: Sequence[tuple[Cell, int]], *, at_a_time: int = 0) -> list[list[Cell]]:
    """The cells of each job, the job with the most parameters first.

    A large model has one job for each dataset. A small model has one job for all of its datasets. If the number of jobs
    that run at a time is known, all small models share that number of jobs, because starting a process and loading its
    libraries takes longer than measuring a small model.

    Args:
        cells: each with the parameters of its model.
        at_a_time: jobs that run side by side; 0: not known.

    """
    jobs: dict[str, list[Cell]] = {}
    sizes: dict[str, int] = {}
    small: dict[str, int] = {}  # parameters in all of each job of a small model
    for cell, params in cells:
        key = repr((cell.config.model, cell.config.reference))
        if params >= LARGE:
            key = f"{key} {cell.fingerprint}"
        else:
            small[key] = small.get(key, 0) + params
        jobs.setdefault(key, []).append(cell)
        sizes[key] = sizes.get(key, 0) + params
    if 0 < at_a_time < len(small):
        for key in sorted(small, key=lambda key: (-small[key], key)):
            shared = min(range(at_a_time), key=lambda number: (sizes.get(f"shared {number}", 0), number))
            jobs.setdefault(f"shared {shared}", []).extend(jobs.pop(key))
            sizes[f"shared {shared}"] = sizes.get(f"shared {shared}", 0) + small[key]
    return [jobs[key] for key in sorted(jobs, key=lambda key: (-sizes[key], key))]


def job_command(path: Path) -> list[str]:
    """The command that measures the cells of a job file."""
    return [sys.executable, "-m", "rbptrack", "job", str(path)]


def run_side_by_side(
    commands: Sequence[list[str]], gpus: Sequence[str], folder: Path, collect: Callable[[], None]
) -> None:
    """Run commands to their end, each on the next free GPU; an interrupt ends them.

    Args:
        commands: in the order in which they begin.
        gpus: names for CUDA_VISIBLE_DEVICES.
        folder: for their output: 0.log, 1.log, ...
        collect: is called again and again meanwhile.

    """
    waiting = deque(enumerate(commands))
    free = list(gpus)
    running: dict[subprocess.Popen[bytes], str] = {}
    try:
        while waiting or running:
            while waiting and free:
                number, command = waiting.popleft()
                gpu = free.pop(0)
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
                with (folder / f"{number}.log").open("ab") as output:
                    process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
                running[process] = gpu
            time.sleep(_POLL_SECONDS)
            for process in [process for process in running if process.poll() is not None]:
                free.append(running.pop(process))
            collect()
    except BaseException:  # Ctrl-C, or SIGTERM as an exception
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        raise


def submit_and_wait(script: Path, fingerprints: Sequence[str], collect: Callable[[], None]) -> None:
    """Submit an array and wait for its end. After an interrupt its jobs go on; running the command again delivers them.

    Args:
        script: of the array.
        fingerprints: of its cells.
        collect: is called again and again meanwhile.

    Raises:
        BadInput: SLURM is not here, or refuses the script.

    """
    try:
        array = subprocess.Popen(
            ["sbatch", "--parsable", "--wait", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is ours
        )
    except FileNotFoundError as error:
        raise BadInput("launch=slurm needs sbatch on this machine; launch.show=true prints the script") from error
    with array:
        assert array.stdout is not None  # noqa: S101
        assert array.stderr is not None  # noqa: S101
        number = array.stdout.readline().strip().partition(";")[0]
        if not number:
            raise BadInput(f"sbatch refuses {short_path(script)}: {array.stderr.read().strip()}")
        write_whole(script.parent / _ARRAY_FILE, "\n".join([number, *fingerprints]))
        say(f"submitted as SLURM's array {number}; output: {short_path(script.parent)}")
        try:
            while array.poll() is None:
                time.sleep(_POLL_SECONDS)
                collect()
        except BaseException:
            array.terminate()
            say(f"The jobs go on. Run the command again to deliver their results; scancel {number} ends them.")
            raise


def _accepted(cells: Mapping[int, Cell], check: Callable[[Cell], object], finished: Finished) -> dict[int, Cell]:
    """The cells that pass a check; the others have failed."""
    accepted = {}
    with spinner("checking models and tokenizers"):
        for number, cell in cells.items():
            try:
                check(cell)
            except RbptrackError as error:
                finished(number, Failed.by(cell.title, error))
            else:
                accepted[number] = cell
    return accepted


def _jobs_of(
    cells: Mapping[int, Cell], finished: Finished, folder: Path, *, at_a_time: int = 0
) -> tuple[list[Path], dict[int, Cell]]:
    """Write the job files of the cells whose models can be read; returns them and these cells."""
    from rbptrack.sweep.load import Loader

    loader = Loader()
    accepted = _accepted(cells, lambda cell: loader.parameters(cell.weights), finished)
    sized = [(cell, loader.parameters(cell.weights).total) for cell in accepted.values()]
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, job in enumerate(group_into_jobs(sized, at_a_time=at_a_time)):
        files.append(folder / f"{number}.json")
        write_job(files[-1], job)
    return files, accepted


def _refuse_while_an_array_runs(folder: Path, fingerprints: Collection[str]) -> None:
    """Refuse what an earlier array of SLURM is at work on: its tasks read this folder, or measure these cells."""
    for file in folder.parent.glob(f"*/{_ARRAY_FILE}"):
        number, *theirs = file.read_text().split()
        if file.parent != folder and set(theirs).isdisjoint(fingerprints):
            continue
        with suppress(FileNotFoundError):  # SLURM is not here
            command = ["squeue", "--noheader", f"--jobs={number}"]
            if subprocess.run(command, capture_output=True, check=False).stdout.strip():
                raise BadInput(
                    f"SLURM's array {number} still measures some of these cells; what it finishes is kept. "
                    f"Repeat the command when it has ended, or after scancel {number}"
                )


def _all_gpus() -> list[str]:
    """The GPUs that this process sees: numbers, UUIDs, names of MIG."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch

        gpus = [str(number) for number in range(torch.cuda.device_count())]
    else:  # CUDA reads up to the first that is none: -1, SLURM's NoDevFiles
        gpus = list(takewhile(_GPU.fullmatch, (name.strip() for name in visible.split(","))))
    if not gpus:
        raise BadInput("launch=gpus: this process sees no CUDA device; launch.gpus=0,1 names them")
    return gpus
