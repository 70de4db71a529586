"""Ray: what a cluster can give, what Ray is handed, and what it says of a job's end."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import psutil

from rbptrack.analysis.executors import Executor, Job, Phase, State
from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.words import counted

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 120.0  # of a first task: a worker starts for it
TRIES = 5  # of Ray to be let in, a second each
SILENT_CHECKS = 100  # that a node may miss; Ray's own 5 end a machine that is only too busy for some seconds
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
DIED = "Ray's process on this machine (raylet) has ended"


@dataclass(frozen=True)
class Node:
    """What a machine of the cluster has for jobs; `kinds`: what its GPUs are called."""

    gpus: int
    cpus: int
    kinds: tuple[str, ...] = ()

    def jobs(self, gpus: float, cpus: int) -> int:
        """Return how many jobs with these needs can run at a time."""
        return min([self.cpus // cpus, *([int(self.gpus / gpus + 1e-9)] if gpus else [])])


@dataclass(kw_only=True)
class Ray(Executor):
    """Run jobs on a Ray cluster that runs already, from one of its nodes.

    Attributes:
        address: auto (the cluster that this machine belongs to), HOST:PORT of its head, or ray://HOST:10001.

    """

    name: ClassVar[str] = "ray"
    shares_gpus: ClassVar[bool] = True

    address: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refs: dict[int, Any] = {}  # of tasks, by the job's number
        self._states: dict[int, State] = {}

    @property
    def where(self) -> str:
        """The cluster, for people."""
        import ray

        return f"{counted(len(self.nodes), 'node')} of the Ray at {ray.get_runtime_context().gcs_address}"

    @cached_property
    def nodes(self) -> list[Node]:
        """The machines; the first look connects."""
        self._join()
        import ray

        return [_node(node["Resources"]) for node in ray.nodes() if node["Alive"]]

    def kinds(self) -> list[str]:
        """Return the names of the nodes' GPUs."""
        return [kind for node in self.nodes for kind in node.kinds]

    def room(self, gpus: float) -> int:
        """Return how many jobs with so many GPUs each can run at the same time."""
        return max(1, sum(node.jobs(gpus, self.cpus) for node in self.nodes))

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the cluster answers and has what each job asks for."""
        self.check_secrets(jobs[0].secrets)
        self._check_nodes(max(job.gpus for job in jobs))
        together = min(sum(node.jobs(min(job.gpus for job in jobs), self.cpus) for node in self.nodes), len(jobs))
        most = "at most " if len({job.gpus for job in jobs}) > 1 else ""
        return f"jobs run on {self.where}, {most}{together} at a time"

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand jobs to Ray, with what each asks for; a lost job is reported; Ray itself does not begin it again."""
        import ray

        if any(state.why.startswith(DIED) for state in self._states.values()):
            self.cancel()  # a connection that is dead
        self._join()
        by_value()
        for job in jobs:
            # Not `.options(...)`, which loses `max_calls=1`: a worker that is used again keeps its first job's GPUs.
            needs = {"num_gpus": job.gpus, "num_cpus": job.cpus, "memory": job.memory * 2**30 or None}
            remote = ray.remote(**needs, max_retries=0, max_calls=1)(run)
            argv = ("", *job.argv[1:]) if job.argv[0] == sys.executable else job.argv
            self._refs[job.number] = remote.remote(argv, dict(job.environment), str(job.folder))
            self._states[job.number] = State(Phase.waiting)

    def states(self) -> Mapping[int, State]:
        """Return the jobs that have ended, and those that were lost; Ray does not say which still wait."""
        import ray

        if not self._refs:
            return self._states
        numbers = {ref: number for number, ref in self._refs.items()}
        try:
            ended, _ = ray.wait(list(numbers), num_returns=len(numbers), timeout=0)
        except Exception:  # the connection itself: each job says why
            ended = list(numbers)
        for ref in ended:
            why = ""
            try:
                ray.get(ref)
            except Exception as error:
                why = lost(error)
            self._states[numbers[ref]] = State(Phase.gone, why)
            del self._refs[numbers[ref]]
        return self._states

    def cancel(self) -> None:
        """End all jobs: Ray ends those of a driver that leaves."""
        import ray

        with suppress(Exception):
            ray.shutdown()

    def connect(self) -> None:
        """Join the cluster; BadInput where none answers, or it does not let this machine in."""
        join(self.address)

    def check_secrets(self, names: Sequence[str]) -> None:
        """Raise BadInput where jobs would not have the store's password: they have the environment of `ray start`."""
        if not names:
            return
        self._join()
        import ray

        by_value()
        answer = ray.remote(num_cpus=0, max_retries=0)(unset).remote(list(names))
        try:
            missing = ray.get(answer, timeout=ANSWER_SECONDS)
        except ray.exceptions.RayError as error:
            raise BadInput(f"launch=ray: the cluster runs nothing for this machine: {first_line(error)}") from error
        if missing:
            raise BadInput(
                f"launch=ray: jobs would not have {' and '.join(missing)}, with which they reach the tracking store: "
                "export it on every node before `ray start`"
            )

    def _join(self) -> None:
        if find_spec("ray") is None:
            raise BadInput(f"launch={self.name} needs the extra ray: pip install 'rbptrack[ray]'")
        # Both are read when Ray is imported.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(TRIES))
        os.environ.setdefault("RAY_health_check_failure_threshold", str(SILENT_CHECKS))
        import ray

        if not ray.is_initialized():
            self.connect()

    def _check_nodes(self, gpus: float) -> None:
        """Raise BadInput where no node has what a job with so many GPUs is to have: Ray would wait for one for ever."""
        if any(node.jobs(gpus, self.cpus) for node in self.nodes):
            return
        largest = self.where if len(self.nodes) == 1 else f"the largest of {self.where}"
        most = max((node.gpus for node in self.nodes), default=0)
        if gpus > most:
            wanted = f"launch.gpus={gpus:g}"
            remedy = "launch.gpus=0 measures on CPUs"
            available = {0: "no GPU", 1: "one GPU"}.get(most, f"{most} GPUs")
        else:
            cpus = max(node.cpus for node in self.nodes if node.gpus >= gpus)
            wanted = f"launch.cpus={self.cpus}"
            available = counted(cpus, "CPU")
            remedy = "ask for less"
            if gpus and len(self.nodes) > 1:
                largest += f" with {counted(math.ceil(gpus), 'GPU')}"
        raise BadInput(f"launch={self.name}: each job is to have {wanted}, but {largest} has {available}; {remedy}")


