"""Presets: cells become jobs on engines that really run here, Ray and SLURM, and survive what is killed under them."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from rbptrack.plugins.executors import gpus as gpus_plugin
from rbptrack.plugins.executors import ray as ray_plugin
from rbptrack.plugins.executors import slurm as slurm_plugin
from rbptrack.plugins.executors.gpus import Gpus
from rbptrack.plugins.executors.ray import Ray
from rbptrack.plugins.executors.slurm import Slurm

from rbptrack.analysis.executors import Executor, Job, Phase, State
from rbptrack.base import process
from rbptrack.base.errors import BadInput
from rbptrack.config.request import sweep_of
from rbptrack.config.schema import (
    FilterConfig,
    TrackingConfig,
)
from rbptrack.sweep import drive as drive_module
from rbptrack.sweep import job as job_module
from rbptrack.sweep import launch
from rbptrack.sweep.drive import Drive
from rbptrack.sweep.executors import requested
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.reports import Inbox, Teller, report_file
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Pull, Tasks, left_for
from rbptrack.tracking.schema import Kind, Tag
from rbptrack.tracking.store import Store
from tests import slurm
from tests.conftest import Program, Start
from tests.jobs import asked, cells_file, job, tasks_of
from tests.patience import PATIENCE, until
from tests.server import OTHERS_WARN, free_port

RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not RAY, reason="needs rbptrack[ray]")
needs_slurm = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing())
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


@pytest.fixture(scope="module")
def local(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """What the cells measure in one process."""
    folder = tmp_path_factory.mktemp("local")
    done = program(*QUICK, *CELLS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return finished(folder)


def test_a_batch_script_asks_for_what_was_found_necessary(tmp_path: Path) -> None:
    queue = Slurm(partition="a100", account="me", setup=["module load cuda", "ulimit -c 0"], sbatch={"qos": "low"})
    todo = [job(number, folder=tmp_path, argv=("python", "a b"), environment={"A": "1 2"}) for number in (3, 4)]
    script = queue.script(todo, 1, at_a_time=2)
    asked_for = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert asked_for == [
        "job-name=rbptrack-test",
        "array=0-1%2",
        f"output={tmp_path}/slurm/%A_%a.out",
        "open-mode=append",
        "nodes=1",
        "ntasks=1",
        "cpus-per-task=4",
        "time=240",
        "signal=B:USR2@60",
        "requeue",
        "gres=gpu:1",
        "partition=a100",
        "account=me",
        "qos=low",
    ]
    assert "\nmodule load cuda\nulimit -c 0\n" in script
    assert "0) variables=('A=1 2'); argv=(python 'a b');;" in script
    for options in ({"time": 0}, {"jobs": 0}):
        with pytest.raises(BadInput, match=r"launch\.\w+ must be at least 1; got 0"):
            Slurm(**options)


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"), [(143, "0", True), (143, "2", False), (75, "9", True), (0, "2", False)]
)
def test_a_job_over_its_time_goes_back_into_the_queue_as_long_as_it_gets_on(
    code: int, restarts: str, requeued: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves what it has measured first, for which it needs SIGTERM."""
    answering(tmp_path, monkeypatch, scontrol=f"echo $* >> {tmp_path}/told")
    work = f"trap 'echo saved > saved; exit {code}' TERM; echo > begun; for i in $(seq 600); do sleep .1; done"
    todo = [job(folder=tmp_path, argv=("bash", "-c", work))]
    (tmp_path / "job.sh").write_text(Slurm(time=5).script(todo, 0, at_a_time=1))
    told = os.environ | {"SLURM_RESTART_COUNT": restarts, "SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    script = subprocess.Popen(["bash", str(tmp_path / "job.sh")], env=told, stderr=subprocess.PIPE, text=True)
    until((tmp_path / "begun").exists, "job")

    def saves() -> bool:
        """SLURM sends one signal; bash may lose it just before it waits, and more at once confuse it as it ends."""
        script.send_signal(signal.SIGUSR2)
        with suppress(AssertionError):
            until((tmp_path / "saved").exists, "saved tokens", seconds=10)
        return (tmp_path / "saved").exists()

    until(saves, "end of the job")
    error = script.communicate(timeout=PATIENCE)[1]
    assert (tmp_path / "told").exists() == requeued
    if not requeued and code:
        assert error.splitlines()[-1] == "over launch.time=5 (minutes) 3 times"
        assert script.returncode == code


@pytest.mark.parametrize("executor", [Ray(), Gpus()])
def test_a_missing_extra_is_said(executor: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_plugin, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=rf"launch={executor.name} needs the extra ray: pip install 'rbptrack\[ray\]'"):
        executor.room(0)


@needs_ray
def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(BadInput, match="no Ray cluster answers there"):
        Ray(address=f"127.0.0.1:{free_port()}").check([job()])


def test_what_no_node_of_ray_has_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would wait for such a node for ever."""
    monkeypatch.setattr(Ray, "where", "2 nodes of Ray")

    def check(gpus: float, cpus: int, kind: type[Ray] = Ray, nodes: Sequence[ray_plugin.Node] = ()) -> int:
        executor = kind(gpus=gpus, cpus=cpus)
        executor.nodes = list(nodes) or [ray_plugin.Node(gpus=0, cpus=64), ray_plugin.Node(gpus=4, cpus=8)]
        assert executor.check([job(gpus=gpus)])
        return executor.room(gpus)

    assert check(gpus=1, cpus=1) == 4
    assert check(gpus=1, cpus=4) == 2
    assert check(gpus=0.1, cpus=1) == 8
    assert check(gpus=0, cpus=16) == 4
    for gpus, cpus, message in (
        (5, 1, r"launch\.gpus=5, but the largest of 2 nodes of Ray has 4 GPUs; launch\.gpus=0 measures on CPUs"),
        (1, 9, r"launch\.cpus=9, but the largest of 2 nodes of Ray with 1 GPU has 8 CPUs; ask"),
        (0, 65, r"launch\.cpus=65, but the largest of 2 nodes of Ray has 64 CPUs; ask for less"),
    ):
        with pytest.raises(BadInput, match=message):
            check(gpus, cpus)
    with pytest.raises(BadInput, match=r"launch=gpus: .*launch\.gpus=99, but this machine has no GPU; launch\.gpus=0"):
        check(99, 1, Gpus, [ray_plugin.Node(gpus=0, cpus=2)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["launch.partition=gpu"], "launch.partition=gpu is an option of launch=slurm; this is launch=local"),
        (
            ["launch.gpus=4"],
            "launch.gpus=4 is an option of launch=gpus or launch=ray or launch=slurm; this",
        ),
        (["launch=ray", "launch.setup=x"], "launch.setup=x is an option of launch=slurm; this is launch=ray"),
        (["launch=slurm", "launch.address=auto"], "address=auto is an option of launch=gpus or launch=ray; this is"),
        (["launch=slurm", "launch.partitoin=gpu"], r"no option launch.partitoin. Did you mean launch.partition=\?"),
        (["launch=slum"], "no launch matches slum. Did you mean slurm"),
        (["launch=slurm", "launch.cpus=0"], r"launch\.cpus must be at least 1; got 0"),
        (
            ["launch=slurm", "launch.gpus=1.5"],
            "launch.gpus must be a whole number, a share of one such as 0.5, or",
        ),
        (["launch=slurm", "launch.group=cell"], "launch.group was removed; each job pulls cells until none is left"),
        (["launch.where=slurm"], "launch.where was removed; give launch=NAME, or begin the file"),
    ],
)
def test_an_option_that_the_executor_lacks_is_refused(words: list[str], message: str) -> None:
    """Else a sweep whose `launch=slurm` was forgotten would run on the login node."""
    with pytest.raises(BadInput, match=message):
        sweep_of(requested(["dataset=pydocs", "model=nano/6k", *words]))


def test_executors_are_options_of_hydra_with_their_fields() -> None:
    def chosen(*words: str) -> Any:
        return sweep_of(requested(["dataset=pydocs", "model=nano/6k", *words]))[0].launch

    assert chosen() is None
    words = ["launch=slurm", "launch.partition=a100", "launch.setup=module load cuda,ulimit -c 0"]
    queue = chosen(*words, "+launch.sbatch.qos=low")
    assert queue == Slurm(partition="a100", setup=["module load cuda", "ulimit -c 0"], sbatch={"qos": "low"})
    assert chosen("launch=gpus", "launch.gpus=auto") == Gpus(gpus="auto")
    assert chosen("launch=ray", "launch.gpus=0.5").address == "auto"


def test_a_preset_of_one_s_own_names_its_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an earlier version gets the sentence of its key."""
    monkeypatch.chdir(tmp_path)
    presets = tmp_path / "conf" / "launch"
    presets.mkdir(parents=True)
    (presets / "long.yaml").write_text("defaults: [slurm]\ntime: 1440\n")
    (presets / "former.yaml").write_text("where: slurm\ntime: 1440\n")
    (presets / "none.yaml").write_text("time: 1440\n")
    words = ["dataset=pydocs", "model=nano/6k,nano/15k"]
    assert sweep_of(requested([*words, "launch=long"]))[0].launch == Slurm(time=1440)
    with pytest.raises(BadInput, match=r"launch\.where was removed; .* begin the file with defaults: \[NAME\]"):
        sweep_of(requested([*words, "launch=former"]))
    with pytest.raises(BadInput, match=r"launch\.time: which executor\? Begin the config file with `defaults"):
        sweep_of(requested([*words, "launch=none"]))


def test_an_address_without_a_port_is_said_at_once() -> None:
    with pytest.raises(BadInput, match=r"launch\.address=first: expected auto .* HOST:PORT of its head"):
        ray_plugin.check_address("first")


def test_a_cluster_of_other_machines_needs_ray_s_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would look for a minute for a node here."""
    monkeypatch.setattr(psutil, "process_iter", lambda attrs: [])
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(BadInput, match=r"is no node of that cluster: launch\.address=ray://127\.0\.0\.1:10001"):
            ray_plugin.check_address(address)
        ray_plugin.check_address(f"ray://{address}")


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

    def check(*, gpus: float = 0, cpus: int = 1, time: int = 60, **options: Any) -> str:
        return Slurm(cpus=cpus, time=time, **options).check([job(gpus=gpus)])

    assert check(partition="gpu", gpus=4, cpus=64, memory=500, time=120) == "jobs go into SLURM's queue (1 node)"
    for options, message in (
        (
            {"gpus": 1},
            "launch.gpus=1, but the default partition cpu has at most 0 GPUs on a node; ask for launch.gpus=0",
        ),
        ({"cpus": 9}, "launch.cpus=9, but the default partition cpu has at most 8 CPUs on a node; ask for less"),
        ({"memory": 501, "partition": "gpu"}, "launch.memory=501, but partition gpu has at most 500 GB on a node"),
        ({"time": 121, "partition": "gpu"}, "launch.time=121, but partition gpu has at most 120 minutes for a job"),
        ({"partition": "none"}, "the cluster has no partition none; sinfo lists its nodes"),
    ):
        with pytest.raises(BadInput, match=message):
            check(**options)


def test_a_controller_that_does_not_answer_is_said_and_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unable = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    answering(tmp_path, monkeypatch, sbatch="", sinfo=f"echo '{unable}' >&2; exit 1")
    with pytest.raises(BadInput, match=r"the cluster does not answer: .*Unable to contact slurm controller"):
        slurm_plugin.nodes("")
    answering(tmp_path, monkeypatch, sinfo="exec sleep 600")
    with monkeypatch.context() as patch:
        patch.setattr(slurm_plugin, "ANSWER_SECONDS", 0.2)
        with pytest.raises(BadInput, match=r"the cluster does not answer within 0\.2 s; try again"):
            slurm_plugin.nodes("")
    monkeypatch.setattr(slurm_plugin, "LOOK_SECONDS", 0.0)
    queue = Slurm()
    queue._ids, queue._outputs, queue._sweep = {0: "5_0"}, {0: tmp_path / "stderr"}, "rbptrack-1"
    looks = """echo >> looks
    case $(wc -l < looks) in 1) echo '5_0|PENDING|Priority';; 2|3) exit 1;; 4) echo '5_0|FAILED|x';; esac"""
    answering(tmp_path, monkeypatch, squeue=looks)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stderr").write_text("Modules:\nslurm_script: line 18: module: command not found\n")
    states = [queue.states()[0] for _ in range(5)]
    waits = State(Phase.waiting, "Priority")  # as far as is known
    why = "job 5_0, FAILED: slurm_script: line 18: module: command not found"
    assert states == [waits, waits, waits, State(Phase.gone, why), State(Phase.gone)]
    said = "launch=slurm: the cluster does not answer; the sweep waits for it, and its jobs go on\n"
    assert capsys.readouterr().err == said  # once
    answering(tmp_path, monkeypatch, scancel="exit 1")
    queue.cancel()
    assert "and the jobs go on; end them with: scancel --me --name=rbptrack-1" in capsys.readouterr().err


def sweep(*words: str) -> launch.Sweep:
    request = requested(["-m", "model=nano/6k", "dataset=pydocs", *words])
    settings, cells = sweep_of(request)
    resolver = Resolver()
    return launch.Sweep(request, settings, cells, [resolver.resolve(cell) for cell in cells], [], [])


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
        scancel="",
        scontrol="echo 'MaxArraySize = 1'",
    )
    with pytest.raises(BadInput, match=r"^launch=slurm: the cluster does not take these jobs: Invalid account$"):
        sweep("model=nano/6k,nano/15k", "launch=slurm", "launch.account=nobody")._measure()
    assert capfd.readouterr().err == ""
    assert not list(work.iterdir())


def test_an_array_holds_jobs_with_as_many_gpus_as_the_cluster_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(
        tmp_path,
        monkeypatch,
        sbatch="echo $(grep -h -e --array= -e --gres= $2) >> arrays; wc -l < arrays",
        scontrol="echo 'MaxArraySize            = 2'",
    )
    monkeypatch.chdir(tmp_path)
    todo = [job(number, gpus=gpus, folder=tmp_path) for number, gpus in enumerate((1, 4, 1, 0.3, 4))]
    queue = Slurm(jobs=4)
    queue.submit(todo)
    assert (tmp_path / "arrays").read_text().splitlines() == [
        "#SBATCH --array=0-1%1 #SBATCH --gres=gpu:1",
        "#SBATCH --array=0-0%1 #SBATCH --gres=gpu:1",
        "#SBATCH --array=0-1%1 #SBATCH --gres=gpu:4",
    ]
    assert queue._ids == {0: "1_0", 2: "1_1", 3: "2_0", 1: "3_0", 4: "3_1"}


class Fake(Executor):
    """An executor whose jobs do what a function does with them; each is gone thereafter."""

    name, outlives = "fake", "the jobs go on"

    def __init__(self, do: Callable[[Job], None], state: State) -> None:
        super().__init__()
        self.do, self.state, self.submitted, self.cancelled = do, state, list[int](), False

    def check(self, jobs: Sequence[Job]) -> str:
        return ""

    def submit(self, jobs: Sequence[Job]) -> None:
        for each in jobs:
            self.submitted.append(each.number)
            self.do(each)

    def states(self) -> dict[int, State]:
        return dict.fromkeys(self.submitted, self.state)

    def cancel(self) -> None:
        self.cancelled = True


def driven(executor: Fake, folder: Path) -> tuple[Drive, list[str]]:
    cells = asked("model=nano/6k,nano/15k")
    path = cells_file(folder, cells)
    results, said = Results(), list[str]()
    inbox = Inbox(results, total=2, aloud=True)
    todo = [job(number, folder=folder) for number in range(2)]
    return Drive(executor, {path: tasks_of(cells)}, todo, results, inbox, said.append), said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_ctrl_c_ends_the_jobs_and_a_closed_terminal_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    for name in ("_received", "_stop"):
        monkeypatch.setattr(process, name, getattr(process, name))
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP)}
    executor = Fake(lambda job: os.kill(os.getpid(), number), State(Phase.gone))
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
        task, begun = tasks_of(asked())[0], executor.submitted.count(job.number)
        if job.number == 0:
            assert next(Pull(job.cells, 0).tasks([task]))  # the same when it begins again
            teller = Teller(report_file(job))
            if begun == 2:
                teller.ended(task, Outcome("nano-6k / pydocs", "nano-6k", "pydocs", "failed", message="x"), whole=True)
                teller.close()

    executor = Fake(do, State(Phase.gone, "NODE_FAIL"))
    drive, said = driven(executor, tmp_path)
    assert drive.run(total=2) == 0
    assert executor.submitted == [0, 1, 0, 1, 1]
    assert said == [
        "2 jobs were lost, and are begun again: NODE_FAIL",
        "1 job was lost, and is begun again: NODE_FAIL",
        "1 job was lost: NODE_FAIL",
    ]
    cells = asked("model=nano/6k,nano/15k")
    assert [o.message for o in drive.results.collect(cells)] == ["x", "its job never started"]
    assert capsys.readouterr().out.count("nano-6k / pydocs  failed: x") == 1
    again = Teller(report_file(drive.jobs[0]))
    assert again.knows_end_of(tasks_of(cells)[0])


def test_a_job_that_may_not_begin_again_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive_module, "_POLL_SECONDS", 0.0)
    cells = asked("model=nano/6k,nano/15k")
    why = "over launch.time=5 (minutes) 3 times"
    executor = Fake(lambda job: next(Pull(job.cells, job.number).tasks(tasks_of(cells))), State(Phase.gone, why, True))
    drive, said = driven(executor, tmp_path)
    assert drive.run(total=2) == 0
    assert (executor.submitted, said) == ([0, 1], [f"2 jobs were lost: {why}"])
    assert {o.message for o in drive.results.collect(cells)} == {f"{why}; the same command continues there"}


def test_jobs_pull_tasks_until_none_is_left(tmp_path: Path) -> None:
    """Longest first, those of the model that is loaded before others; what a lost job had taken stays its own."""
    cells = asked("model=nano/15k,nano/6k", "dataset=stdlib,pydocs")
    path, tasks = cells_file(tmp_path, cells), tasks_of(cells)
    first, second = Pull(path, 0).tasks(tasks), Pull(path, 1).tasks(tasks)
    pulled = [next(first), next(second), next(second)]
    assert [task.title for task in pulled] == ["nano-15k / stdlib", "nano-15k / pydocs", "nano-6k / stdlib"]
    again = Pull(path, 1).tasks(tasks)
    assert [task.title for task in again] == ["nano-15k / pydocs", "nano-6k / stdlib", "nano-6k / pydocs"]
    assert list(first) == []
    assert not left_for(path, 2)
    assert left_for(path, 1)
    read = Tasks.read(path)
    assert list(read) == tasks
    assert read.cells[3].fingerprint == Resolver().resolve(cells[3]).fingerprint


def test_what_has_changed_since_the_sweep_began_is_not_measured_as_if_it_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks = Tasks.read(cells_file(tmp_path, asked()))
    (task,) = tasks
    assert job_module._resolving(tasks)(task).fingerprint == tasks.cells[0].fingerprint
    tasks.cells[0].fingerprint = "of other weights"
    with pytest.raises(BadInput, match="have changed since the sweep began"):
        job_module._resolving(tasks)(task)


def test_a_job_that_slurm_no_longer_lists_has_ended() -> None:
    """So that a job that was killed is not waited for: where no accounts are kept, nothing else tells of it."""
    listed = ["5_0|RUNNING|None", "5_1|FAILED|NonZeroExitCode", "5_2|PENDING|Priority", "7|COMPLETING|None"]
    states = {job: slurm_plugin.state_of(job, listed) for job in ("5_0", "5_1", "5_2", "5_3", "7")}
    assert states == {
        "5_0": State(Phase.running),
        "5_1": State(Phase.gone, "FAILED"),
        "5_2": State(Phase.waiting, "Priority"),
        "5_3": State(Phase.gone),
        "7": State(Phase.running),
    }


@needs_ray
def test_each_job_of_ray_is_a_process_that_sees_its_own_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was used again kept the device and the memory cap of its first job; the GPUs here are made up."""
    for name, value in OTHERS_WARN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(gpus_plugin.LOCAL, "num_gpus", 2)  # Ray counts them, and looks for no device
    write = "import os, sys; print(os.getpid(), os.environ['CUDA_VISIBLE_DEVICES'], file=open(sys.argv[1], 'w'))"
    cluster = Gpus()
    todo = [
        job(number, gpus=1, folder=tmp_path, argv=(sys.executable, "-c", write, str(tmp_path / f"{number}.told")))
        for number in range(4)
    ]
    try:
        assert cluster.room(1) == 2
        cluster.submit(todo)
        until(lambda: {state.phase for state in cluster.states().values()} == {Phase.gone}, "end of the jobs")
    finally:
        cluster.cancel()
    assert set(cluster.states().values()) == {State(Phase.gone)}
    told = [(tmp_path / f"{each.number}.told").read_text().split() for each in todo]
    assert len({process for process, _ in told}) == len(todo)
    assert {gpu for _, gpu in told} == {"0", "1"}


