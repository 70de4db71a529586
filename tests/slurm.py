"""A SLURM cluster of two nodes on this machine, started and ended by the tests; nodes can be killed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.patience import PATIENCE
from tests.server import free_port

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
SlurmdTimeout={silence}
MessageTimeout={silence}
InactiveLimit=0
KillWait=5
SchedulerParameters=sched_interval=2
JobRequeue=1
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


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    lacking = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not _program(name)]
    if lacking:
        return f"needs {', '.join(lacking)}: apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "slurmd needs root"


@dataclass
class Cluster:
    """What runs, by name: `munged`, `control`, `n1`, `n2`."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout.strip()

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                command, env=os.environ | self.environment, stdout=out, stderr=out, start_new_session=True
            )

    def start_node(self, name: str) -> None:
        self.start(name, _program("slurmd"), "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        """As when the machine loses its power: slurmd and everything of its jobs, at once."""
        mine, keepers, conf = [], set(), self.environment["SLURM_CONF"]
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it has just ended
                environment = process.environ()
                if (environment.get("SLURMD_NODENAME"), environment.get("SLURM_CONF")) == (name, conf):
                    mine.append(process)
                    keepers |= {p for p in process.parents() if p.name().startswith("slurmstepd")}
        # Those that would tell of a job's end go first: a machine without power tells nothing.
        self.processes[name].kill()
        for victim in [*keepers, *mine]:
            with suppress(psutil.Error):
                victim.kill()
        process = self.processes.pop(name)
        process.wait()


@contextmanager
def running(*, silence: int = 10) -> Iterator[Cluster]:
    """Start a cluster, and end all of it.

    Args:
        silence: seconds after which a node that does not answer is lost, and a question fails; 100 at most.

    """
    with tempfile.TemporaryDirectory(prefix="rbptrack-slurm-", ignore_cleanup_errors=True) as name:
        cluster = Cluster(Path(name))
        try:
            _start(cluster, silence)
            yield cluster
        finally:
            cluster.ask("scancel", "--state=RUNNING", "--me")
            for node in [name for name in ("n1", "n2") if name in cluster.processes]:
                cluster.kill_node(node)  # else what keeps a job's record outlives the cluster
            for process in reversed(cluster.processes.values()):
                process.kill()
                process.wait()


def _start(cluster: Cluster, silence: int) -> None:
    folder = cluster.folder
    folder.chmod(0o755)
    munge = folder / "munge"
    for made in (folder / "state", folder / "n1", folder / "n2", munge):
        made.mkdir()
    (munge / "key").write_bytes(os.urandom(1024))
    (munge / "key").chmod(0o400)
    munge.chmod(0o755)
    shutil.chown(munge, "munge", "munge")
    shutil.chown(munge / "key", "munge", "munge")
    for number in (1, 2):
        (folder / f"gpu{number}").touch()
    ports = {key: free_port() for key in ("control", "first", "second")}
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONFIG.format(host=host, folder=folder, silence=silence, **ports))
    (folder / "gres.conf").write_text("".join(f"NodeName=n{n} Name=gpu File={folder}/gpu{n}\n" for n in (1, 2)))
    options = [f"--{k}={munge / v}" for k, v in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"))]
    options += [f"--log-file={munge / 'log'}", f"--seed-file={munge / 'seed'}", "--foreground"]
    cluster.start("munged", "setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", _program("munged"), *options)
    _until(lambda: (munge / "socket").exists(), "munged", cluster)
    cluster.start("control", _program("slurmctld"), "-D")
    for node in ("n1", "n2"):
        cluster.start_node(node)
    _until(lambda: cluster.ask("sinfo", "--noheader", "--format=%T") == "idle", "slurmctld", cluster)


def _until(ready: object, name: str, cluster: Cluster, *, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    assert callable(ready)
    while not ready():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{p.name}: {p.read_text()[-500:]}" for p in cluster.folder.glob("*.log"))
            raise RuntimeError(f"{name} does not come up: {logs}")
        time.sleep(0.2)


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""
