"""Kubernetes, as somebody else would write it: one file in `plugins/executors/`, and the package `kubernetes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rbptrack.analysis.executors import Executor, Job, Phase, State
from rbptrack.base.errors import BadInput

GPU = "nvidia.com/gpu"


@dataclass(kw_only=True)
class Kubernetes(Executor):
    """Run jobs on a Kubernetes cluster, each as a Job of its own.

    Attributes:
        image: that has rbptrack and its Python.
        claim: the volume that holds the working folder, mounted where it lies here.
        namespace: of the cluster.
        jobs: how many run at a time.

    """

    name: ClassVar[str] = "kubernetes"
    outlives: ClassVar[str] = "the jobs go on in the cluster, and the same command finds what they measure"

    image: str = "rbptrack:latest"
    claim: str = ""
    namespace: str = "default"
    jobs: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._names: dict[int, str] = {}

    def room(self, gpus: float) -> int:
        """As many as the user allows."""
        return self.jobs

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that some node has the GPUs of a job, and that the working folder can be mounted."""
        if not self.claim:
            raise BadInput("launch=kubernetes: launch.claim names the volume that holds this folder")
        nodes = _client().CoreV1Api().list_node().items
        most = max((int(node.status.allocatable.get(GPU, 0)) for node in nodes), default=0)
        needed = max(job.gpus for job in jobs)
        if needed > most:
            raise BadInput(f"launch=kubernetes: launch.gpus={needed:g}, but no node has more than {most}")
        return f"jobs run on Kubernetes ({len(nodes)} nodes)"

    def submit(self, jobs: Sequence[Job]) -> None:
        """Create a Job for each."""
        api = _client().BatchV1Api()
        for job in jobs:
            lives = self._names.get(job.number, "").count("x")
            self._names[job.number] = f"{job.sweep}-{job.number}{'x' * (lives + 1)}"
            api.create_namespaced_job(self.namespace, self._manifest(job))

    def _manifest(self, job: Job) -> dict[str, Any]:
        limits = {GPU: int(job.gpus), "cpu": job.cpus} | ({"memory": f"{job.memory}Gi"} if job.memory else {})
        variables = [{"name": name, "value": value} for name, value in job.environment.items()]
        keys = {"name": "rbptrack", "optional": False}
        secrets = [{"name": name, "valueFrom": {"secretKeyRef": {**keys, "key": name}}} for name in job.secrets]
        container = {
            "name": "job",
            "image": self.image,
            "command": ["python", *job.argv[1:]],
            "workingDir": str(job.folder),
            "env": [*variables, *secrets],
            "resources": {"limits": limits},
            "volumeMounts": [{"name": "work", "mountPath": str(job.folder)}],
        }
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": self.claim}}
        pod = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
        labels = {"sweep": job.sweep}
        return {
            "metadata": {"name": self._names[job.number], "labels": labels},
            "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}},
        }

    def states(self) -> Mapping[int, State]:
        """What the cluster says of each Job."""
        api = _client().BatchV1Api()
        return {
            number: _state(api.read_namespaced_job_status(name, self.namespace).status)
            for number, name in self._names.items()
        }

    def cancel(self) -> None:
        """Delete the Jobs."""
        api = _client().BatchV1Api()
        for name in self._names.values():
            api.delete_namespaced_job(name, self.namespace, propagation_policy="Background")


def _client() -> Any:
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise BadInput("launch=kubernetes needs the package kubernetes: pip install kubernetes") from error
    config.load_config()
    return client


def _state(status: Any) -> State:
    if status.succeeded:
        return State(Phase.gone)
    if status.failed:
        return State(Phase.gone, "its pod failed")
    return State(Phase.running if status.active else Phase.waiting)
