"""The presets `launch=...`: what each asks of its Hydra launcher, and what must be there before it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from rbptrack.analysis import counted
from rbptrack.config.schema import LaunchConfig, ModelConfig, Parallel, Where
from rbptrack.cores import cores
from rbptrack.errors import BadInput
from rbptrack.sweep import ray_cluster, slurm

Tell = Callable[[str], None]

_EXTRAS = {  # of rbptrack, and the module that shows that it is installed
    Where.gpus: ("ray", "hydra_plugins.hydra_ray_launcher"),
    Where.ray: ("ray", "hydra_plugins.hydra_ray_launcher"),
    Where.slurm: ("slurm", "hydra_plugins.hydra_submitit_launcher"),
}


def check(launch: LaunchConfig, jobs_at_most: int, models: Sequence[ModelConfig] = ()) -> str:
    """Check that a preset can run here and now, and that its jobs can be had.

    Args:
        launch: the preset.
        jobs_at_most: how many jobs there are.
        models: what is measured.

    Returns:
        A line that says what was found.

    Raises:
        BadInput: an extra, the cluster or the GPUs are not there.

    """
    extra, module = _EXTRAS[launch.where]
    if not _installed(module):
        raise BadInput(f"launch={launch.where.value} needs the extra {extra}: pip install 'rbptrack[{extra}]'")
    for model in models:
        _check_split(launch, model)
    if launch.where is Where.slurm:
        return slurm.check(launch)
    nodes = [_this_machine()] if launch.where is Where.gpus else ray_cluster.nodes(launch)
    where = "this machine" if launch.where is Where.gpus else f"{counted(len(nodes), 'node')} of Ray"
    _check_nodes(launch, nodes, where)
    together = min(sum(node.jobs(launch) for node in nodes), jobs_at_most)
    return f"jobs run on {where}, {together} at a time"


def _check_nodes(launch: LaunchConfig, nodes: Sequence[ray_cluster.Node], where: str) -> None:
    """BadInput where no node has what each job is to have: Ray would wait for one for ever."""
    if any(node.jobs(launch) for node in nodes):
        return
    largest = where if len(nodes) == 1 else f"the largest of {where}"
    most = max((node.gpus for node in nodes), default=0)
    if launch.gpus > most:
        wanted, remedy = f"launch.gpus={launch.gpus}", "launch.gpus=0 measures on CPUs"
        found = {0: "no GPU", 1: "one GPU"}.get(most, f"{most} GPUs")
    else:
        cpus = max(node.cpus for node in nodes if node.gpus >= launch.gpus)
        wanted, found, remedy = f"launch.cpus={launch.cpus}", counted(cpus, "CPU"), "ask for less"
        largest += f" with {counted(launch.gpus, 'GPU')}" if launch.gpus and len(nodes) > 1 else ""
    raise BadInput(f"launch={launch.where.value}: each job is to have {wanted}, but {largest} has {found}; {remedy}")


def _check_split(launch: LaunchConfig, model: ModelConfig) -> None:
    """BadInput where a job has not the GPUs over which its model is to be split."""
    if model.parallel is not Parallel.tensor or (model.device == "cpu" and model.processes):
        return
    if launch.gpus < max(2, model.processes):
        wanted = (
            f"launch.gpus={model.processes}" if model.processes else "launch.gpus=4, say; plan on=h100 says how many"
        )
        raise BadInput(
            f"model {model.name} is to be split over the GPUs of its job (model.parallel=tensor), which has "
            f"launch.gpus={launch.gpus}: give {wanted}"
        )


def overrides(launch: LaunchConfig, *, name: str) -> list[str]:
    """What Hydra is told for a preset.

    Args:
        launch: the preset.
        name: of the jobs, in SLURM's queue.

    """
    if launch.where is Where.slurm:
        return slurm.overrides(launch, name)
    init = {"include_dashboard": "false", "log_to_driver": "false", "logging_level": "error"}
    if launch.where is Where.ray:
        init |= {"address": f"'{launch.address}'", "object_store_memory": "null"}
    else:
        here = _this_machine()
        # A cluster of its own, also where this machine belongs to another, or once did.
        init |= {
            "address": "local",
            "num_gpus": str(here.gpus),
            "num_cpus": str(here.cpus),
            "object_store_memory": "100000000",
        }
    remote = {"num_gpus": launch.gpus, "num_cpus": launch.cpus, "max_retries": launch.retries}
    settings = [f"++hydra.launcher.ray.init.{k}={v}" for k, v in init.items()]
    return ["hydra/launcher=ray", *settings, *(f"++hydra.launcher.ray.remote.{k}={v}" for k, v in remote.items())]


def prepare(launch: LaunchConfig, *, name: str) -> None:
    """Before Hydra's launcher is asked: let it see when a job has ended, and be silent."""
    if launch.where is Where.slurm:
        slurm.prepare(name)
    else:
        ray_cluster.prepare(launch)


def reason(launch: LaunchConfig, *, name: str) -> str:
    """Why jobs wait, in the launcher's words; empty where it does not say."""
    return slurm.reason(name) if launch.where is Where.slurm else ""


def wait_for_others(launch: LaunchConfig, *, name: str, tell: Tell) -> None:
    """After a job was lost and the launcher gave up: wait until the sweep's other jobs have ended."""
    if launch.where is Where.slurm:
        slurm.wait(name, tell)


def cancel(launch: LaunchConfig, *, name: str, tell: Tell) -> None:
    """After Ctrl-C: no job goes on without its sweep."""
    if launch.where is Where.slurm:
        slurm.cancel(name, tell)


def goes_on(launch: LaunchConfig) -> str:
    """What is said of the jobs where their driver is ended, and nobody asked for their end; Ray ends them with it."""
    if launch.where is not Where.slurm:
        return ""
    return "the jobs go on in SLURM's queue, and the same command finds what they measure; scancel ends them"


def refused(launch: LaunchConfig, error: Exception) -> str:
    """Why a launcher took no job at all, in a line; empty where it took them."""
    said = slurm.refused(error) if launch.where is Where.slurm else ""
    return f"launch=slurm: the cluster does not take these jobs: {said}" if said else ""


def lost(launch: LaunchConfig, error: Exception) -> str:
    """What a launcher says of a job that it gave up, in a line.

    Examples:
        >>> lost(LaunchConfig(where=Where.ray), ConnectionError("no raylet"))
        'launch=ray gave up: ConnectionError: no raylet'

    """
    known = slurm.lost(error) if launch.where is Where.slurm else ray_cluster.lost(error)
    if known:
        return f"launch={launch.where.value}: {known}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]  # in a worker's traceback
    said = raised[-1] if raised else f"{type(error).__name__}: {' '.join(lines[:2])}"
    return f"launch={launch.where.value} gave up: {said}"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _this_machine() -> ray_cluster.Node:
    import torch

    return ray_cluster.Node(torch.cuda.device_count(), cores())
