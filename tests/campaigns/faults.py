"""Kill what a launched sweep runs on, for real, and say what is not as if nothing had happened.

    python -m tests.campaigns faults RESULTS.jsonl                       # everything; continues where RESULTS.jsonl stops
    python -m tests.campaigns faults RESULTS.jsonl --only "ray: a node is killed" --times 3

A Ray cluster of two nodes and a SLURM of two nodes run on this machine. In each trial a sweep of two models on two
corpora, each cell in two shards, is started as a user starts it; something is killed; and where the fault ends the
command, the same command runs again. Then the store is compared with an undisturbed sweep's: each cell there once,
with the same ranks to the byte.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.campaigns.recorded import record, recorded
from tests.campaigns.whole_store import cells

CELLS = (
    "-m", "model=nano/38k,nano/115k", "dataset=stdlib,pydocs", "dataset.documents=25", "engine.part_tokens=2000",
    "engine.threads=1", "analyzers=[]", "launch.gpus=0", "launch.cpus=1",
)  # fmt: skip
LONG = ("-m", "model=nano/2m", "dataset=stdlib", "engine.part_tokens=4000", "engine.threads=1", "analyzers=[]",
        "engine.part_seconds=2", "launch.gpus=0", "launch.cpus=1", "launch.retries=9")  # fmt: skip
PATIENCE = 900.0  # seconds that a sweep is given


@dataclass
class Trial:
    """A working folder, and the sweeps that run in it.

    Attributes:
        folder: the working folder.
        launch: words of the command line that say where.
        environment: beside this process's own.
        words: the sweep.

    """

    folder: Path
    launch: tuple[str, ...]
    environment: dict[str, str]
    words: tuple[str, ...] = (*CELLS, "shards=2")
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """The command, as a user types it."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "HYDRA_", "SLURM_"))}
        with (self.folder / "said.txt").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "rbptrack", *self.words, *self.launch],
                cwd=self.folder,
                env=clean | {"HF_HUB_OFFLINE": "1", **self.environment},
                stdout=said,
                stderr=said,
            )
        self.started.append(process)
        return process

    def until_measuring(self, process: subprocess.Popen[bytes], parts: int = 2) -> None:
        """Wait until some parts are on disk."""
        deadline = time.monotonic() + PATIENCE
        while len(list(self.folder.glob("mlruns/partial/*/part-*.parquet"))) < parts and process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError("nothing is measured")
            time.sleep(0.1)

    def workers(self) -> list[psutil.Process]:
        """Processes that measure for this folder, on whatever engine: they have a job's log open."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if any(f.path.startswith(f"{self.folder}/mlruns/hydra/") for f in process.open_files()):
                    found.append(process)
        mine = {p.pid for p in self.started}
        return [p for p in found if p.pid not in mine]

    def end(self, process: subprocess.Popen[bytes]) -> int:
        """The command's exit code."""
        return process.wait(timeout=PATIENCE)


Fault = Callable[[Trial, Any], int]


def worker(trial: Trial, engine: Any) -> int:
    """A process that measures is killed."""
    process = trial.start()
    trial.until_measuring(process)
    for victim in trial.workers()[:1]:
        victim.kill()
    return trial.end(process)


def ray_node(trial: Trial, engine: Any) -> int:
    """A node is killed with all that runs on it; another comes later."""
    process = trial.start()
    trial.until_measuring(process)
    cluster, nodes = engine
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    time.sleep(5)
    nodes.append(cluster.add_node(num_cpus=1, num_gpus=0))
    return trial.end(process)


def slurm_node(trial: Trial, engine: Any) -> int:
    """A node loses its power in the middle of a job, and comes back when the cluster has noticed."""
    process = trial.start()
    trial.until_measuring(process)
    engine.kill_node("n2")
    time.sleep(25)
    engine.start_node("n2")
    return trial.end(process)


def driver(trial: Trial, engine: Any) -> int:
    """The command is killed; the same command runs again."""
    first = trial.start()
    trial.until_measuring(first)
    first.kill()
    first.wait()
    return trial.end(trial.start())


def two_drivers(trial: Trial, engine: Any) -> int:
    """Two commands with the same sweep."""
    both = [trial.start(), trial.start()]
    return max(trial.end(process) for process in both)


def over_time(trial: Trial, engine: Any) -> int:
    """Jobs of two minutes that need more: requeued, they continue."""
    trial.words = LONG
    return trial.end(trial.start())


