"""Type the commands of docs/cluster.md, on a SLURM of two nodes and a Ray of two nodes on this machine.

    python -m tests.campaigns cluster_walk [slurm] [ray]

What differs from the page is printed beside each command: the embedded family stands for Pythia, nodes have one CPU and
no GPU, and ports and the database are those of this machine. Lines that install packages are not tried.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from tests import server

ROOT = Path(__file__).parent.parent.parent
SECTIONS = {
    "slurm": "## From an empty SLURM cluster to the first law",
    "ray": "## From machines without a queue to the first law",
}
# Installing; and what would end every Ray of this machine.
_NOT_TRIED = ("pip ", "python3 -m venv", ". venv", "cd ", "ray stop")
PATIENCE = 900.0  # seconds that a command is given


def commands(section: str) -> list[str]:
    """The lines of the section's first block, without their comments."""
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    block = re.search(r"(?:^    .*\n)+", page[page.index(SECTIONS[section]) :], re.MULTILINE)
    assert block
    return [re.sub(r"\s{2,}#.*", "", line.strip()) for line in block[0].splitlines()]


def here(command: str, section: str, ports: dict[str, str]) -> str:
    """The command as it can be typed on this machine."""
    changes = [
        (r"'model=pythia/\*'", "'model=nano/6k,nano/15k,nano/38k'"),
        ("model=pythia/70m", "model=nano/15k"),
        ("dataset=wiki", "dataset=pydocs dataset.documents=30"),
        ("launch=slurm", "launch=slurm launch.cpus=1"),
        ("launch.partition=gpu", "launch.partition=main"),
        ("launch.time=240", "launch.time=55"),
        ("launch=ray", "launch=ray launch.gpus=0"),
        (
            r"ray start --head --port=\d+",
            f"ray start --head --port={ports['ray']} --num-cpus=1 --include-dashboard=false",
        ),
        (r"ray start --address=FIRST:\d+", f"ray start --address=127.0.0.1:{ports['ray']} --num-cpus=1"),
        (r"postgresql://USER@DATABASE/mlflow", ports["database"]),
        (r'"http://\$\(hostname\):5000"|http://FIRST:5000', f"http://127.0.0.1:{ports['server']}"),
        (r"mlflow server --host 0.0.0.0", f"{sys.executable} -m mlflow server --port {ports['server']}"),
        (r'--allowed-hosts "\$\(hostname\):5000"', f"--allowed-hosts 127.0.0.1:{ports['server']}"),
        (r"^rbptrack ", f"{sys.executable} -m rbptrack "),
        (r"(?<![\w/])ray (?=start|stop)", f"{Path(sys.executable).with_name('ray')} "),
    ]
    for wanted, instead in changes:
        command = re.sub(wanted, lambda _, instead=instead: instead, command)  # type: ignore[misc]
    return command


@contextmanager
def cluster(section: str) -> Iterator[dict[str, str]]:
    """What is there before the first command, as environment."""
    if section == "ray":
        yield {}
        return
    from tests import slurm

    if lacking := slurm.missing():
        raise SystemExit(f"no SLURM here: {lacking}")
    with slurm.running() as running:
        yield running.environment


def walk(section: str) -> bool:
    """Type every command; whether all of them did what they should."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"rbptrack-{section}-")))
        place = server.Server(server.free_port(), server.free_port())
        stack.enter_context(server._postgres(folder, place.database_port))
        server._sql(place, "create database mlflow")
        ports = {"ray": str(server.free_port()), "server": str(place.port), "database": place.database(name="mlflow")}
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "SLURM_", "HYDRA_"))}
        environment |= stack.enter_context(cluster(section)) | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        work = folder / "shared"
        work.mkdir()
        stack.callback(_end_ray, ports["ray"])
        written = commands(section)
        if section == "ray":  # "a server as above"
            written.insert(0, next(line for line in commands("slurm") if line.startswith("mlflow server")))
        fine = True
        for line in written:
            typed = here(line, section, ports)
            if line.startswith(_NOT_TRIED):
                print(f"not tried  {line}")
            elif line.startswith("export "):
                name, _, value = typed.removeprefix("export ").partition("=")
                environment[name] = value
                print(f"set        {line}")
            elif line.endswith("&"):
                command = ["bash", "-c", f"exec {typed.removesuffix('&')}"]
                address = f"http://127.0.0.1:{ports['server']}/health"
                stack.callback(server.end, server.start(command, address, work / "server.log", **environment))
                print(f"started    {line}")
            else:
                fine &= _typed(line, typed, work, environment)
        return fine


def _end_ray(port: str) -> None:
    """End the processes of the Ray cluster whose head listens on this port, and no other's."""
    mine = [p for p in psutil.process_iter(["cmdline"]) if _of(p.info["cmdline"] or [], port)]
    for process in mine:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(mine, timeout=10)
    current = Path(tempfile.gettempdir(), "ray/ray_current_cluster")  # as `ray stop` removes it
    if current.exists() and current.read_text().strip().endswith(f":{port}"):
        current.unlink()


def _of(words: list[str], port: str) -> bool:
    """Whether a process was told of this head, under whatever name the machine gives itself."""
    return any(word.startswith("--") and word.endswith((f":{port}", f"gcs_server_port={port}")) for word in words)


def _typed(line: str, typed: str, work: Path, environment: dict[str, str]) -> bool:
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", typed],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    said = done.stdout.strip().splitlines()
    print(f"exit {done.returncode}     {line}  ({time.monotonic() - began:.0f} s)")
    for text in said[-6:]:
        print(f"           | {text}")
    return done.returncode == 0


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of this campaign."""
    parser.add_argument("--only", choices=SECTIONS)


def main(asked: argparse.Namespace) -> int:
    """The exit code: 0 if every command ended with 0."""
    fine = {section: walk(section) for section in ([asked.only] if asked.only else SECTIONS)}
    return 0 if all(fine.values()) else 1
