"""Presets: cells become jobs on engines that really run here, Ray and SLURM, and survive what is killed under them."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rbptrack.base import process
from rbptrack.base.errors import BadInput
from rbptrack.config import check
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import (
    Config,
    DatasetConfig,
    FilterConfig,
    LaunchConfig,
    ModelConfig,
    TrackingConfig,
    Where,
)
from rbptrack.ranks.measurement import Shard
from rbptrack.sweep import drive as drive_module
from rbptrack.sweep import launch, presets, ray_cluster
from rbptrack.sweep import slurm as slurm_preset
from rbptrack.sweep.channel import Inbox, Teller, run
from rbptrack.sweep.drive import Drive
from rbptrack.sweep.executors import Executor, Phase, State
from rbptrack.sweep.jobs import Job, Task
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.ray_cluster import Ray
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.results import Results
from rbptrack.tracking.schema import Kind, Tag
from rbptrack.tracking.store import Store
from tests import slurm
from tests.conftest import Program, Start
from tests.patience import PATIENCE
from tests.server import free_port

RAY = importlib.util.find_spec("ray") is not None
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
    runs = Store(TrackingConfig(uri=f"sqlite:///{folder}/mlruns/mlflow.db")).reader.runs(FilterConfig())
    names = [f"{m} / {d}" for m, d in zip(runs.frame["model"], runs.frame["dataset"], strict=True)]
    assert len(set(names)) == len(names)
    return dict(zip(names, zip(runs.frame["num_tokens"], runs.frame["ce"], strict=True), strict=True))


def all_finished(folder: Path) -> int:
    """How many finished measurements there are, of the same cell too."""
    connection = Store(TrackingConfig(uri=f"sqlite:///{folder}/mlruns/mlflow.db"))
    return len(connection.reader.search({Tag.KIND: Kind.MEASUREMENT}, status="FINISHED"))


def job(number: int = 0, *, gpus: float = 0, folder: Path = Path(), config: Config | None = None) -> Job:
    config = config or Config(model=ModelConfig(family="nano", size="6k"), dataset=DatasetConfig(name="pydocs"))
    return Job(number, (Task(number, Shard(), config),), gpus, 5, folder / f"job-{number}.json", folder)


@pytest.fixture(scope="module")
def local(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """What the cells measure in one process."""
    folder = tmp_path_factory.mktemp("local")
    done = program(*QUICK, *CELLS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return finished(folder)


def test_presets_fill_in_what_was_found_necessary() -> None:
    def preset(*words: str) -> LaunchConfig:
        return sweep_of(measuring(["dataset=pydocs", "model=nano/6k", *words]))[0].launch

    assert preset() == LaunchConfig()
    words = ["launch=slurm", "launch.partition=a100", "launch.account=me", "launch.setup=module load cuda,ulimit -c 0"]
    told = slurm_preset.parameters(preset(*words, "+launch.sbatch.qos=low"), "rbptrack-1", gpus=1)
    assert told == {
        "name": "rbptrack-1",
        "timeout_min": 240,
        "cpus_per_task": 4,
        "nodes": 1,
        "tasks_per_node": 1,
        "slurm_signal_delay_s": 60,
        "slurm_gres": "gpu:1",
        "slurm_partition": "a100",
        "slurm_account": "me",
        "slurm_setup": ["module load cuda", "ulimit -c 0"],
        "slurm_additional_parameters": {"requeue": True, "qos": "low"},
    }
    with pytest.raises(BadInput, match=r"launch\.cpus must be at least 1; got 0"):
        preset("launch=slurm", "launch.cpus=0")


@pytest.mark.parametrize(("where", "extra"), [(Where.ray, "ray"), (Where.gpus, "ray"), (Where.slurm, "slurm")])
def test_a_missing_extra_is_said(where: Where, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "find_spec", lambda name: None)
    with pytest.raises(
        BadInput, match=rf"launch={where.value} needs the extra {extra}: pip install 'rbptrack\[{extra}\]'"
    ):
        presets.executor(LaunchConfig(where=where), name="x", tell=print)


@needs_ray
def test_what_can_never_be_had_is_said_at_once() -> None:
    with pytest.raises(BadInput, match=r"launch\.gpus=99, but this machine has .*launch\.gpus=0 measures on CPUs"):
        Ray(LaunchConfig(where=Where.gpus)).check([job(gpus=99)])
    with pytest.raises(BadInput, match="no Ray cluster answers there"):
        Ray(LaunchConfig(where=Where.ray, address=f"127.0.0.1:{free_port()}")).check([])


def test_what_no_node_of_ray_has_is_said_at_once() -> None:
    """Ray itself would wait for such a node for ever."""
    nodes = [ray_cluster.Node(gpus=0, cpus=64), ray_cluster.Node(gpus=4, cpus=8)]

    def check(**options: object) -> int:
        asked = LaunchConfig(where=Where.ray, **options)  # type: ignore[arg-type]
        gpus = float(asked.gpus)
        ray_cluster.check_nodes(asked, gpus, nodes, "2 nodes of Ray")
        return sum(node.jobs(gpus, asked.cpus) for node in nodes)

    assert check(gpus=1, cpus=1) == 4
    assert check(gpus=1, cpus=4) == 2
    assert check(gpus=0.1, cpus=1) == 8
    assert check(gpus=0, cpus=16) == 4
    for options, message in (
        ({"gpus": 5}, r"launch\.gpus=5, but the largest of 2 nodes of Ray has 4 GPUs; launch\.gpus=0 measures on CPUs"),
        ({"gpus": 1, "cpus": 9}, r"launch\.cpus=9, but the largest of 2 nodes of Ray with 1 GPU has 8 CPUs; ask"),
        ({"gpus": 0, "cpus": 65}, r"launch\.cpus=65, but the largest of 2 nodes of Ray has 64 CPUs; ask for less"),
    ):
        with pytest.raises(BadInput, match=message):
            check(**options)
    with pytest.raises(BadInput, match=r"launch\.cpus=999, but this machine has \d+ CPUs?; ask for less"):
        Ray(LaunchConfig(where=Where.gpus, cpus=999)).check([job()])


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
        gpus = float(options.get("gpus", 0))  # type: ignore[arg-type]
        return slurm_preset.Slurm(LaunchConfig(where=Where.slurm, **options), "x", print).check([job(gpus=gpus)])  # type: ignore[arg-type]

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
        slurm_preset.nodes(LaunchConfig(where=Where.slurm))
    answering(tmp_path, monkeypatch, sinfo="exec sleep 600")
    with monkeypatch.context() as patch:
        patch.setattr(slurm_preset, "_ANSWER_SECONDS", 0.2)
        with pytest.raises(BadInput, match=r"the cluster does not answer within 0\.2 s; try again"):
            slurm_preset.nodes(LaunchConfig(where=Where.slurm))
    monkeypatch.setattr(slurm_preset, "_LOOK_SECONDS", 0.0)
    said: list[str] = []
    queue = slurm_preset.Slurm(LaunchConfig(where=Where.slurm), "rbptrack-1", said.append)
    queue._handles[0] = SimpleNamespace(job_id="5_0", paths=SimpleNamespace(stderr=tmp_path / "stderr"))
    looks = """echo >> looks
    case $(wc -l < looks) in 1) echo '5_0|PENDING|Priority';; 2|3) exit 1;; 4) echo '5_0|FAILED|x';; esac"""
    answering(tmp_path, monkeypatch, squeue=looks)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stderr").write_text("Modules:\nslurm_script: line 18: module: command not found\n")
    states = [queue.states()[0] for _ in range(5)]
    waits = State(Phase.waiting, "Priority")  # as far as is known
    why = "job 5_0, FAILED: slurm_script: line 18: module: command not found"
    assert states == [waits, waits, waits, State(Phase.gone, why), State(Phase.gone)]
    assert said == ["launch=slurm: the cluster does not answer; the sweep waits for it, and its jobs go on"]  # once
    answering(tmp_path, monkeypatch, scancel="exit 1")
    queue.cancel()
    assert said[1].endswith("and the jobs go on; end them with: scancel --me --name=rbptrack-1")


def sweep(*words: str) -> launch.Sweep:
    request = measuring(["-m", "model=nano/6k", "dataset=pydocs", *words])
    settings, cells = sweep_of(request)
    resolver = Resolver()
    return launch.Sweep(request, settings, cells, [resolver.resolve(cell) for cell in cells], [], [])


@pytest.mark.skipif(not SUBMITIT, reason="needs rbptrack[slurm]")
def test_jobs_that_slurm_does_not_take_are_said_once_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    refusing = "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1"
    answering(
        programs,
        monkeypatch,
        sbatch=refusing,
        sinfo="echo 'n1|gpu:1|8|infinite|64000|main*'",
        srun="",
        scancel="",
        scontrol="echo 'MaxArraySize = 1'",
    )
    with pytest.raises(BadInput, match=r"^launch=slurm: the cluster does not take these jobs: Invalid account$"):
        sweep("model=nano/6k,nano/15k", "launch=slurm", "launch.account=nobody")._measure()
    assert capfd.readouterr().err == ""
    assert not list(work.iterdir())


@pytest.mark.skipif(not SUBMITIT, reason="needs rbptrack[slurm]")
def test_an_array_holds_jobs_with_as_many_gpus_as_the_cluster_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(
        tmp_path,
        monkeypatch,
        sbatch="echo $(grep -h -e --array= -e --gres= $1) >> arrays; echo Submitted batch job $(wc -l < arrays)",
        srun="",
        scontrol="echo 'MaxArraySize            = 2'",
    )
    monkeypatch.chdir(tmp_path)
    todo = [job(number, gpus=gpus, folder=tmp_path) for number, gpus in enumerate((1, 4, 1, 0.3, 4))]
    queue = slurm_preset.Slurm(LaunchConfig(where=Where.slurm, jobs=4), "x", print)
    queue.submit(todo)
    assert (tmp_path / "arrays").read_text().splitlines() == [
        "#SBATCH --array=0-1%1 #SBATCH --gres=gpu:1",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --array=0-1%1 #SBATCH --gres=gpu:4",
    ]
    handles = {n: handle.job_id for n, handle in queue._handles.items()}
    assert handles == {0: "1_0", 2: "1_1", 3: "2", 1: "3_0", 4: "3_1"}


class Fake(Executor):
    """An executor whose jobs do what a function does with them; each is gone thereafter."""

    elsewhere, outlives = True, "the jobs go on"

    def gpus(self) -> list[str]:
        return []

    def __init__(self, do: Callable[[Job], None], why: str = "") -> None:
        self.do, self.why, self.submitted, self.cancelled = do, why, list[int](), False

    def check(self, jobs: Sequence[Job]) -> str:
        return ""

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.submitted.append(job.number)
            self.do(job)

    def states(self) -> dict[int, State]:
        return dict.fromkeys(self.submitted, State(Phase.gone, self.why))

    def cancel(self) -> None:
        self.cancelled = True


def driven(executor: Fake, folder: Path, *, retries: int = 2) -> tuple[Drive, list[str]]:
    cells = sweep_of(measuring(["model=nano/6k,nano/15k", "dataset=pydocs"]))[1]
    todo = [job(number, folder=folder, config=config) for number, config in enumerate(cells)]
    results, said = Results(), list[str]()
    return Drive(executor, todo, results, Inbox(results, total=2, aloud=True), retries, said.append), said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_ctrl_c_ends_the_jobs_and_a_closed_terminal_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    for name in ("_received", "_stop"):
        monkeypatch.setattr(process, name, getattr(process, name))
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP)}
    executor = Fake(lambda job: os.kill(os.getpid(), number))
    drive, said = driven(executor, tmp_path)
    try:
        for each in before:
            signal.signal(each, process._stop)
        assert drive.run(total=2) == code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert not said
    shown = capsys.readouterr().out
    assert (executor.cancelled, shown) == ((True, "") if code == 130 else (False, "the jobs go on\n"))


def test_a_job_that_is_lost_begins_again_as_often_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does not do twice what it had told of."""
    monkeypatch.setattr(drive_module, "_POLL_SECONDS", 0.0)

    def do(job: Job) -> None:
        (task,), begun = job.tasks, executor.submitted.count(job.number)
        if job.number == 0:
            teller = Teller(job)
            if begun == 2:
                teller.ended(task, Outcome("nano-6k / pydocs", "nano-6k", "pydocs", "failed", message="x"), whole=True)
                teller.close()

    executor = Fake(do, why="NODE_FAIL")
    drive, said = driven(executor, tmp_path)
    assert drive.run(total=2) == 0
    assert executor.submitted == [0, 1, 0, 1, 1]
    assert said == [
        "2 jobs were lost, and are begun again: NODE_FAIL",
        "1 job was lost, and is begun again: NODE_FAIL",
        "1 job was lost: NODE_FAIL",
    ]
    configs = [job.tasks[0].config for job in drive.jobs]
    assert [o.message for o in drive.results.collect(configs)] == ["x", "its job never began"]
    assert capsys.readouterr().out.count("nano-6k / pydocs  failed: x") == 1
    again = Teller(drive.jobs[0])
    assert again.known(drive.jobs[0].tasks[0])


