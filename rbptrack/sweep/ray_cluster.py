"""Ray behind `launch=ray` and `launch=gpus`: what a cluster can give, what Ray is told, and what it says of its end."""

from __future__ import annotations

import logging
import math
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.process import cores
from rbptrack.base.words import counted
from rbptrack.config.schema import LaunchConfig, Where
from rbptrack.sweep.channel import run
from rbptrack.sweep.executors import Executor, Phase, State
from rbptrack.sweep.jobs import Job, login_of

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 120.0  # of a first task: a worker starts for it
_TRIES = 5  # of Ray to be let in, a second each
_STORE_BYTES = 100_000_000  # of Ray's objects: jobs hand over none that is large
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
_DIED = "Ray's process on this machine (raylet) has ended"
_SILENT_CHECKS = 100  # that the processes of one machine may miss; Ray's own 5 are for machines that a network loses


@dataclass(frozen=True)
class Node:
    """What a machine of the cluster has for jobs; `kinds`: what its GPUs are called."""

    gpus: int
    cpus: int
    kinds: tuple[str, ...] = ()

    def jobs(self, gpus: float, cpus: int) -> int:
        """How many jobs that have so much it can run at a time."""
        return min([self.cpus // cpus, *([int(self.gpus / gpus + 1e-9)] if gpus else [])])


class Ray(Executor):
    """Tasks of Ray: on a cluster that runs already, or on this machine alone (`launch=gpus`)."""

    elsewhere, outlives = True, ""

    def __init__(self, launch: LaunchConfig) -> None:
        self._launch = launch
        self._refs: dict[int, Any] = {}  # of tasks, by the job's number
        self._states: dict[int, State] = {}

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the cluster answers and has what each job asks for."""
        nodes = self._nodes
        here = self._launch.where is Where.gpus
        if not here:
            _check_login(login_of(jobs))
        where = "this machine" if here else f"{counted(len(nodes), 'node')} of the Ray at {_address()}"
        check_nodes(self._launch, max((job.gpus for job in jobs), default=0.0), nodes, where)
        least = min((job.gpus for job in jobs), default=0.0)
        together = min(sum(node.jobs(least, self._launch.cpus) for node in nodes), len(jobs))
        most = "at most " * (len({job.gpus for job in jobs}) > 1)
        return f"jobs run on {where}, {most}{together} at a time"

    def gpus(self) -> list[str]:
        """What the GPUs of the nodes are called."""
        return [kind for node in self._nodes for kind in node.kinds]

    @cached_property
    def _nodes(self) -> list[Node]:
        if self._launch.where is Where.gpus:
            return [_this_machine()]
        connect(self._launch.address)
        import ray

        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return [
            Node(
                int(resources.get("GPU", 0)),
                int(resources.get("CPU", 0)),
                tuple(name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")),
            )
            for resources in alive
        ]

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand jobs to Ray, with what each asks for; one that is lost is told, not begun again by Ray itself."""
        import ray

        if any(state.why.startswith(_DIED) for state in self._states.values()):
            self.cancel()  # a connection that is dead
        self._connect()
        for job in jobs:
            # `max_calls=1`, which `.options` would lose: a worker that is used again has the GPUs of another job.
            task = ray.remote(num_gpus=job.gpus, num_cpus=self._launch.cpus, max_retries=0, max_calls=1)(run)
            self._refs[job.number] = task.remote(job)
            self._states[job.number] = State(Phase.waiting)

    def _connect(self) -> None:
        import ray

        if ray.is_initialized():
            return
        if self._launch.where is Where.ray:
            connect(self._launch.address)
            return
        # A machine that is too busy to answer for some seconds has not lost its node.
        os.environ.setdefault("RAY_health_check_failure_threshold", str(_SILENT_CHECKS))
        here = _this_machine()
        # A cluster of its own, also where this machine belongs to another, or once did.
        ray.init(address="local", num_gpus=here.gpus, num_cpus=here.cpus, object_store_memory=_STORE_BYTES, **_QUIET)

    def states(self) -> Mapping[int, State]:
        """Which jobs have ended, and which of them were lost; Ray does not say which still wait."""
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


def _this_machine() -> Node:
    import torch

    count = torch.cuda.device_count()
    return Node(count, cores(), tuple(torch.cuda.get_device_name(n) for n in range(count)))


def _address() -> str:
    import ray

    return str(ray.get_runtime_context().gcs_address)


def check_nodes(launch: LaunchConfig, gpus: float, nodes: Sequence[Node], where: str) -> None:
    """BadInput where no node has what a job with so many GPUs is to have: Ray would wait for one for ever."""
    if any(node.jobs(gpus, launch.cpus) for node in nodes):
        return
    largest = where if len(nodes) == 1 else f"the largest of {where}"
    most = max((node.gpus for node in nodes), default=0)
    if gpus > most:
        wanted, remedy = f"launch.gpus={gpus:g}", "launch.gpus=0 measures on CPUs"
        available = {0: "no GPU", 1: "one GPU"}.get(most, f"{most} GPUs")
    else:
        cpus = max(node.cpus for node in nodes if node.gpus >= gpus)
        wanted, available, remedy = f"launch.cpus={launch.cpus}", counted(cpus, "CPU"), "ask for less"
        largest += f" with {counted(math.ceil(gpus), 'GPU')}" if gpus and len(nodes) > 1 else ""
    raise BadInput(
        f"launch={launch.where.value}: each job is to have {wanted}, but {largest} has {available}; {remedy}"
    )


def _check_login(names: Sequence[str]) -> None:
    """BadInput where jobs would not have the store's password: they have the environment of `ray start`."""
    if not names:
        return
    import ray

    answer = ray.remote(_unset).options(num_cpus=0, max_retries=0).remote(list(names))
    try:
        lost = ray.get(answer, timeout=_ANSWER_SECONDS)
    except ray.exceptions.RayError as error:
        raise BadInput(f"launch=ray: the cluster runs nothing for this machine: {first_line(error)}") from error
    if lost:
        raise BadInput(
            f"launch=ray: jobs would not have {' and '.join(lost)}, with which they reach the tracking store: export "
            "it on every node before `ray start`"
        )


def _unset(names: list[str]) -> list[str]:
    return [name for name in names if not os.environ.get(name)]


def connect(address: str) -> None:
    """Join a cluster; BadInput where none answers, or it does not let this machine in."""
    _check_address(address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(_TRIES))  # read when Ray is imported
    import ray

    try:
        with _silent():  # else a line a second while it is refused
            ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if "Version mismatch" in str(error):
            said = " ".join(str(error).split())
            raise BadInput(f"launch=ray: {said}: every machine needs the same versions of both") from error
        if address != "auto":  # something answers there
            raise BadInput(
                f"launch.address={address}: the Ray cluster there does not let this machine in; it may ask for "
                "its token: RAY_AUTH_MODE=token, and the head's ~/.ray/auth_token here"
            ) from error
        raise BadInput(
            f"launch=ray: no Ray cluster found (launch.address={address}); on its head `ray start --head`, on "
            "each other node `ray start --address=HEAD:6379`; launch=gpus needs no cluster"
        ) from error


def _check_address(address: str) -> None:
    """BadInput where nothing can answer; Ray itself would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(
            f"launch.address={address}: expected auto (the cluster that this machine belongs to), HOST:PORT of its "
            "head, such as first:6379, or ray://HOST:10001 from outside it"
        )
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise BadInput(f"launch.address={address}: no Ray cluster answers there ({error})") from error
    if not host.startswith("ray://") and not any(p.info["name"] == "raylet" for p in psutil.process_iter(["name"])):
        raise BadInput(
            f"launch.address={address}: this machine is no node of that cluster: launch.address=ray://{host}:10001 "
            f"reaches it from outside, and `ray start --address={address}` makes this machine one of its nodes"
        )


@contextmanager
def _silent() -> Iterator[None]:
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
    """Why Ray lost a job, in a line.

    Examples:
        >>> lost(ConnectionError("no raylet"))
        'ConnectionError: no raylet'

    """
    if type(error).__name__ == "LocalRayletDiedError":
        return (
            f"{_DIED}: it was killed, lost the cluster's head, or was too busy to answer; its log is raylet.out in "
            "/tmp/ray/session_latest/logs"  # noqa: S108 - Ray's own
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]  # in a worker's traceback
    return raised[-1] if raised else f"{type(error).__name__}: {' '.join(lines[:2])}"
