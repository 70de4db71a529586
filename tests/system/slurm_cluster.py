"""A SLURM cluster of two nodes that runs on this machine. It needs root, slurm-wlm and munge."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.servers import free_port

PATIENCE = 300.0  # seconds after which a command or an event counts as hanging
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=PATH)]

needs_slurm = pytest.mark.skipif(
    bool(MISSING) or os.getuid() != 0, reason="needs root, slurm-wlm and munge: apt-get install slurm-wlm munge"
)

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
    """A running cluster: the environment variables with which SLURM's commands find it."""
    with tempfile.TemporaryDirectory(prefix="rbptrack-slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
        processes: list[subprocess.Popen[bytes]] = []

        def start(*command: str) -> None:
            with (folder / "out.log").open("ab") as out:
                processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))

        try:
            write_configuration(folder)
            munge = folder / "munge"
            files = [f"--key-file={munge / 'key'}", f"--socket={munge / 'socket'}"]
            files += [f"--{option}={munge / option}" for option in ("pid-file", "log-file", "seed-file")]
            start("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground", *files)
            wait_until(lambda: (munge / "socket").exists())
            start("slurmctld", "-D")
            for node in ("n1", "n2"):
                start("slurmd", "-D", "-N", node)
            wait_until(lambda: output_of(environment, "sinfo", "--noheader", "--format=%T") == "idle")
            yield environment
        finally:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                output_of(environment, "scancel", "--me")
                wait_until(lambda: not output_of(environment, "squeue", "--noheader"))
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()


def write_configuration(folder: Path) -> None:
    """Write slurm.conf, gres.conf, munge's key and the files that stand for GPUs."""
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


def output_of(environment: dict[str, str], *command: str) -> str:
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return process.stdout.strip()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition is not met after {PATIENCE:.0f} s"
        time.sleep(0.2)