def _node(resources: Mapping[str, float]) -> Node:
    kinds = tuple(name.partition(":")[2] for name in resources if name.startswith("accelerator_type:"))
    return Node(int(resources.get("GPU", 0)), int(resources.get("CPU", 0)), kinds)


def by_value() -> None:
    """Let Ray send this module's functions as they are: its workers may not find the module."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def run(argv: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    """Run a job's process in a worker of Ray; it ends with the worker. An empty first word is the worker's Python."""
    command = [argv[0] or sys.executable, *argv[1:]]
    process = subprocess.Popen(command, env=os.environ | environment, cwd=folder, preexec_fn=end_with_parent)  # noqa: S603
    if code := process.wait():
        raise RuntimeError(f"its process ended with exit code {code}")


def end_with_parent() -> None:
    """Let the system end this process when its parent dies; what Linux has, and others have not."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def unset(names: list[str]) -> list[str]:
    """Return the variables that a worker lacks."""
    return [name for name in names if not os.environ.get(name)]


def join(address: str) -> None:
    """Join a cluster; BadInput where none answers, or it does not let this machine in."""
    check_address(address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    import ray

    try:
        with silent():  # else a line a second while it is refused
            ray.init(address=address, **QUIET)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if "Version mismatch" in str(error):
            words = " ".join(str(error).split())
            raise BadInput(f"launch=ray: {words}: every machine needs the same versions of both") from error
        if address != "auto":  # something answers there
            raise BadInput(
                f"launch.address={address}: the Ray cluster there does not let this machine in; it may ask for "
                "its token: RAY_AUTH_MODE=token, and the head's ~/.ray/auth_token here"
            ) from error
        raise BadInput(
            f"launch=ray: no Ray cluster found (launch.address={address}); on its head `ray start --head`, on "
            "each other node `ray start --address=HEAD:6379`; launch=gpus needs no cluster"
        ) from error


def check_address(address: str) -> None:
    """Raise BadInput where nothing can answer; Ray itself would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(
            f"launch.address={address}: expected auto (the cluster that this machine belongs to), HOST:PORT of its "
            "head, such as first:6379, or ray://HOST:10001 from outside it"
        )
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise BadInput(f"launch.address={address}: no Ray cluster answers there ({error})") from error
    if not host.startswith("ray://") and not any(p.info["name"] == "raylet" for p in psutil.process_iter(["name"])):
        raise BadInput(
            f"launch.address={address}: this machine is no node of that cluster: launch.address=ray://{host}:10001 "
            f"reaches it from outside, and `ray start --address={address}` makes this machine one of its nodes"
        )


@contextmanager
def silent() -> Iterator[None]:
    """Drop what libraries write to the standard error below Python."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def lost(error: Exception) -> str:
    """Say in a line why Ray lost a job.

    Examples:
        >>> lost(ConnectionError("no raylet"))
        'ConnectionError: no raylet'

    """
    if type(error).__name__ == "LocalRayletDiedError":
        return (
            f"{DIED}: it was killed, lost the cluster's head, or was too busy to answer; its log is raylet.out in "
            "/tmp/ray/session_latest/logs"  # noqa: S108 - Ray's own
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]  # in a worker's traceback
    return raised[-1] if raised else f"{type(error).__name__}: {' '.join(lines[:2])}"
