"""Ray behind `launch=ray` and `launch=gpus`: what a cluster can give, what Ray is told, and what it says of its end."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rbptrack.config.schema import LaunchConfig, Where
from rbptrack.errors import BadInput

_CONNECT_SECONDS = 5.0
_TRIES = 5  # of Ray to be let in, a second each
_SILENT_CHECKS = 100  # that the processes of one machine may miss; Ray's own 5 are for machines that a network loses


@dataclass(frozen=True)
class Node:
    """What a machine of the cluster has for jobs."""

    gpus: int
    cpus: int

    def jobs(self, launch: LaunchConfig) -> int:
        """How many jobs it can run at a time."""
        by_gpus = [self.gpus // launch.gpus] if launch.gpus else []
        return min([self.cpus // launch.cpus, *by_gpus])


def nodes(launch: LaunchConfig) -> list[Node]:
    """The nodes of the cluster.

    Raises:
        BadInput: none answers, or it does not let this machine in.

    """
    _check_address(launch.address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(_TRIES))  # read when Ray is imported
    import ray

    try:
        with _silent():  # else a line a second while it is refused
            ray.init(address=launch.address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        found: list[dict[str, Any]] = ray.nodes()
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if "Version mismatch" in str(error):
            said = " ".join(str(error).split())
            raise BadInput(f"launch=ray: {said}: every machine needs the same versions of both") from error
        if launch.address != "auto":  # something answers there
            raise BadInput(
                f"launch.address={launch.address}: the Ray cluster there does not let this machine in; it may ask for "
                "its token: RAY_AUTH_MODE=token, and the head's ~/.ray/auth_token here"
            ) from error
        raise BadInput(
            f"launch=ray: no Ray cluster found (launch.address={launch.address}); on its head `ray start --head`, on "
            "each other node `ray start --address=HEAD:6379`; launch=gpus needs no cluster"
        ) from error
    finally:
        with suppress(Exception):
            ray.shutdown()
    alive = [node["Resources"] for node in found if node["Alive"]]
    return [Node(int(resources.get("GPU", 0)), int(resources.get("CPU", 0))) for resources in alive]


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


def prepare(launch: LaunchConfig) -> None:
    """Before jobs are launched: no connection that an earlier round has lost, and no pages of a dead node's log."""
    if launch.where is Where.gpus:
        # A machine that is too busy to answer for some seconds has not lost its node.
        os.environ.setdefault("RAY_health_check_failure_threshold", str(_SILENT_CHECKS))
    import ray
    from ray._private import worker

    with suppress(Exception):
        ray.shutdown()
    worker.print_to_stdstream = lambda *_, **__: None


def lost(error: Exception) -> str:
    """What has become of this machine's part of the cluster, in a line; empty where an error is another.

    Examples:
        >>> lost(RuntimeError("something else"))
        ''

    """
    if type(error).__name__ == "LocalRayletDiedError":
        return (
            "Ray's process on this machine (raylet) has ended: it was killed, lost the cluster's head, or was too busy "
            "to answer; its log is raylet.out in /tmp/ray/session_latest/logs"
        )
    return ""
