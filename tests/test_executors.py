"""An executor that is not ours: one file in `plugins/executors/` of the working folder does all that ours do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.commands import measure, plan, plugins
from rbptrack.sweep import drive, job
from tests.jobs import job as made_job

PLUGIN = Path(__file__).parent / "executors/kubernetes.py"


class FakeCluster:
    """The part of the package `kubernetes` that the plugin uses; a pod is run while it is created."""

    def __init__(self, *, crashes: int = 0) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.crashes = crashes
        self.deleted: list[str] = []

    def create_namespaced_job(self, namespace: str, body: dict[str, Any]) -> None:
        self.pods[body["metadata"]["name"]] = body
        if self.crashes:
            self.crashes -= 1
            body["failed"] = True
            return
        (container,) = body["spec"]["template"]["spec"]["containers"]
        python, flag, module, *arguments = container["command"]
        assert (python, flag, module) == ("python", "-m", "rbptrack.sweep.job")
        assert job.main(arguments) == 0

    def read_namespaced_job_status(self, name: str, namespace: str) -> Any:
        failed = "failed" in self.pods[name]
        return SimpleNamespace(status=SimpleNamespace(succeeded=not failed, failed=failed, active=0))

    def delete_namespaced_job(self, name: str, namespace: str, propagation_policy: str) -> None:
        self.deleted.append(name)

    def list_node(self) -> Any:
        node = SimpleNamespace(status=SimpleNamespace(allocatable={"nvidia.com/gpu": "2"}))
        return SimpleNamespace(items=[node, node])

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
        client = SimpleNamespace(BatchV1Api=lambda: self, CoreV1Api=lambda: self)
        config = SimpleNamespace(load_config=lambda: None)
        monkeypatch.setitem(sys.modules, "kubernetes", SimpleNamespace(client=client, config=config))  # type: ignore[arg-type]
        return self


@pytest.fixture
def folder(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the plugin."""
    (with_store / "plugins/executors").mkdir(parents=True)
    (with_store / "plugins/executors/kubernetes.py").write_text(PLUGIN.read_text())
    monkeypatch.chdir(with_store)
    monkeypatch.setattr(drive, "_POLL_SECONDS", 0.0)
    return with_store


WORDS = ["-m", "model=nano/6k,nano/15k", "dataset=pydocs", "dataset.documents=2", "analyzers=[]", "engine.threads=1"]
CLUSTER = ["launch=kubernetes", "launch.claim=work", "launch.gpus=0", "launch.jobs=2"]


def test_an_executor_is_one_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs that are lost begin again; the second finds that nothing is left."""
    cluster = FakeCluster(crashes=2).installed(monkeypatch)
    assert measure.main([*WORDS, *CLUSTER]) == 0
    shown = capsys.readouterr()
    assert "jobs run on Kubernetes (2 nodes)" in shown.out
    assert "2 measured" in shown.out
    assert "2 jobs were lost, and are begun again: its pod failed" in shown.err
    assert len(cluster.pods) == 4
    (first, *_) = cluster.pods.values()
    assert first["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "work"}
    assert measure.main([*WORDS, *CLUSTER]) == 0  # all is measured
    assert "2 skipped as already measured" in capsys.readouterr().out
    assert len(cluster.pods) == 4


def test_an_executor_s_options_are_those_of_its_dataclass(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeCluster().installed(monkeypatch)
    assert plugins.main([]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "kubernetes (executor plugins/executors/kubernetes.py)" in shown
    assert "Run jobs on a Kubernetes cluster, each as a Job of its own." in shown
    assert "image=rbptrack:latest claim= namespace=default jobs=8" in shown
    assert plan.main([*WORDS, *CLUSTER]) == 0
    assert "launch=kubernetes: 2 tasks for 2 jobs at a time" in capsys.readouterr().out
    for words, message in (
        (["launch.claim=work", "launch.gpus=3"], r"launch\.gpus=3, but no node has more than 2"),
        (["launch.gpus=1"], r"launch\.claim names the volume"),
        (["launch.partition=gpu"], r"launch\.partition=gpu is an option of launch=slurm; this is launch=kubernetes"),
    ):
        with pytest.raises(BadInput, match=message):
            measure.main([*WORDS, "dataset.seed=9", "launch=kubernetes", *words])


def test_no_secret_stands_in_a_manifest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rbptrack.analysis.discovery import EXECUTORS, discover

    executor = discover(EXECUTORS).select("kubernetes")(claim="work")  # type: ignore[call-arg]
    executor._names = {0: "job"}  # type: ignore[attr-defined]
    manifest = executor._manifest(made_job(secrets=("MLFLOW_TRACKING_PASSWORD",)))  # type: ignore[attr-defined]
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    reference = {"name": "rbptrack", "optional": False, "key": "MLFLOW_TRACKING_PASSWORD"}
    assert container["env"] == [{"name": "MLFLOW_TRACKING_PASSWORD", "valueFrom": {"secretKeyRef": reference}}]