@needs_ray
def test_a_killed_ray_worker_loses_nothing(start: Start, with_store: Path, local: Measured) -> None:
    """Of cells that are measured in two shards, each of which is a job's; it dies with a part (tests/startup)."""
    died = with_store / "died"
    told = {"PYTHONPATH": str(Path(__file__).parent / "startup"), "RBPTRACK_TESTS_DIE": str(died), **OTHERS_WARN}
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
                Slurm(cpus=1, time=100).check([job()])
            with pytest.raises(BadInput, match=r"launch\.gpus=2, but the default partition main has at most 1 GPU"):
                Slurm(cpus=1, time=1).check([job(gpus=2)])
        words = ("launch=slurm", "launch.gpus=1", "launch.cpus=1", "launch.time=10")
        process = start(*QUICK, *CELLS, *words, cwd=with_store, **cluster.environment)
        try:
            assert process.wait(PATIENCE) == 0, process.said
        finally:
            process.kill()
    assert finished(with_store) == local
    assert all_finished(with_store) == len(local) == 4
    assert len(list(with_store.glob("mlruns/hydra/*/job-*.log"))) == 2  # as many as there are nodes


@needs_ray
def test_a_ray_of_another_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called a cluster that is not there, or that asks for its token."""
    import ray
    from ray._private.utils import check_version_info

    def connects(**_: object) -> None:
        check_version_info({"ray_version": "2.1.0", "python_version": "3.9.1"}, "10.0.0.1")

    monkeypatch.setattr(ray, "init", connects)
    with pytest.raises(BadInput, match=r"cluster was started with: Ray: 2\.1\.0 Python: 3\.9\.1 This .*same versions"):
        ray_plugin.join("auto")
