"""Measure the cells of a sweep as one SLURM array."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rbptrack.base.errors import BadInput
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import short_path
from rbptrack.console.output import print_text
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.cost import Planner
from rbptrack.sweep.jobs import OWNER_ONLY, Collector, ReportOutcome, wait_for_an_end, write_jobs
from rbptrack.sweep.speed import GPU_SPEED
from rbptrack.tracking import Store

_SLURM_SECONDS = 60.0  # how long to wait for an answer of SLURM
_MAX_ARRAY_SIZE = 1001  # SLURM's default, if it does not say its own
_SCRIPT_FILE = "job.sh"
_ARRAY_FILE = "array.txt"  # holds the number of the SLURM array and the fingerprints of its cells
# SLURM sends USR1 at the time limit. It cannot be TERM, which scancel sends: a cancelled job would be requeued.
_SCRIPT = """\
#!/bin/bash
#SBATCH --array=0-{last}
#SBATCH --requeue --open-mode=append --signal=B:USR1@90
#SBATCH --output="{logs}/%A_%a.log"
{options}
cd {working_folder}
end_child() {{ kill -TERM $child; wait $child; }}
trap 'end_child; exit 143' TERM  # cancelled, or requeued for another job
trap 'end_child; scontrol requeue ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID; exit 0' USR1  # its time is over
{python} -m rbptrack job {jobs}/$SLURM_ARRAY_TASK_ID.json & child=$!
wait $child
"""


@dataclass(frozen=True)
class Slurm:
    """Submits jobs as one SLURM array and waits for its end.

    Attributes:
        store: the tracking store.
        folder: the folder for job files, the script and the output of the jobs. All nodes must see it.
        options: options of sbatch, such as {"partition": "gpu", "gres": "gpu:1", "time": "4:00:00"}.
        show: whether to print the script instead of submitting it.

    """

    store: Store
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    show: bool = False

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Run jobs until all have ended. If this process is interrupted, the jobs go on.

        Raises:
            BadInput: sbatch is not installed or refuses the script, or an earlier array still measures some cells.

        """
        fingerprints = [cell.fingerprint for cell in cells.values()]
        _refuse_running_array(self.folder, fingerprints)
        # The expected times, by which cells are grouped into jobs, are those of a GPU if an option asks for one.
        uses_gpu = any("gpu" in f"{option}={value}" for option, value in self.options.items())
        planner = Planner(GPU_SPEED if uses_gpu else None)
        jobs, readable_cells = write_jobs(cells, report_outcome, self.folder, planner, max_jobs=_max_array_size())
        if not jobs:
            return
        script = self._write_script(len(jobs))
        if self.show:
            print_text(script.read_text())
            return
        collector = Collector(readable_cells, self.store, self.folder, report_outcome)
        submit_and_wait(script, fingerprints, collector.collect)
        collector.finish()

    def _write_script(self, num_jobs: int) -> Path:
        path = self.folder / _SCRIPT_FILE
        script = _SCRIPT.format(
            last=num_jobs - 1,
            logs=str(self.folder).replace("%", "%%"),
            options="\n".join(f"#SBATCH {_sbatch_option(name, value)}" for name, value in self.options.items()),
            working_folder=shlex.quote(str(Path.cwd())),
            python=shlex.quote(sys.executable),
            jobs=shlex.quote(str(self.folder)),
        )
        write_whole(path, script, OWNER_ONLY)
        return path


def submit_and_wait(script: Path, fingerprints: Sequence[str], collect: Callable[[], None]) -> None:
    """Submit a SLURM array and wait for its end.

    If this process is interrupted, the array goes on. The user runs the command again to deliver the results.

    Args:
        script: the script for sbatch.
        fingerprints: the fingerprints of the cells that the array measures.
        collect: called about once a second while the array runs.

    Raises:
        BadInput: sbatch is not installed, or refuses the script.

    """
    try:
        sbatch = subprocess.Popen(
            ["sbatch", "--parsable", "--wait", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must reach this process, not sbatch
        )
    except FileNotFoundError as error:
        raise BadInput(
            "launch=slurm: this machine has no sbatch. Run the command on a login node of SLURM; "
            "launch.show=true only prints the script"
        ) from error
    with sbatch:
        assert sbatch.stdout is not None  # noqa: S101
        assert sbatch.stderr is not None  # noqa: S101
        array_id = sbatch.stdout.readline().strip().partition(";")[0]
        if not array_id:
            raise BadInput(f"sbatch refuses {short_path(script)}: {sbatch.stderr.read().strip()}")
        write_whole(script.parent / _ARRAY_FILE, "\n".join([array_id, *fingerprints]))
        print_text(f"submitted as SLURM array {array_id}; output: {short_path(script.parent)}")
        try:
            while sbatch.poll() is None:
                wait_for_an_end([sbatch])
                collect()
        except BaseException:
            sbatch.terminate()
            print_text(f"The jobs go on. Run the command again to deliver their results; scancel {array_id} ends them.")
            raise


def _sbatch_option(name: str, value: str) -> str:
    """Return an option of sbatch for a script. sbatch reads quotes as a shell does."""
    if value.lower() in ("", "true"):  # such as --exclusive, which takes no value
        return f"--{name}"
    return shlex.quote(f"--{name}={value}")


def _max_array_size() -> int:
    """Return the largest number of tasks of a SLURM array."""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", _ask_slurm("scontrol", "show", "config").stdout, re.MULTILINE)
    return int(match[1]) if match else _MAX_ARRAY_SIZE


def _ask_slurm(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of SLURM. If it is not installed, it has no output. Raises BadInput if it takes too long."""
    try:
        return subprocess.run(command, capture_output=True, check=False, text=True, timeout=_SLURM_SECONDS)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 0, "", "")
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"launch=slurm: SLURM does not answer ({command[0]} took more than {_SLURM_SECONDS:.0f} s). Run this "
            "command again when SLURM answers"
        ) from error


def _refuse_running_array(folder: Path, fingerprints: Collection[str]) -> None:
    """Raise BadInput if an earlier SLURM array, which uses this folder or measures one of these cells, still runs."""
    for file in folder.parent.glob(f"*/{_ARRAY_FILE}"):
        array_id, *array_fingerprints = file.read_text().split()
        if file.parent != folder and set(array_fingerprints).isdisjoint(fingerprints):
            continue
        answer = _ask_slurm("squeue", "--noheader", f"--jobs={array_id}")
        if answer.returncode and "invalid job id" not in answer.stderr.lower():  # SLURM has forgotten an old array
            raise BadInput(
                f"launch=slurm: squeue does not say whether the SLURM array {array_id} still runs: "
                f"{' '.join(answer.stderr.split())}. Run the command again when SLURM answers"
            )
        if answer.stdout.strip():
            raise BadInput(
                f"the SLURM array {array_id} is still running, and it measures some of these cells or belongs to a "
                "sweep of this name. Its results are kept. Run the command again when it has ended, or after "
                f"scancel {array_id}"
            )
