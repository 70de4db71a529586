"""A sweep's job on whatever machine, `python -m rbptrack.sweep.job CELLS NUMBER`: does tasks until none is left.

What it prints goes into its log, and what becomes of its tasks into its report, both beside the file of cells.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rbptrack.base.process import collect_rarely, install_signals

_GOT_ON = 75  # exit code of a job that received the signal to end, and had finished something since it began

if TYPE_CHECKING:
    from rbptrack.sweep.resolved import Resolved
    from rbptrack.sweep.tasks import Task, Tasks


def main(arguments: Sequence[str]) -> int:
    """Do a job; returns exit code 0, also where cells failed, which the report tells."""
    collect_rarely()
    install_signals()
    cells = Path(arguments[0])
    number = int(arguments[1])
    log = cells.with_name(f"job-{number}.log")
    with log.open("a", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        _pull(cells, number, log)
    return 0


def _pull(path: Path, number: int, log: Path) -> None:
    from rbptrack.sweep.reports import Teller
    from rbptrack.sweep.tasks import Pull, Tasks, left_for

    teller = Teller(log.with_suffix(".json"))
    if left_for(path, number):  # else torch is not imported only to find that others have done all
        from rbptrack.base.files import temporary_files
        from rbptrack.base.secrets import guard
        from rbptrack.sweep.work import logged, work

        with temporary_files(), logged(log):
            guard()
            try:
                tasks = Tasks.read(path)
                os.chdir(tasks.folder)
                if 0 < tasks.gpus < 1:
                    _share_gpu(tasks.gpus)
                work(Pull(path, number).tasks(list(tasks)), teller, _resolving(tasks), total=tasks.total)
            except BaseException as error:
                teller.rest()
                if isinstance(error, SystemExit) and teller.got_on:
                    raise SystemExit(_GOT_ON) from error
                raise
    teller.close()


def _share_gpu(share: float) -> None:
    """Take no more of the GPU's memory than this job was given: others are at work on it."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


def _resolving(tasks: Tasks) -> Callable[[Task], Resolved]:
    """Resolve tasks as the sweep did; what its names stood for then, they stand for here."""
    from rbptrack.base.errors import BadInput
    from rbptrack.sweep.resolve import Resolver

    resolver = Resolver(tasks.pinned)

    def resolve(task: Task) -> Resolved:
        resolved = resolver.resolve(task.config)
        if resolved.fingerprint != tasks.cells[task.number].fingerprint:
            raise BadInput(
                "its model, its texts or rbptrack have changed since the sweep began; the same command measures it as "
                "it is now"
            )
        return resolved

    return resolve


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
