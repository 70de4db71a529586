"""Presets: cells become jobs on engines that really run here, Ray and SLURM, and survive what is killed under them."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rbptrack import interrupts
from rbptrack.config import check
from rbptrack.config.compose import Request, measuring, sweep_of
from rbptrack.config.schema import (
    Config,
    FilterConfig,
    Group,
    LaunchConfig,
    ModelConfig,
    Parallel,
    TrackingConfig,
    Where,
)
from rbptrack.errors import BadInput
from rbptrack.measurement import Shard
from rbptrack.sweep import jobs, launch, launchers, ray_cluster, work
from rbptrack.sweep import slurm as slurm_preset
from rbptrack.sweep.outcome import Outcome
from rbptrack.tracking import Connection, Reader
from tests import slurm
from tests.conftest import Program, Start
from tests.patience import PATIENCE
from tests.server import free_port

RAY = importlib.util.find_spec("ray") is not None and importlib.util.find_spec("hydra_plugins.hydra_ray_launcher")
SUBMITIT = importlib.util.find_spec("submitit") is not None
needs_ray = pytest.mark.skipif(not RAY, reason="needs rbptrack[ray]")
needs_slurm = pytest.mark.skipif(
    not SUBMITIT or bool(slurm.missing()), reason=slurm.missing() or "needs rbptrack[slurm]"
)
# Small parts, of which a job that is lost leaves some.
ONE_MODEL = ("model=nano/38k", "dataset=stdlib,pydocs", "dataset.documents=4", "engine.part_tokens=500")
CELLS = ("model=nano/38k,nano/15k", *ONE_MODEL[1:])
QUICK = ("-m", "engine.threads=1", "analyzers=[]")

Measured = dict[str, tuple[float, float]]  # number of tokens and CE, by the names of model and dataset


def finished(folder: Path) -> Measured:
    """What each finished measurement holds; fails where there are two of one name."""
    runs = Reader(Connection(TrackingConfig(uri=f"sqlite:///{folder}/mlruns/mlflow.db"))).runs(FilterConfig())
    names = [f"{m} / {d}" for m, d in zip(runs.frame["model"], runs.frame["dataset"], strict=True)]
    assert len(set(names)) == len(names)
    return dict(zip(names, zip(runs.frame["num_tokens"], runs.frame["ce"], strict=True), strict=True))


def all_finished(folder: Path) -> int:
    """How many finished measurements there are, of the same cell too."""
    connection = Connection(TrackingConfig(uri=f"sqlite:///{folder}/mlruns/mlflow.db"))
    wanted = "tags.`rbptrack.kind` = 'measurement' and attributes.status = 'FINISHED'"
    return len(Reader(connection).search(wanted))


@pytest.fixture(scope="module")
def local(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """What the cells measure in one process."""
    folder = tmp_path_factory.mktemp("local")
    done = program(*QUICK, *CELLS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return finished(folder)


def test_a_job_is_a_model() -> None:
    request = measuring(["model=nano/6k,nano/15k", "dataset=stdlib,pydocs", "model.revision=main"])
    cells = sweep_of(request)[1]

    def numbers(cells: list[Config], group: Group) -> list[list[int]]:
        return [[task.number for task in job] for job in jobs.grouped(cells, group)]

    assert numbers(cells, Group.model) == [[0, 1], [2, 3]]
    assert numbers(cells, Group.cell) == [[0], [1], [2], [3]]
    assert numbers([cells[0], cells[2], cells[1]], Group.model) == [[0, 2], [1]]


def test_presets_fill_in_what_was_found_necessary() -> None:
    def preset(*words: str) -> LaunchConfig:
        return sweep_of(measuring(["dataset=pydocs", "model=nano/6k", *words]))[0].launch

    assert preset() == LaunchConfig()
    ray = launchers.overrides(preset("launch=ray"), name="x")
    assert {
        "hydra/launcher=ray",
        "++hydra.launcher.ray.init.address='auto'",
        "++hydra.launcher.ray.init.object_store_memory=null",
        "++hydra.launcher.ray.init.include_dashboard=false",
        "++hydra.launcher.ray.remote.num_gpus=1",
    } <= set(ray)
    own = launchers.overrides(preset("launch=gpus"), name="x")
    assert "++hydra.launcher.ray.init.address=local" in own, "not whatever cluster this machine belongs to"
    words = ["launch=slurm", "launch.partition=a100", "launch.account=me", "launch.setup=module load cuda,ulimit -c 0"]
    queued = launchers.overrides(preset(*words), name="rbptrack-1")
    assert {
        "hydra.launcher.gres='gpu:1'",
        "hydra.launcher.partition='a100'",
        "hydra.launcher.account='me'",
        "hydra.launcher.timeout_min=240",
        "hydra.launcher.setup=['module load cuda','ulimit -c 0']",
        "+hydra.launcher.additional_parameters.requeue=true",
    } <= set(queued)
    with pytest.raises(BadInput, match=r"launch\.cpus must be at least 1; got 0"):
        preset("launch=slurm", "launch.cpus=0")


@pytest.mark.parametrize(("where", "extra"), [(Where.ray, "ray"), (Where.gpus, "ray"), (Where.slurm, "slurm")])
def test_a_missing_extra_is_said(where: Where, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "find_spec", lambda name: None)
    with pytest.raises(
        BadInput, match=rf"launch={where.value} needs the extra {extra}: pip install 'rbptrack\[{extra}\]'"
    ):
        launchers.check(LaunchConfig(where=where), 1)


@needs_ray
def test_what_can_never_be_had_is_said_at_once() -> None:
    with pytest.raises(BadInput, match=r"launch\.gpus=99, but this machine has .*launch\.gpus=0 measures on CPUs"):
        launchers.check(LaunchConfig(where=Where.gpus, gpus=99), 1)
    began = time.monotonic()
    with pytest.raises(BadInput, match="no Ray cluster answers there"):
        launchers.check(LaunchConfig(where=Where.ray, address=f"127.0.0.1:{free_port()}"), 1)
    assert time.monotonic() - began < 50  # Ray itself would try for a minute


@needs_ray
def test_what_no_node_of_ray_has_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would wait for such a node for ever."""
    nodes = [ray_cluster.Node(gpus=0, cpus=64), ray_cluster.Node(gpus=4, cpus=8)]
    monkeypatch.setattr(ray_cluster, "nodes", lambda launch: nodes)

    def check(**options: object) -> str:
        return launchers.check(LaunchConfig(where=Where.ray, **options), 9)  # type: ignore[arg-type]

    assert check(gpus=1, cpus=1) == "jobs run on 2 nodes of Ray, 4 at a time"
    assert check(gpus=1, cpus=4).endswith(", 2 at a time")
    assert check(gpus=0, cpus=16).endswith(", 4 at a time")
    assert check(gpus=0, cpus=1).endswith(", 9 at a time")
    for options, message in (
        ({"gpus": 5}, r"launch\.gpus=5, but the largest of 2 nodes of Ray has 4 GPUs; launch\.gpus=0 measures on CPUs"),
        ({"gpus": 1, "cpus": 9}, r"launch\.cpus=9, but the largest of 2 nodes of Ray with 1 GPU has 8 CPUs; ask"),
        ({"gpus": 0, "cpus": 65}, r"launch\.cpus=65, but the largest of 2 nodes of Ray has 64 CPUs; ask for less"),
    ):
        with pytest.raises(BadInput, match=message):
            check(**options)
    with pytest.raises(BadInput, match=r"launch\.cpus=999, but this machine has \d+ CPUs?; ask for less"):
        launchers.check(LaunchConfig(where=Where.gpus, cpus=999), 1)


