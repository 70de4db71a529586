"""Sweeps that are killed, cut off from power, from their disk or from their server, against an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rbptrack.ranks import RankTable
from rbptrack.tracking import Store
from reliability import store as stores
from reliability.trial import Trial

WORDS = ("model=nano/6k,nano/15k,nano/38k", *stores.SMALL)
_SHORT_BLOCKS = (
    "import sys, rbptrack.engine\n"
    "sys.modules['rbptrack.engine.measure'].BLOCK_SECONDS = 0.1\n"
    "from rbptrack.cli.app import main\n"
    "sys.exit(main())\n"
)
_PATIENCE = 600.0
Numbers = dict[str, dict[str, float]]


def _begin(folder: Path) -> subprocess.Popen[str]:
    """The sweep, with blocks so short that a measurement has several."""
    command = [sys.executable, "-c", _SHORT_BLOCKS, "measure", *WORDS]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def undisturbed(folder: Path) -> tuple[Numbers, float]:
    """The numbers of a sweep that nothing disturbs, and how many seconds it took."""
    folder.mkdir()
    began = time.monotonic()
    assert _begin(folder).wait(_PATIENCE) == 0
    return stores.numbers(_default(folder)), time.monotonic() - began


def _default(folder: Path) -> Store:
    return Store(f"sqlite:///{folder}/mlflow.db")


def _lost(folder: Path, expected: Numbers, store: Store | None = None) -> str:
    """What a sweep that has ended lacks or has too much of, against an undisturbed one; empty if nothing."""
    store = store or _default(folder)
    faults = [fault.text for fault in store.verify()]
    faults += [f"a run is {run.info.status}" for run in store.measurements.search("") if run.info.status == "RUNNING"]
    if stores.numbers(store) != expected:
        faults.append("other numbers")
    left = [path.name for path in (folder / "mlruns/cells").iterdir() if path.suffix != ".lock"]
    return "; ".join([*faults, *(f"{name} is left" for name in left)])


def _damaged(folder: Path) -> list[str]:
    """Blocks that cannot be read: a kill loses the block under way, and none that was written."""
    bad = []
    for path in folder.glob("mlruns/cells/*/blocks/*-*.parquet"):
        try:
            RankTable.read(path)
        except Exception as error:
            bad.append(str(error))
    return bad


def kills(folder: Path, *, count: int, seed: int = 0) -> Iterator[Trial]:
    """SIGKILL at a random moment, `count` times; a sweep that was killed three times is then left to end."""
    expected, seconds = undisturbed(folder / "undisturbed")
    draw = random.Random(seed)
    for number in range(count):
        place = folder / f"killed{number // 3}"  # MLflow keeps a database open: no second one at the same path
        place.mkdir(exist_ok=True)
        process = _begin(place)
        moment = draw.uniform(0.3, 1) * seconds
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lost = "; ".join(_damaged(place))
        if number % 3 == 2 or number == count - 1:
            code = _begin(place).wait(_PATIENCE)
            lost += _lost(place, expected) if code == 0 else f"exit {code}"
        yield Trial(f"kill after {moment:.1f} of {seconds:.1f} s", "lost" if lost else "nothing lost", lost)


def power_cuts(folder: Path, *, count: int, seed: int = 0) -> Iterator[Trial]:
    """The power goes: what a disk holds at that moment, without what the system had in memory. Needs root.

    The image of an ext4 file system is copied while the sweep on it is stopped; the copy is what the next boot finds.
    """
    expected, seconds = undisturbed(folder / "undisturbed")
    draw = random.Random(seed)
    image = folder / "disk.img"
    for number in range(count):
        place = folder / f"disk{number}"
        place.mkdir()
        image.unlink(missing_ok=True)
        with image.open("wb") as file:
            file.truncate(256 * 2**20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        moment = draw.uniform(0.3, 1) * seconds
        with _mounted(place, "-o", "loop", str(image)):
            process = _begin(place)
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGSTOP)
            subprocess.run(["cp", "--sparse=always", str(image), str(folder / "copy.img")], check=True)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        (folder / "copy.img").replace(image)
        with _mounted(place, "-o", "loop", str(image)):
            lost = "; ".join(_damaged(place))
            code = _begin(place).wait(_PATIENCE)
            lost += _lost(place, expected) if code == 0 else f"exit {code}"
        yield Trial(f"power cut after {moment:.1f} of {seconds:.1f} s", "lost" if lost else "nothing lost", lost)


def full_disks(folder: Path, *, count: int) -> Iterator[Trial]:
    """A disk that is too small: the sweep says so in a line; with more room the same command ends it. Needs root."""
    expected, _ = undisturbed(folder / "undisturbed")
    for number in range(count):
        place = folder / f"disk{number}"
        place.mkdir()
        size = f"{256 + 384 * number}k"
        with _mounted(place, "-t", "tmpfs", "-o", f"size={size}", "none"):
            code, said = stores.ran(place, *WORDS)
            lost = "a traceback" if "Traceback" in said else ""
            if code != 0 and not any(word in said for word in ("full", "space")):
                lost += f"not said: {said[-300:]}"
            subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
            again = _begin(place).wait(_PATIENCE)
            lost += _lost(place, expected) if again == 0 else f"exit {again}"
        yield Trial(f"a disk of {size}, exit {code}", "lost" if lost else "nothing lost", lost or said[-300:])


def outages(folder: Path, *, count: int) -> Iterator[Trial]:
    """MLflow's server dies in the middle of a sweep, and returns: `sync` delivers what waits, each cell once."""
    expected, _ = undisturbed(folder / "undisturbed")
    for number in range(count):
        place = folder / f"server{number}"
        (place / "work").mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
        with _server(place, port):
            sweep = stores.started(place / "work", *WORDS, env=address)
            for line in sweep.stdout or ():
                if line.startswith("[1/3]"):
                    break
        said, _ = sweep.communicate(timeout=_PATIENCE)
        lost = "a traceback" if "Traceback" in said else ""
        with _server(place, port):
            code, delivered = stores.ran(place / "work", "sync", env=address)
            if code != 0:
                lost += delivered
            lost += _lost(place / "work", expected, Store(address["MLFLOW_TRACKING_URI"]))
        yield Trial(f"server away, the sweep ends with {sweep.returncode}", "lost" if lost else "nothing lost", lost)


@contextmanager
def _mounted(place: Path, *options: str) -> Iterator[None]:
    subprocess.run(["mount", *options, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def _server(folder: Path, port: int) -> Iterator[None]:
    words = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    words += ["--backend-store-uri", f"sqlite:///{folder}/served.db", "--artifacts-destination", f"{folder}/artifacts"]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "server.log").read_text()
                time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
