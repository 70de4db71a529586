"""launch=slurm on a real cluster of two nodes on this machine: Debian's slurm-wlm and munge, as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rbptrack.tracking import Store

PATIENCE = 300.0  # seconds after which something hangs
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=PATH)]

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: apt-get install slurm-wlm munge"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd needs root"),
]

CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=30
SchedulerParameters=sched_interval=2
SlurmctldPidFile={folder}/control.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/control.log
SlurmdLogFile={folder}/%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1 RealMemory=4000 Gres=gpu:1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1 RealMemory=4000 Gres=gpu:1
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """Start a cluster; the environment in which SLURM's commands find it."""
    with tempfile.TemporaryDirectory(prefix="rbptrack-slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
        processes: list[subprocess.Popen[bytes]] = []

        def start(*command: str) -> None:
            with (folder / "out.log").open("ab") as out:
                processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))

        try:
            prepare(folder)
            munge = folder / "munge"
            files = [f"--{key}={munge / name}" for key, name in (("key-file", "key"), ("socket", "socket"))]
            files += [f"--{key}={munge / key}" for key in ("pid-file", "log-file", "seed-file")]
            start("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground", *files)
            until(lambda: (munge / "socket").exists())
            start("slurmctld", "-D")
            for node in ("n1", "n2"):
                start("slurmd", "-D", "-N", node)
            until(lambda: ask(environment, "sinfo", "--noheader", "--format=%T") == "idle")
            yield environment
        finally:
            ask(environment, "scancel", "--me")
            until(lambda: not ask(environment, "squeue", "--noheader"))
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()


def prepare(folder: Path) -> None:
    folder.chmod(0o755)
    for name in ("state", "n1", "n2", "munge"):
        (folder / name).mkdir()
    (folder / "munge/key").write_bytes(os.urandom(1024))
    (folder / "munge/key").chmod(0o400)
    (folder / "munge").chmod(0o755)
    for path in (folder / "munge", folder / "munge/key"):
        shutil.chown(path, "munge", "munge")
    ports = {name: free_port() for name in ("control", "first", "second")}
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONFIG.format(host=host, folder=folder, **ports))
    for node in ("n1", "n2"):
        (folder / f"gpu-{node}").touch()
    gres = [f"NodeName={node} Name=gpu File={folder}/gpu-{node}\n" for node in ("n1", "n2")]
    (folder / "gres.conf").write_text("".join(gres))


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def ask(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout.strip()


def until(ready: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.2)


def command(*words: str) -> list[str]:
    options = ["launch=slurm", "launch.options.gres=gpu:1", "launch.options.time=10", "analyzers=[]"]
    return [sys.executable, "-m", "rbptrack", "measure", *words, *options]


BLOCK_AND_WAIT = """
import pathlib, sys, time
import rbptrack.engine
measuring = sys.modules["rbptrack.engine.measure"]
measuring.BLOCK_SECONDS = 0.0
save = measuring.Blocks.write

def save_and_wait(*arguments, **options):
    save(*arguments, **options)
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.05)

measuring.Blocks.write = save_and_wait
"""


def with_waiting_blocks(folder: Path, go: Path) -> Path:
    """A folder for PYTHONPATH: every Python that starts with it saves a block at once, then waits for the file `go`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCK_AND_WAIT.format(go=str(go)))
    return folder


def test_a_sweep_by_slurm(cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One array, a task for each model; the launcher delivers, and the next command finds all of it."""
    words = command("model=nano/6k,nano/15k", "dataset=pydocs,stdlib", "dataset.documents=3", "sweep=mine")
    done = subprocess.run(
        words, cwd=tmp_path, env=cluster, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "mlruns/launch/mine").glob("*.json"))) == 2
    monkeypatch.chdir(tmp_path)
    frame = Store().runs().frame
    assert len(frame) == 4
    assert set(frame["sweep"]) == {"mine"}
    assert not list((tmp_path / "mlruns/cells").glob("*/"))


def test_the_script_is_shown(cluster: dict[str, str], tmp_path: Path) -> None:
    words = [*command("model=nano/6k", "dataset=pydocs"), "launch.show=true"]
    done = subprocess.run(
        words, cwd=tmp_path, env=cluster, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --gres=gpu:1" in done.stdout
    assert not ask(cluster, "squeue", "--noheader")


def test_a_task_is_requeued_and_another_cancelled(
    cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requeued task continues and finishes. The cancelled one is finished by the next command, without SLURM."""
    # Both cells wait after their first block until both tasks are interrupted.
    words = ["model=nano/15k,nano/38k", "dataset=stdlib", "dataset.documents=100", "sweep=mine"]
    go = tmp_path / "go"
    environment = cluster | {"PYTHONPATH": str(with_waiting_blocks(tmp_path / "start", go))}
    with (tmp_path / "out.log").open("wb") as log:
        sweep = subprocess.Popen(command(*words), cwd=tmp_path, env=environment, stdout=log, stderr=log)
    cells = tmp_path / "mlruns/cells"
    until(lambda: len({path.parent for path in cells.glob("*/blocks/*.parquet")}) == 2)
    array = ask(cluster, "squeue", "--noheader", "--format=%F").split()[0]
    ask(cluster, "scontrol", "requeue", f"{array}_1")
    ask(cluster, "scancel", f"{array}_0")

    def states() -> list[str]:
        return ask(cluster, "squeue", "--noheader", "--format=%K %T", "--array").splitlines()

    until(lambda: states() == ["1 PENDING"])
    go.touch()
    ask(cluster, "scontrol", "update", f"JobId={array}_1", "StartTime=now")  # without SLURM's delay of two minutes
    assert sweep.wait(PATIENCE) == 1, (tmp_path / "out.log").read_text()
    monkeypatch.chdir(tmp_path)
    runs = Store().runs()
    assert runs.frame["model"].tolist() == ["nano-15k"]
    (unfinished,) = cells.glob("*/blocks")
    assert list(unfinished.glob("*.parquet"))  # what was finished when TERM came
    program = [sys.executable, "-m", "rbptrack", "measure", *words, "analyzers=[]"]
    done = subprocess.run(program, cwd=tmp_path, env=cluster, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    frame = Store().runs().frame
    assert frame["model"].tolist() == ["nano-15k", "nano-38k"]
    assert frame["num_tokens"].nunique() == 1
