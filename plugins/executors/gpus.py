"""All GPUs of this machine: Ray, on a cluster of its own that ends with the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from rbptrack.analysis.executors import cores

from .ray import QUIET, Ray

STORE_BYTES = 100_000_000  # of Ray's objects: jobs hand over none that is large
LOCAL: dict[str, Any] = {"address": "local", "object_store_memory": STORE_BYTES, **QUIET}
"""How Ray is started: a cluster of its own, also where this machine belongs to another, or once did."""


@dataclass(kw_only=True)
class Gpus(Ray):
    """Run jobs on all GPUs of this machine."""

    name: ClassVar[str] = "gpus"
    one_machine: ClassVar[bool] = True

    address: str = "local"

    @property
    def where(self) -> str:
        """The machine, for people."""
        return "this machine"

    def check_secrets(self, names: object) -> None:
        """Find nothing wrong: jobs have the environment of this process."""

    def connect(self) -> None:
        """Start Ray here; with as many cores as this process may use, in a container too."""
        import ray

        ray.init(num_cpus=cores(), **LOCAL)
