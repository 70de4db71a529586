"""Where a sweep's jobs run: on each GPU of this machine, or as one array of SLURM.

A job is our own command for one model. It measures, leaves finished records in their folders, and never touches the
tracking store. The process that launched it delivers them as they appear: any store will do, even a file on a laptop.
Whatever ends a job, the same command continues it.
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
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.types import Quote, QuotedString

from rbptrack.base.errors import BadInput
from rbptrack.base.escape import file_part
from rbptrack.base.files import write_whole
from rbptrack.base.words import counted, short_path
from rbptrack.config.compose import cell_words
from rbptrack.config.paths import home
from rbptrack.config.schema import Launch, LaunchConfig
from rbptrack.console.output import say
from rbptrack.sweep.resolve import PINS, Cell, Resolver

if TYPE_CHECKING:
    from rbptrack.sweep.loading import Loader

LARGE = 1e9
"""Parameters of a model from which a job has one dataset, so that several GPUs can share the work."""

_POLL_SECONDS = 1.0
_GPU = re.compile(r"\d+|(GPU|MIG)-.+")  # in CUDA_VISIBLE_DEVICES
_GIVEN_ANEW = ("launch", "sweep", "deliver")  # to each job, in place of the sweep's own
_PINS_FILE = "pins.json"
_SCRIPT_FILE = "job.sh"
_ARRAY_FILE = "array.txt"  # SLURM's number of it, and the fingerprints of its cells

# The limit's signal must not be TERM: a requeue and scancel send that, too, and a cancelled job would come back.
_SCRIPT = """\
#!/bin/bash
#SBATCH --array=0-{last}
#SBATCH --requeue --open-mode=append --signal=B:USR1@90
#SBATCH --output="{logs}/%A_%a.log"
{options}
cd {folder}
export {variable}={pins}
job=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {jobs})
end() {{ kill -TERM $child; wait $child; }}
trap 'end; exit 143' TERM  # cancelled, or requeued for another job
trap 'end; scontrol requeue ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID; exit 0' USR1  # its time is over
eval "exec $job" & child=$!
wait $child
"""


@dataclass(frozen=True)
class Jobs:
    """Jobs that are ready to run.

    Attributes:
        commands: of each, the one with the largest model first.
        folder: for their logs, SLURM's script, and what the launcher has pinned (`pins.json`).
        fingerprints: of the cells that they measure.

    """

    commands: list[list[str]]
    folder: Path
    fingerprints: tuple[str, ...]


def prepare_jobs(
    cells: Mapping[int, Cell], words: Sequence[str], resolver: Resolver, loader: Loader, *, sweep: str
) -> Jobs:
    """Group cells into jobs, and make their folder.

    Args:
        cells: what to measure, by the number of the cell in the sweep.
        words: of the whole sweep.
        resolver: that pinned the cells.
        loader: that counts the parameters of their models.
        sweep: its name; empty where it is one cell.

    Raises:
        BadInput: SLURM still measures some of these cells, or still reads that folder.

    """
    words_of_cells = cell_words(words)
    sized_cells = []
    for number, cell in cells.items():
        own_words = [word for word in words_of_cells[number] if _first_part_of_key(word) not in _GIVEN_ANEW]
        if sweep:
            own_words.append(f"sweep={QuotedString(sweep, Quote.single).with_quotes()}")
        sized_cells.append((own_words, loader.parameters(cell.weights).total))
    folder = home() / "launch" / file_part(sweep or next(iter(cells.values())).fingerprint[:12])
    fingerprints = tuple(cell.fingerprint for cell in cells.values())
    _refuse_while_an_array_runs(folder, fingerprints)
    folder.mkdir(parents=True, exist_ok=True)
    resolver.save_pins(folder / _PINS_FILE)
    return Jobs([job_command(job) for job in group_into_jobs(sized_cells)], folder, fingerprints)


def run_jobs(jobs: Jobs, settings: LaunchConfig, deliver: Callable[[], None]) -> None:
    """Run jobs to their end; `deliver` is called again and again meanwhile, to fetch what they have finished."""
    if settings.kind is Launch.gpus:
        run_on_gpus(jobs, settings.gpus or _all_gpus(), deliver)
    else:
        write_slurm_script(jobs, settings.options)
        _run_on_slurm(jobs, deliver)


def group_into_jobs(cells: Sequence[tuple[Sequence[str], int]]) -> list[list[str]]:
    """The words of each job, the largest first: all datasets of a model, or one of a large model.

    Args:
        cells: the words that compose each, and the parameters of its model.

    """
    datasets: dict[tuple[str, ...], list[str]] = {}  # of each job, by what tells jobs apart
    sizes: dict[tuple[str, ...], int] = {}
    for words, params in cells:
        dataset = next((word for word in words if word.startswith("dataset=")), "")
        key = (*(word for word in words if word != dataset), dataset if params >= LARGE else "")
        datasets.setdefault(key, []).append(dataset.partition("=")[2])
        sizes[key] = params
    jobs = []
    for key in sorted(datasets, key=lambda key: -sizes[key]):
        job = list(key[:-1])
        names = dict.fromkeys(filter(None, datasets[key]))
        if names:
            job.append(f"dataset={','.join(names)}")
        jobs.append(job)
    return jobs


def job_command(words: Sequence[str]) -> list[str]:
    """The command of a job: it measures here and delivers nothing."""
    return [sys.executable, "-m", "rbptrack", "measure", *words, "launch=local", "deliver=false"]


def write_slurm_script(jobs: Jobs, options: Mapping[str, str]) -> str:
    """Write the jobs' commands, and the script of an array that runs one each; returns the script.

    Args:
        jobs: what to run.
        options: sbatch's own, such as {"partition": "gpu", "gres": "gpu:1", "time": "4:00:00"}.

    """
    commands_file = jobs.folder / "jobs.txt"
    write_whole(commands_file, "".join(f"{shlex.join(command)}\n" for command in jobs.commands))
    script = _SCRIPT.format(
        last=len(jobs.commands) - 1,
        logs=str(jobs.folder).replace("%", "%%"),
        options="\n".join(f"#SBATCH --{name}={value}" for name, value in options.items()),
        folder=shlex.quote(str(Path.cwd())),
        variable=PINS,
        pins=shlex.quote(str(jobs.folder / _PINS_FILE)),
        jobs=shlex.quote(str(commands_file)),
    )
    write_whole(jobs.folder / _SCRIPT_FILE, script)
    return script


def run_on_gpus(jobs: Jobs, gpus: Sequence[str], deliver: Callable[[], None]) -> None:
    """Run jobs side by side, each on the next free GPU."""
    folder = jobs.folder
    say(f"{counted(len(jobs.commands), 'job')} on {counted(len(gpus), 'GPU')}; their output: {short_path(folder)}")
    waiting = deque(enumerate(jobs.commands))
    free = list(gpus)
    running: dict[subprocess.Popen[bytes], str] = {}
    try:
        while waiting or running:
            while waiting and free:
                number, command = waiting.popleft()
                gpu = free.pop(0)
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, PINS: str(folder / _PINS_FILE)}
                with (folder / f"{number}.log").open("ab") as output:
                    process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
                running[process] = gpu
            time.sleep(_POLL_SECONDS)
            for process in [process for process in running if process.poll() is not None]:
                free.append(running.pop(process))
            deliver()
    except BaseException:  # Ctrl-C, or SIGTERM as an exception
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        raise


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


def _run_on_slurm(jobs: Jobs, deliver: Callable[[], None]) -> None:
    """Submit an array and wait for its end. An interrupt leaves its jobs to SLURM; the same command delivers them.

    Raises:
        BadInput: SLURM is not here, or refuses the script.

    """
    script = jobs.folder / _SCRIPT_FILE
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
        write_whole(jobs.folder / _ARRAY_FILE, "\n".join([number, *jobs.fingerprints]))
        say(f"submitted as SLURM's array {number}; output: {short_path(script.parent)}")
        try:
            while array.poll() is None:
                time.sleep(_POLL_SECONDS)
                deliver()
        except BaseException:
            array.terminate()
            say(f"The jobs go on, and the same command delivers what they finish; scancel {number} ends them.")
            raise


def _first_part_of_key(word: str) -> str:
    """The first part of a word's key: `launch` of `++launch.options.gres=gpu:1`."""
    return word.partition("=")[0].lstrip("+~").partition(".")[0]


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
