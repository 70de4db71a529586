"""The presets `launch=...` that run jobs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import LaunchConfig, ModelConfig, Parallel, Where
from rbptrack.sweep.executors import Executor
from rbptrack.sweep.ray_cluster import Ray
from rbptrack.sweep.slurm import Slurm

_EXTRAS = {  # of rbptrack, and the module that shows that it is installed
    Where.gpus: ("ray", "ray"),
    Where.ray: ("ray", "ray"),
    Where.slurm: ("slurm", "submitit"),
}


def executor(
    launch: LaunchConfig, models: Sequence[ModelConfig], *, name: str, tell: Callable[[str], None]
) -> Executor:
    """The executor of a preset; BadInput where an extra is missing, or a job has too few GPUs for its model."""
    extra, module = _EXTRAS[launch.where]
    if find_spec(module) is None:
        raise BadInput(f"launch={launch.where.value} needs the extra {extra}: pip install 'rbptrack[{extra}]'")
    for model in models:
        _check_split(launch, model)
    return Slurm(launch, name, tell) if launch.where is Where.slurm else Ray(launch)


def _check_split(launch: LaunchConfig, model: ModelConfig) -> None:
    """BadInput where a job has not the GPUs over which its model is to be split."""
    if model.parallel is not Parallel.tensor or (model.device == "cpu" and model.processes):
        return
    if launch.gpus == "auto":
        return
    if float(launch.gpus) < max(2, model.processes):
        wanted = (
            f"launch.gpus={model.processes}" if model.processes else "launch.gpus=4, say; plan on=h100 says how many"
        )
        raise BadInput(
            f"model {model.name} is to be split over the GPUs of its job (model.parallel=tensor), which has "
            f"launch.gpus={launch.gpus}: give {wanted}"
        )