@pytest.mark.parametrize(
    ("launched", "message"),
    [
        (LaunchConfig(partition="gpu"), "launch.partition=gpu is for launch=slurm; this is launch=local"),
        (LaunchConfig(gpus=4), "launch.gpus=4 is for launch=gpus or launch=ray or launch=slurm; this is launch=local"),
        (LaunchConfig(where=Where.ray, setup=["x"]), r"launch.setup=\['x'\] is for launch=slurm; this is launch=ray"),
        (
            LaunchConfig(where=Where.slurm, address="auto"),
            "launch.address=auto is for launch=ray; this is launch=slurm",
        ),
    ],
)
def test_an_option_of_another_preset_is_refused(launched: LaunchConfig, message: str) -> None:
    """Else a sweep whose `launch=slurm` was forgotten would run on the login node."""
    with pytest.raises(BadInput, match=message):
        check._check_launch(launched)


def test_an_address_without_a_port_is_said_at_once() -> None:
    with pytest.raises(BadInput, match=r"launch\.address=first: expected auto .* HOST:PORT of its head"):
        ray_cluster._check_address("first")


def test_a_cluster_of_other_machines_needs_ray_s_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would look for a minute for a node here."""
    monkeypatch.setattr(psutil, "process_iter", lambda attrs: [])
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(BadInput, match=r"is no node of that cluster: launch\.address=ray://127\.0\.0\.1:10001"):
            ray_cluster._check_address(address)
        ray_cluster._check_address(f"ray://{address}")


def test_a_split_model_needs_the_gpus_of_its_job() -> None:
    launched = LaunchConfig(where=Where.slurm, gpus=2)

    def model(**options: object) -> ModelConfig:
        return ModelConfig(family="x", size="1b", parallel=Parallel.tensor, **options)  # type: ignore[arg-type]

    launchers._check_split(launched, model())
    launchers._check_split(replace(launched, gpus=0), model(device="cpu", processes=2))
    launchers._check_split(replace(launched, gpus=1), replace(model(), parallel=Parallel.auto))
    with pytest.raises(
        BadInput, match=r"model x-1b .*launch\.gpus=1: give launch\.gpus=4, say; plan on=h100 says how many"
    ):
        launchers._check_split(replace(launched, gpus=1), model())
    with pytest.raises(BadInput, match=r"which has launch\.gpus=2: give launch\.gpus=4$"):
        launchers._check_split(launched, model(processes=4))


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def answering(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Programs of a cluster, as shell lines."""
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_what_slurm_can_never_give_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the partition that the jobs would be in: the default one, where none is named."""
    (tmp_path / "nodes").write_text("a1|(null)|8|infinite|64000|cpu*\nb1|gpu:4|64+|2:00:00|512000+|gpu\n")
    answering(
        tmp_path,
        monkeypatch,
        sbatch="",
        sinfo=f"""
        case "$*" in *partition=gpu*) grep gpu {tmp_path}/nodes;; *partition=*) ;; *) cat {tmp_path}/nodes;; esac""",
    )

    def check(**options: object) -> str:
        return slurm_preset.check(LaunchConfig(where=Where.slurm, **options))  # type: ignore[arg-type]

    assert check(partition="gpu", gpus=4, cpus=64, memory=500, time=120) == "jobs go into SLURM's queue (1 node)"
    for options, message in (
        (
            {"gpus": 1},
            "launch.gpus=1, but the default partition cpu has at most 0 GPUs on a node; ask for launch.gpus=0",
        ),
        ({"cpus": 9}, "launch.cpus=9, but the default partition cpu has at most 8 CPUs on a node; ask for less"),
        ({"memory": 501, "partition": "gpu"}, "launch.memory=501, but partition gpu has at most 500 GB on a node"),
        ({"time": 121, "partition": "gpu"}, "launch.time=121, but partition gpu has at most 120 minutes for a job"),
        ({"partition": "none"}, "the cluster has no partition none; sinfo lists what there is"),
    ):
        with pytest.raises(BadInput, match=message):
            check(**options)


def test_a_controller_that_does_not_answer_is_said_and_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unable = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    answering(tmp_path, monkeypatch, sbatch="", sinfo=f"echo '{unable}' >&2; exit 1")
    with pytest.raises(BadInput, match=r"the cluster does not answer: .*Unable to contact slurm controller"):
        slurm_preset.check(LaunchConfig(where=Where.slurm))
    answering(tmp_path, monkeypatch, sinfo="exec sleep 600")
    with monkeypatch.context() as patch:
        patch.setattr(slurm_preset, "_ANSWER_SECONDS", 0.2)
        with pytest.raises(BadInput, match=r"the cluster does not answer within 0\.2 s; try again"):
            slurm_preset.check(LaunchConfig(where=Where.slurm))
    monkeypatch.setattr(slurm_preset, "_POLL_SECONDS", 0.0)
    looks = "echo >> looks; case $(wc -l < looks) in 1) echo 5_0;; 2|3) exit 1;; esac"  # then the queue is empty
    answering(tmp_path, monkeypatch, squeue=looks)
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    slurm_preset.wait("rbptrack-1", said.append)
    assert len((tmp_path / "looks").read_text().splitlines()) == 4
    assert said == ["launch=slurm: the cluster does not answer; the sweep waits for it, and its jobs go on"]  # once
    assert slurm_preset.reason("rbptrack-1") == ""
    answering(tmp_path, monkeypatch, squeue="exit 1", scancel="exit 1")
    assert slurm_preset.reason("rbptrack-1") == "the cluster does not answer"
    slurm_preset.cancel("rbptrack-1", said.append)
    assert said[1].endswith("and the jobs go on; end them with: scancel --me --name=rbptrack-1")


@pytest.mark.skipif(not SUBMITIT, reason="needs rbptrack[slurm]")
def test_jobs_that_slurm_does_not_take_are_said_once_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from submitit.slurm.slurm import SlurmJob

    monkeypatch.setattr(SlurmJob, "watcher", SlurmJob.watcher)
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    refusing = "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1"
    answering(
        programs, monkeypatch, sbatch=refusing, sinfo="echo 'n1|gpu:1|8|infinite|64000|main*'", squeue="", srun=""
    )
    request = measuring(["-m", "model=nano/6k,nano/15k", "dataset=pydocs", "launch=slurm", "launch.account=nobody"])
    with pytest.raises(BadInput, match=r"^launch=slurm: the cluster does not take these jobs: Invalid account$"):
        launch.Sweep(request, *sweep_of(request), [], [])._launch_jobs()
    assert capfd.readouterr().err == ""
    assert not list(work.iterdir())
    # Where jobs of the first round have begun, their cells are kept.
    sweep = launch.Sweep(request, *sweep_of(request), [], [])
    Outcome("nano-6k / pydocs", "nano-6k", "pydocs", "measured").write(made(sweep.folder / "0"))
    (sweep.folder / "job-0.log").touch()
    assert sweep._launch_jobs() == 0
    assert "error: launch=slurm: the cluster does not take these jobs: Invalid account" in capfd.readouterr().err
    assert [task.ended(sweep.folder) for task in (jobs.Task(0, Shard()), jobs.Task(1, Shard()))] == [True, False]


@pytest.mark.parametrize(("number", "code", "asked"), [(signal.SIGINT, 130, "cancelled"), (signal.SIGHUP, 129, "told")])
def test_while_the_others_are_waited_for_ctrl_c_ends_the_jobs_and_a_closed_terminal_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int, asked: str
) -> None:
    did: list[str] = []

    def waits(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.chdir(tmp_path)
    for name in ("_received", "_stop"):
        monkeypatch.setattr(interrupts, name, getattr(interrupts, name))
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP)}
    monkeypatch.setattr(launchers, "check", lambda *_: "jobs go into SLURM's queue (2 nodes)")
    monkeypatch.setattr(launchers, "prepare", lambda launch, name: None)
    monkeypatch.setattr(launchers, "wait_for_others", waits)
    monkeypatch.setattr(launchers, "cancel", lambda *_, **__: did.append("cancelled"))
    monkeypatch.setattr(launch, "say", lambda line: did.append("told") if "go on in SLURM's queue" in line else None)
    monkeypatch.setattr(Request, "launch", lambda *_, **__: None)
    request = measuring(["-m", "model=nano/6k", "dataset=pydocs", "launch=slurm"])
    try:
        for each in before:
            signal.signal(each, interrupts._stop)
        assert launch.Sweep(request, *sweep_of(request), [], [])._launch_jobs() == code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert did == [asked]


def test_of_a_job_that_slurm_lost_its_last_words_are_told() -> None:
    said = "Job 17_0 (task: 0) with path /x/17_0_result.pkl\nhas not produced any output (state: FAILED)"
    lost = functools.partial(launchers.lost, LaunchConfig(where=Where.slurm))
    assert lost(RuntimeError(said)) == "launch=slurm: job 17_0 was lost (FAILED)"
    stream = f"{said}\nError stream produced:\n{'-' * 40}\nModules:\nslurm_script: line 18: module: command not found\n"
    assert lost(RuntimeError(stream)).endswith("was lost (FAILED): slurm_script: line 18: module: command not found")
    assert lost(RuntimeError("else")) == "launch=slurm gave up: RuntimeError: else"


def test_limits_of_slurm_are_read() -> None:
    assert [slurm_preset.gpus_of(g) for g in ("gpu:2", "gpu:a100:4(S:0-1)", "(null)", "gpu:2,gpu:mig:3")] == [
        2,
        4,
        0,
        5,
    ]
    assert [slurm_preset.minutes(t) for t in ("30:00", "2:00:00", "1-12:00:00")] == [30, 120, 2160]
    assert slurm_preset.minutes("infinite") == float("inf")


def test_a_job_that_slurm_no_longer_lists_has_ended() -> None:
    """So that a job that was killed is not waited for: where no accounts are kept, nothing else tells of it."""
    listed = "5_0|RUNNING\n5_1|FAILED\n5_2|PENDING\n7|RUNNING\n"
    found = slurm_preset.states(listed, ["5_0", "5_1", "5_2", "5_3"])
    assert {job: info["State"] for job, info in found.items()} == {
        "5_0": "RUNNING", "5_1": "FAILED", "5_2": "PENDING", "5_3": "ENDED"
    }  # fmt: skip
    assert slurm_preset.states("", []) == {}


@pytest.mark.skipif(not SUBMITIT, reason="needs rbptrack[slurm]")
def test_submitit_looks_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from submitit.core.logger import get_logger
    from submitit.slurm.slurm import SlurmJob

    monkeypatch.setattr(SlurmJob, "watcher", SlurmJob.watcher)
    monkeypatch.chdir(tmp_path)
    answering(tmp_path, monkeypatch, squeue='echo "$@" >> asked; cat listed')
    slurm_preset.prepare("rbptrack-1")
    (tmp_path / "listed").write_text("5_0|RUNNING\n5_1|PENDING\n")
    lost = [SlurmJob(tmp_path, "5_0"), SlurmJob(tmp_path, "5_1")]
    assert [job.state for job in lost] == ["RUNNING", "PENDING"]
    assert "--name=rbptrack-1" in (tmp_path / "asked").read_text()
    (tmp_path / "listed").write_text("5_1|PENDING\n")
    SlurmJob.watcher.update()
    assert [SlurmJob.watcher.is_done(job.job_id, mode="cache") for job in lost] == [True, False]
    (tmp_path / "listed").unlink()  # a controller that does not answer tells nothing
    SlurmJob.watcher.update()
    assert not SlurmJob.watcher.is_done("5_1", mode="cache")
    get_logger().warning("nothing of this is printed")
    assert capfd.readouterr().out == capfd.readouterr().err == ""


@needs_ray
def test_a_killed_ray_worker_loses_nothing(start: Start, with_store: Path, local: Measured) -> None:
    """Of cells that are measured in two shards, each of which is a job's; it dies with a part (tests/startup)."""
    died = with_store / "died"
    told = {"PYTHONPATH": str(Path(__file__).parent / "startup"), "RBPTRACK_TESTS_DIE": str(died)}
    process = start(*QUICK, *ONE_MODEL, "launch=gpus", "launch.gpus=0", "shards=2", cwd=with_store, **told)
    try:
        assert process.wait(PATIENCE) == 0, process.said
    finally:
        process.kill()
    assert died.exists()
    measured = {name: numbers for name, numbers in local.items() if name.startswith("nano-38k /")}
    assert finished(with_store) == measured
    assert all_finished(with_store) == len(measured) == 2
    said = process.said[0]
    assert all(said.count(f"[{n}/2]") == 1 for n in (1, 2)), said  # each cell ends once
    assert "2 measured" in said


