"""The presets `launch=...`: what each asks of its Hydra launcher, and what must be there before it is asked."""

from __future__ import annotations

import logging
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from rbptrack.config.schema import LaunchConfig, Where
from rbptrack.errors import BadInput

_EXTRAS = {  # of rbptrack, and the module that shows that it is installed
    Where.gpus: ("ray", "hydra_plugins.hydra_ray_launcher"),
    Where.ray: ("ray", "hydra_plugins.hydra_ray_launcher"),
    Where.slurm: ("slurm", "hydra_plugins.hydra_submitit_launcher"),
}
_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 2.0
_SIGNAL_SECONDS = 60  # before a job's time is over: long enough to write what was measured


def check(launch: LaunchConfig, jobs_at_most: int) -> str:
    """Check that a preset can run here and now, and that its jobs can be had.

    Args:
        launch: the preset.
        jobs_at_most: how many jobs there are.

    Returns:
        A line that says what was found.

    Raises:
        BadInput: an extra, the cluster or the GPUs are not there.

    """
    extra, module = _EXTRAS[launch.where]
    if not _installed(module):
        raise BadInput(f"launch={launch.where.value} needs the extra {extra}: pip install 'rbptrack[{extra}]'")
    if launch.where is Where.slurm:
        return _check_slurm(launch)
    nodes = _gpus_here() if launch.where is Where.gpus else _ray_nodes(launch)
    most = max(nodes, default=0)
    if launch.gpus > most:
        where = "this machine" if launch.where is Where.gpus else f"the largest of the cluster's {len(nodes)} nodes"
        found = {0: "no GPU", 1: "one GPU"}.get(most, f"{most} GPUs")
        raise BadInput(
            f"launch={launch.where.value}: each job is to have launch.gpus={launch.gpus}, but {where} has {found}; "
            "launch.gpus=0 measures on CPUs"
        )
    together = sum(n // launch.gpus for n in nodes) if launch.gpus else 0
    told = f", {min(together, jobs_at_most)} at a time" if launch.gpus else ""
    return f"jobs run on {'this machine' if launch.where is Where.gpus else f'{len(nodes)} nodes of Ray'}{told}"


def overrides(launch: LaunchConfig, *, name: str) -> list[str]:
    """What Hydra is told for a preset.

    Args:
        launch: the preset.
        name: of the jobs, in SLURM's queue.

    """
    if launch.where is Where.slurm:
        return _slurm_overrides(launch, name)
    init = {"include_dashboard": "false", "log_to_driver": "false", "logging_level": "error"}
    if launch.where is Where.ray:
        init |= {"address": f"'{launch.address}'", "object_store_memory": "null"}
    else:
        init |= {"num_gpus": str(sum(_gpus_here())), "object_store_memory": "100000000"}
    remote = {"num_gpus": launch.gpus, "num_cpus": launch.cpus, "max_retries": launch.retries}
    settings = [f"++hydra.launcher.ray.init.{k}={v}" for k, v in init.items()]
    return ["hydra/launcher=ray", *settings, *(f"++hydra.launcher.ray.remote.{k}={v}" for k, v in remote.items())]


def wait_for_others(launch: LaunchConfig, *, name: str) -> None:
    """After a job was lost and the launcher gave up: wait until the sweep's other jobs have ended."""
    if launch.where is Where.slurm:
        while _lines(["squeue", "--noheader", "--me", f"--name={name}", "--format=%i"]):
            time.sleep(_POLL_SECONDS)


def cancel(launch: LaunchConfig, *, name: str) -> None:
    """After an interrupt: no job goes on without its sweep."""
    if launch.where is Where.slurm:
        _lines(["scancel", "--me", f"--name={name}"])


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _gpus_here() -> list[int]:
    import torch

    return [torch.cuda.device_count()]


def _check_slurm(launch: LaunchConfig) -> str:
    if shutil.which("sbatch") is None or shutil.which("sinfo") is None:
        raise BadInput("launch=slurm: there is no sbatch here; run it on a login node of the cluster")
    named = [f"--partition={launch.partition}"] if launch.partition else []
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%G|%c|%l", *named]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise BadInput(f"launch=slurm: the cluster does not answer: {said}")
    nodes = [line.split("|") for line in done.stdout.splitlines() if line.strip()]
    if not nodes:
        what = f"has no partition {launch.partition}" if launch.partition else "has no nodes"
        raise BadInput(f"launch=slurm: the cluster {what}; sinfo lists what there is")
    _check_had("gpus", launch.gpus, max(_gres_gpus(gres) for _, gres, _, _ in nodes), "GPUs on a node")
    _check_had("cpus", launch.cpus, max(int(cpus.rstrip("+")) for _, _, cpus, _ in nodes), "CPUs on a node")
    _check_had("time", launch.time, max(_minutes(limit) for *_, limit in nodes), "minutes for a job")
    return f"jobs are queued in SLURM ({len({name for name, *_ in nodes})} nodes)"


def _check_had(option: str, wanted: int, most: float, what: str) -> None:
    """BadInput where a job would wait in the queue for ever."""
    if wanted > most:
        raise BadInput(
            f"launch=slurm: launch.{option}={wanted}, but the partition has at most {most:g} {what}; ask for "
            f"{'launch.gpus=0 to measure on CPUs' if option == 'gpus' and not most else 'less'}, or name another "
            "launch.partition"
        )


def _minutes(limit: str) -> float:
    """SLURM's time limits in minutes: `infinite`, `30:00`, `2:00:00`, `1-00:00:00`."""
    if limit == "infinite":
        return float("inf")
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes = ([0] * (3 - len(parts)) + parts)[:2]
    return int(days or 0) * 1440 + hours * 60 + minutes


def _gres_gpus(gres: str) -> int:
    """GPUs of a node: `gpu:2`, `gpu:a100:4(S:0-1)`, `(null)`."""
    return sum(int(n) for n in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))