FAULTS: dict[str, Fault] = {
    "ray: a worker is killed": worker,
    "ray: a node is killed": ray_node,
    "ray: the driver is killed": driver,
    "ray: two drivers": two_drivers,
    "slurm: a job is killed": worker,
    "slurm: a node is killed": slurm_node,
    "slurm: the driver is killed": driver,
    "slurm: two drivers": two_drivers,
    "slurm: a job over its time": over_time,
}


@contextmanager
def ray_cluster() -> Iterator[tuple[tuple[str, ...], dict[str, str], Any]]:
    """Two nodes of one CPU each, beside a head without any."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1, num_gpus=0) for _ in range(2)]
        yield ("launch=ray", f"launch.address={cluster.address}"), {}, (cluster, nodes)
    finally:
        cluster.shutdown()


@contextmanager
def slurm_cluster() -> Iterator[tuple[tuple[str, ...], dict[str, str], Any]]:
    """Two nodes of one CPU each."""
    from tests import slurm

    if lacking := slurm.missing():
        raise SystemExit(f"no SLURM here: {lacking}")
    with slurm.running() as cluster:
        yield ("launch=slurm", "launch.time=2"), cluster.environment, cluster


def undisturbed(words: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """What the sweep measures in one process."""
    folder.mkdir(parents=True)
    trial = Trial(folder, ("launch=local",), {}, tuple(w for w in words if not w.startswith(("launch.", "shards="))))
    if code := trial.end(trial.start()):
        raise SystemExit(f"the undisturbed sweep ended with {code}: {(folder / 'said.txt').read_text()[-500:]}")
    return cells(folder)


def differences(folder: Path, wanted: dict[str, Any]) -> list[str]:
    """What is not as in the undisturbed sweep's store."""
    found, wrong = cells(folder), []
    for name in sorted(found.keys() | wanted.keys()):
        if len(found.get(name, [])) != 1:
            wrong.append(f"{name}: {len(found.get(name, []))} finished")
        elif found[name][0].ranks != wanted[name][0].ranks:
            wrong.append(f"{name}: other ranks")
    left = [p.name for p in (folder / "mlruns/partial").glob("*") if p.is_dir()]
    return wrong + [f"left behind: {name}" for name in left]


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of this campaign."""
    parser.add_argument("--only", choices=FAULTS)
    parser.add_argument("--times", type=int, default=1)


def main(asked: argparse.Namespace) -> int:
    """Inject the faults that are asked for, and record what was lost."""
    done = [line["fault"] for line in recorded(asked.results)]
    todo = {name: asked.times - done.count(name) for name in FAULTS if asked.only in (None, name)}
    base = Path(tempfile.mkdtemp(prefix="rbptrack-faults-"))
    wanted: dict[tuple[str, ...], dict[str, Any]] = {}
    for engine, running in (("ray", ray_cluster), ("slurm", slurm_cluster)):
        if not any(times > 0 for name, times in todo.items() if name.startswith(engine)):
            continue
        with running() as (launch, environment, handle):
            for name, times in todo.items():
                for _ in range(times if name.startswith(engine) else 0):
                    words = LONG if FAULTS[name] is over_time else CELLS
                    if words not in wanted:
                        wanted[words] = undisturbed(words, base / f"undisturbed-{len(wanted)}")
                    folder = Path(tempfile.mkdtemp(prefix="trial-", dir=base))
                    limit = () if FAULTS[name] is over_time or engine == "ray" else ("launch.time=20",)
                    trial, began = Trial(folder, (*launch, *limit), environment), time.monotonic()
                    try:
                        code = FAULTS[name](trial, handle)
                        wrong = [f"exit code {code}"] * bool(code) + differences(folder, wanted[words])
                    except (TimeoutError, subprocess.TimeoutExpired) as error:
                        wrong = [f"did not end: {error}"]
                    finally:
                        for process in trial.started:
                            process.kill()
                    if wrong:
                        said = (folder / "said.txt").read_text(errors="replace")[-1500:]
                        print(said, file=sys.stderr)
                    print(
                        record(asked.results, name, {"seconds": time.monotonic() - began, "wrong": wrong}), flush=True
                    )
                    if not wrong:
                        shutil.rmtree(folder, ignore_errors=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lost = any(base.glob("trial-*"))
    if not lost:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if lost else 0
