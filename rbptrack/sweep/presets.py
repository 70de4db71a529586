"""The presets `launch=...` that run jobs elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import LaunchConfig, Where
from rbptrack.sweep.executors import Executor
from rbptrack.sweep.ray_cluster import Ray
from rbptrack.sweep.slurm import Slurm

_EXTRAS = {  # of rbptrack, and the module that shows that it is installed
    Where.gpus: ("ray", "ray"),
    Where.ray: ("ray", "ray"),
    Where.slurm: ("slurm", "submitit"),
}


def executor(launch: LaunchConfig, *, name: str, tell: Callable[[str], None]) -> Executor:
    """Return the executor of a preset; BadInput where its extra is missing."""
    extra, module = _EXTRAS[launch.where]
    if find_spec(module) is None:
        raise BadInput(f"launch={launch.where.value} needs the extra {extra}: pip install 'rbptrack[{extra}]'")
    return Slurm(launch, name, tell) if launch.where is Where.slurm else Ray(launch)