def _slurm_overrides(launch: LaunchConfig, name: str) -> list[str]:
    settings: dict[str, object] = {
        "name": name,
        "timeout_min": launch.time,
        "cpus_per_task": launch.cpus,
        "array_parallelism": launch.jobs,
        "max_num_timeout": launch.retries,  # a job that is over its time is requeued as often
        "signal_delay_s": min(_SIGNAL_SECONDS, launch.time * 30),
    }
    settings |= {"gres": f"gpu:{launch.gpus}"} if launch.gpus else {}
    settings |= {"partition": launch.partition} if launch.partition else {}
    settings |= {"account": launch.account} if launch.account else {}
    settings |= {"mem_gb": launch.memory} if launch.memory else {}
    lines = [f"hydra.launcher.{key}={_quoted(value)}" for key, value in settings.items()]
    setup = ",".join(_quoted(line) for line in launch.setup)
    lines += [f"hydra.launcher.setup=[{setup}]"] if launch.setup else []
    return ["hydra/launcher=submitit_slurm", *lines, "+hydra.launcher.additional_parameters.requeue=true"]


def _quoted(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _ray_nodes(launch: LaunchConfig) -> list[int]:
    """The GPUs of each node of the cluster."""
    import ray

    host, _, port = launch.address.rpartition(":")
    if launch.address != "auto" and port.isdigit():  # Ray itself would try for a minute
        try:
            socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            raise BadInput(f"launch.address={launch.address}: no Ray cluster answers there ({error})") from error
    try:
        ray.init(address=launch.address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        nodes: list[dict[str, Any]] = ray.nodes()
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise BadInput(
            f"launch=ray: no Ray cluster found (launch.address={launch.address}); on its head `ray start --head`, on "
            "each other node `ray start --address=HEAD:6379`; launch=gpus needs no cluster"
        ) from error
    finally:
        with suppress(Exception):
            ray.shutdown()
    return [int(node["Resources"].get("GPU", 0)) for node in nodes if node["Alive"]]


def _lines(command: Sequence[str]) -> list[str]:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
        return done.stdout.split()
    return []