@needs_slurm
def test_slurm_measures_what_one_process_does(start: Start, with_store: Path, local: Measured) -> None:
    with slurm.running(silence=100) as cluster:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
            with pytest.raises(BadInput, match=r"launch\.time=100, but the default partition main has at most 60"):
                launchers.check(LaunchConfig(where=Where.slurm, cpus=1, time=100), 1)
            with pytest.raises(BadInput, match=r"launch\.gpus=2, but the default partition main has at most 1 GPU"):
                launchers.check(LaunchConfig(where=Where.slurm, gpus=2, cpus=1, time=1), 1)
        words = ("launch=slurm", "launch.gpus=1", "launch.cpus=1", "launch.time=10")
        process = start(*QUICK, *CELLS, *words, cwd=with_store, **cluster.environment)
        try:
            assert process.wait(PATIENCE) == 0, process.said
        finally:
            process.kill()
    assert finished(with_store) == local
    assert all_finished(with_store) == len(local) == 4
    assert len(list(with_store.glob("mlruns/hydra/*/job-*.log"))) == 2  # a job is a model


class RayletDied(Exception):
    """As Ray raises one."""


def test_a_launcher_that_gives_up_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def dies(composed: object) -> None:
        raise RayletDied("The task's local raylet died.\nCheck raylet.out.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launchers, "check", lambda *_: "jobs run on 2 nodes of Ray")
    monkeypatch.setattr(launchers, "overrides", lambda launch, name: [])  # Hydra's own launcher
    monkeypatch.setattr(launchers, "prepare", lambda launch, name: None)
    monkeypatch.setattr(work, "launched_job", dies)
    request = measuring(["-m", "model=nano/6k", "dataset=pydocs", "launch=ray"])
    sweep = launch.Sweep(request, *sweep_of(request), [], [])
    assert sweep._launch_jobs() == 0
    said = capfd.readouterr()
    assert "the tracking store is a SQLite file, which only one machine may write" in said.out
    line = "error: launch=ray gave up: RayletDied: The task's local raylet died. Check raylet.out."
    assert [text for text in said.err.splitlines() if text and not text.startswith("Error executing job")] == [
        line,
        "error: not ended: 1 job; launched once more",
        line,
    ]


def test_what_else_sbatch_takes_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/cluster.md has it."""
    handed: list[str] = []

    def launched(request: Request, job: object, *, extra: Sequence[str]) -> None:
        handed.extend([*request.overrides, *extra])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launchers, "check", lambda *_: "jobs go into SLURM's queue (2 nodes)")
    for name in ("prepare", "wait_for_others"):
        monkeypatch.setattr(launchers, name, lambda *_, **__: None)
    monkeypatch.setattr(Request, "launch", launched)
    more = "+hydra.launcher.additional_parameters.qos=low"
    request = measuring(["-m", "model=nano/6k", "dataset=pydocs", "launch=slurm", "launch.partition=a100", more])
    assert launch.Sweep(request, *sweep_of(request), [], [])._launch_jobs() == 0
    assert {more, "hydra/launcher=submitit_slurm", "hydra.launcher.partition='a100'"} <= set(handed)
    assert not any(word.startswith(("model=", "dataset=", "launch.partition=")) for word in handed)


@needs_ray
def test_a_ray_of_another_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called a cluster that is not there, or that asks for its token."""
    import ray
    from ray._private.utils import check_version_info

    def connects(**_: object) -> None:
        check_version_info({"ray_version": "2.1.0", "python_version": "3.9.1"}, "10.0.0.1")

    monkeypatch.setattr(ray, "init", connects)
    with pytest.raises(BadInput, match=r"cluster was started with: Ray: 2\.1\.0 Python: 3\.9\.1 This .*same versions"):
        ray_cluster.nodes(LaunchConfig(where=Where.ray, address="auto"))


class LocalRayletDiedError(Exception):
    """As Ray raises it."""


def test_of_a_dead_raylet_it_is_told_where_its_log_is() -> None:
    line = launchers.lost(LaunchConfig(where=Where.gpus), LocalRayletDiedError("The task's local raylet died.\nx"))
    assert line.startswith("launch=gpus: Ray's process on this machine (raylet) has ended: it was killed")
    assert "\n" not in line


def test_of_a_worker_s_traceback_the_error_is_told() -> None:
    said = "ray::run()\n  File x\nModuleNotFoundError: No module named 'rbptrack'\nsee the log"
    line = launchers.lost(LaunchConfig(where=Where.ray), RuntimeError(said))
    assert line == "launch=ray gave up: ModuleNotFoundError: No module named 'rbptrack'"