def test_a_job_that_gives_up_says_why_and_does_not_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    executor = Fake(lambda job: run(job, over="over launch.time=5 (minutes) 3 times"))
    drive, said = driven(executor, tmp_path)
    assert drive.run(total=2) == 0
    assert (executor.submitted, said) == ([0, 1], [])
    configs = [job.tasks[0].config for job in drive.jobs]
    assert {o.message for o in drive.results.collect(configs)} == {"over launch.time=5 (minutes) 3 times"}


def test_a_job_that_slurm_no_longer_lists_has_ended() -> None:
    """So that a job that was killed is not waited for: where no accounts are kept, nothing else tells of it."""
    listed = ["5_0|RUNNING|None", "5_1|FAILED|NonZeroExitCode", "5_2|PENDING|Priority", "7|COMPLETING|None"]
    states = {job: slurm_preset.state_of(job, listed) for job in ("5_0", "5_1", "5_2", "5_3", "7")}
    assert states == {
        "5_0": State(Phase.running),
        "5_1": State(Phase.gone, "FAILED"),
        "5_2": State(Phase.waiting, "Priority"),
        "5_3": State(Phase.gone),
        "7": State(Phase.running),
    }


@pytest.mark.skipif(not SUBMITIT, reason="needs rbptrack[slurm]")
@pytest.mark.parametrize("left", [True, False])
def test_a_job_over_its_time_says_so_whatever_the_signal_met(
    left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that was being imported turned it into a broken model."""
    from submitit.core.utils import UncompletedJobError

    def requeue(number: int, frame: object) -> None:
        requeued.append(number)
        raise SystemExit(-1) if left else UncompletedJobError("timed-out too many times")

    def measures(job: Job, *, over: str = "") -> None:
        did.append(over)
        if not over:
            try:
                os.kill(os.getpid(), signal.SIGUSR2)
            except SystemExit:
                process.raise_if_stopped()
                raise

    requeued, did = list[int](), list[str]()
    monkeypatch.setattr(process, "_received", 0)
    monkeypatch.setattr(slurm_preset, "run", measures)
    before = {n: signal.getsignal(n) for n in (signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    config = sweep_of(measuring(["model=nano/6k", "dataset=pydocs", "launch=slurm", "launch.time=5"]))[1][0]
    late = job(folder=tmp_path, config=config)
    try:
        signal.signal(signal.SIGUSR2, requeue)
        if left:
            with pytest.raises(SystemExit, match="-1"):
                slurm_preset.Work()(late)
        else:
            slurm_preset.Work()(late)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert requeued == [signal.SIGUSR2]
    assert did == [""] if left else ["", "over launch.time=5 (minutes) 3 times; the same command continues there"]


@needs_ray
def test_each_job_of_ray_is_a_process_that_sees_its_own_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was used again kept the device and the memory cap of its first job; the GPUs here are made up."""
    # Ray counts them, and looks for no device.
    monkeypatch.setattr(ray_cluster, "_this_machine", lambda: ray_cluster.Node(gpus=2, cpus=2))

    def tells(job: Job) -> None:
        job.file.write_text(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}")

    monkeypatch.setattr(ray_cluster, "run", tells)
    cluster, todo = Ray(LaunchConfig(where=Where.gpus)), [job(n, gpus=1, folder=tmp_path) for n in range(4)]
    try:
        cluster.submit(todo)
        for _ in range(int(PATIENCE / 0.1)):
            states = cluster.states()
            if all(state.phase is Phase.gone for state in states.values()):
                break
            time.sleep(0.1)
    finally:
        cluster.cancel()
    assert set(states.values()) == {State(Phase.gone)}
    told = [each.file.read_text().split() for each in todo]
    assert len({process for process, _ in told}) == len(todo)
    assert {gpu for _, gpu in told} == {"0", "1"}


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
                slurm_preset.Slurm(LaunchConfig(where=Where.slurm, cpus=1, time=100), "x", print).check([])
            queue = slurm_preset.Slurm(LaunchConfig(where=Where.slurm, cpus=1, time=1), "x", print)
            with pytest.raises(BadInput, match=r"launch\.gpus=2, but the default partition main has at most 1 GPU"):
                queue.check([job(gpus=2)])
        words = ("launch=slurm", "launch.gpus=1", "launch.cpus=1", "launch.time=10")
        process = start(*QUICK, *CELLS, *words, cwd=with_store, **cluster.environment)
        try:
            assert process.wait(PATIENCE) == 0, process.said
        finally:
            process.kill()
    assert finished(with_store) == local
    assert all_finished(with_store) == len(local) == 4
    assert len(list(with_store.glob("mlruns/hydra/*/job-*.log"))) == 2  # a job is a model


@needs_ray
def test_a_ray_of_another_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called a cluster that is not there, or that asks for its token."""
    import ray
    from ray._private.utils import check_version_info

    def connects(**_: object) -> None:
        check_version_info({"ray_version": "2.1.0", "python_version": "3.9.1"}, "10.0.0.1")

    monkeypatch.setattr(ray, "init", connects)
    with pytest.raises(BadInput, match=r"cluster was started with: Ray: 2\.1\.0 Python: 3\.9\.1 This .*same versions"):
        ray_cluster.connect("auto")
