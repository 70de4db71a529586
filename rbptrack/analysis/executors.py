"""What a plugin needs that runs a sweep's jobs elsewhere: an executor is handed jobs, each of them one process."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from rbptrack.analysis.plugin import Plugin
from rbptrack.base.errors import BadInput
from rbptrack.base.process import cores as cores  # of this machine, for executors


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process, and what it is to have.

    Jobs with the same `cells` pull from that file until none is left, so that one which begins late, or twice, does no
    harm: it goes on with what it had begun, or ends at once. On SIGTERM a job saves its finished tokens, and ends with
    exit code 75 where it has finished a cell or a shard since it began: begun again, it will get on.

    Attributes:
        number: in its sweep; a job that is lost is submitted again under its number.
        sweep: a name that all jobs of the sweep share, and no other's.
        argv: the command; the first word is this process's Python, which may lie elsewhere on other machines.
        environment: variables to set beside those that the machine has; none is a secret.
        secrets: names of variables of this process that the job needs too, such as the tracking store's password.
        folder: where the process works; every machine sees it, and all that `argv` names.
        cells: the file of resolved cells.
        log: where the process writes what it prints; an executor need not.
        gpus: how many it has, or which share of one.
        cpus: how many it has.
        memory: GB; 0: the machine's own rule.
        minutes: how long it may take; 0: as long as it needs.

    """

    number: int
    sweep: str
    argv: tuple[str, ...]
    folder: Path
    cells: Path
    log: Path
    environment: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    gpus: float = 0.0
    cpus: int = 1
    memory: int = 0
    minutes: int = 0


class Phase(Enum):
    """How far a job is for its executor."""

    waiting = "waiting"
    running = "running"
    gone = "gone"


@dataclass(frozen=True)
class State:
    """What an executor knows of a job.

    Attributes:
        phase: how far it is.
        why: why it waits, or how it was lost, in a few words.
        final: whether a job that is gone must not be submitted again.

    """

    phase: Phase
    why: str = ""
    final: bool = False


@dataclass(kw_only=True)
class Executor(Plugin):
    """Runs jobs: a dataclass whose fields are the options `launch.NAME=...`.

    Attributes:
        gpus: of each job: a number, a share of one GPU, or auto (what its model needs).
        device: with `auto`, the kind of GPU, such as h100, where `kinds` does not know it.
        cpus: of each job.
        memory: GB of each job; 0: the machine's own rule.
        retries: how often a job that was lost is submitted again; it continues where it stopped.

    """

    outlives: ClassVar[str] = ""
    """What to tell users whose command has ended (a closed terminal) while the jobs go on; empty: they end with it."""
    one_machine: ClassVar[bool] = False
    """Whether jobs run on this machine alone, so that its SQLite file will do as tracking store."""
    shares_gpus: ClassVar[bool] = False
    """Whether a job may have a share of a GPU; else `gpus=auto` gives whole ones."""

    gpus: int | float | str = 1
    device: str = ""
    cpus: int = 1
    memory: int = 0
    retries: int = 2

    def __post_init__(self) -> None:
        gpus = self.gpus
        if gpus != "auto" and not (isinstance(gpus, int | float) and (0 <= gpus < 1 or gpus == int(gpus) >= 0)):
            raise BadInput(f"launch.gpus must be a whole number, a share of one such as 0.5, or auto; got {gpus}")
        for option, least in (("cpus", 1), ("memory", 0), ("retries", 0)):
            if getattr(self, option) < least:
                raise BadInput(f"launch.{option} must be at least {least}; got {getattr(self, option)}")

    @property
    def minutes(self) -> int:
        """How long each job may take; 0: as long as it needs."""
        return 0

    def kinds(self) -> Sequence[str]:
        """Return the names of the available GPUs, such as `NVIDIA H100`, as far as they can be read."""
        return ()

    def room(self, gpus: float) -> int:
        """Return how many jobs with so many GPUs each can run at the same time, or an upper limit where that is
        unknown.
        """
        return 256

    @abstractmethod
    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the jobs can be had, now or ever, else raise BadInput; returns a line about the machines."""

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> None:
        """Let jobs run, for the first time or, those that were lost, again; BadInput where they are not taken."""

    @abstractmethod
    def states(self) -> Mapping[int, State]:
        """Return the state of each submitted job, by its number; called every second."""

    @abstractmethod
    def cancel(self) -> None:
        """End all jobs that were submitted."""

    def tell(self, line: str) -> None:
        """Show the user a line."""
        print(f"launch={self.name}: {line}", file=sys.stderr)
