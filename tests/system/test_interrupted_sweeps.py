"""Sweeps that are interrupted: the same command goes on, and leaves what an undisturbed sweep leaves."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from rbptrack.ranks import RankTable
from rbptrack.tracking import Store
from tests.conftest import examples
from tests.system import small_stores
from tests.system.servers import free_port, plain_server
from tests.system.small_stores import PATIENCE, SMALL

WORDS = ("model=nano/6k,nano/15k,nano/38k", *SMALL, "analyzers=power_law")
LONG = ("model=nano/2m", "dataset=stdlib", "analyzers=[]")  # not finished when a signal arrives, on any machine
DISK_BYTES = 64 * 2**20
CLONE_NEWNS = 0x20000  # <linux/sched.h>; os.unshare needs Python 3.12
PERCENT = st.integers(30, 100)  # of the time of an undisturbed sweep; before, the program only imports


def can_mount() -> bool:
    """Whether this user can make and mount an ext4 file system."""
    needed = shutil.which("mkfs.ext4") and shutil.which("unshare") and Path("/dev/loop-control").exists()
    return bool(needed) and not subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode


HAS_DISKS = os.geteuid() == 0 and can_mount()


@pytest.fixture(scope="module", autouse=True)
def _own_mounts() -> None:
    """Put this process into a mount namespace of its own: what it mounts ends with it, even if it is killed.

    Otherwise a disk would stay mounted in pytest's temporary folder, and every later run of pytest would fail when it
    cleans up that folder.
    """
    if not HAS_DISKS:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@dataclass
class Sweep:
    """A sweep in a process group of its own, which prints into a file."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end; false if the sweep is still running after so many seconds."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()

    def assert_ends(self, code: int = 0) -> None:
        """The sweep ends with this exit code and without a traceback."""
        assert self.process.wait(PATIENCE) == code, self.said
        assert "Traceback" not in self.said


def begin(folder: Path, words: Sequence[str] = WORDS, *, block_seconds: float = 0.1, **variables: str) -> Sweep:
    """Begin a sweep in a folder. Blocks are so short that a measurement has several."""
    code = (
        "import signal, sys, rbptrack.engine\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where a shell began the tests with `&`
        f"sys.modules['rbptrack.engine.measure'].BLOCK_SECONDS = {block_seconds}\n"
        "from rbptrack.cli.app import main\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", code, "measure", *words]
    log = folder.parent.with_name(f"{folder.parent.name}.said.txt")  # not on the disk of `Interruptions`
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | variables, stdout=out, stderr=out, start_new_session=True
        )
    return Sweep(process, log)


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@dataclass(frozen=True)
class Undisturbed:
    """What a sweep leaves that nothing disturbs, and how many seconds it takes."""

    measured: dict[str, tuple[dict[str, float], str]]
    seconds: float

    def assert_equals(self, folder: Path, store: Store | None = None) -> None:
        """A folder has the same measurements once, with equal ranks; nothing is damaged, running or left behind."""
        store = store or Store(f"sqlite:///{folder}/mlflow.db")
        assert not list(store.verify())
        assert {run.info.status for run in store.measurements.search("")} == {"FINISHED"}
        assert small_stores.measured(store) == self.measured
        assert not [path for path in (folder / "mlruns/cells").iterdir() if path.suffix != ".lock"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed") / "sweep"
    folder.mkdir()
    began = time.monotonic()
    begin(folder).assert_ends()
    seconds = time.monotonic() - began
    return Undisturbed(small_stores.measured(Store(f"sqlite:///{folder}/mlflow.db")), seconds)


class Interruptions(RuleBasedStateMachine):
    """One sweep that is interrupted again and again, and then ends.

    If the tests run as root, it runs on a disk of its own: an ext4 file system in a file.
    """

    def __init__(self, folder: Path, undisturbed: Undisturbed) -> None:
        super().__init__()
        self._undisturbed = undisturbed
        self._image = Path(tempfile.mkdtemp(dir=folder)) / "disk.img"
        self._place = self._image.with_name("place")
        self._place.mkdir()
        if HAS_DISKS:
            self._image.touch()
            os.truncate(self._image, DISK_BYTES)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self._image], check=True)
            self._mount()
        self._folder = self._place / "sweep"
        self._folder.mkdir()
        os.sync()  # the sweep's folder is older than every interruption

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self._place], check=True)

    def _unmount(self) -> None:
        subprocess.run(["umount", "-l", self._place], check=True)

    def _sweep_until(self, percent: int) -> Sweep:
        sweep = begin(self._folder)
        sweep.ends_within(percent / 100 * self._undisturbed.seconds)
        return sweep

    @rule(percent=PERCENT)
    def kill(self, percent: int) -> None:
        """SIGKILL at any moment."""
        self._sweep_until(percent).kill()

    @precondition(lambda self: HAS_DISKS)
    @rule(percent=PERCENT)
    def cut_power(self, percent: int) -> None:
        """The disk as it is while the sweep is stopped, without what the system had only in memory."""
        sweep = self._sweep_until(percent)
        if sweep.process.poll() is None:
            sweep.signal(signal.SIGSTOP)
        copy = self._image.with_name("copy.img")
        subprocess.run(["cp", "--sparse=always", self._image, copy], check=True)
        sweep.kill()
        self._unmount()
        copy.replace(self._image)
        self._mount()

    @precondition(lambda self: HAS_DISKS)
    @rule(kilobytes=st.integers(64, 3000))
    def fill_disk(self, kilobytes: int) -> None:
        """Little room is left: the sweep ends, or says so. Then there is room again."""
        filler = self._place / "filler"
        free = os.statvfs(self._place)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - kilobytes * 1024))
        sweep = begin(self._folder)
        sweep.process.wait(PATIENCE)
        assert "Traceback" not in sweep.said
        if sweep.process.returncode:
            assert "full" in sweep.said or "space" in sweep.said
        filler.unlink()

    @invariant()
    def every_block_can_be_read(self) -> None:
        """An interrupt loses the block under way, and none that was written."""
        for path in self._folder.glob("mlruns/cells/*/blocks/*-*.parquet"):
            RankTable.read(path)

    def teardown(self) -> None:
        try:
            begin(self._folder).assert_ends()
            self._undisturbed.assert_equals(self._folder)
        finally:
            if HAS_DISKS:
                self._unmount()
            shutil.rmtree(self._image.parent)


def test_an_interrupted_sweep_loses_nothing(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Interruptions(tmp_path, undisturbed), settings=settings(examples(4), stateful_step_count=3)
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_sweep_with_its_code(number: signal.Signals, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    sweep = begin(folder, LONG, block_seconds=30)
    wait_for(lambda: list(folder.glob("mlruns/cells/*/blocks/corpus.txt")))
    sweep.process.send_signal(number)
    sweep.assert_ends(code)
    assert sweep.said.count("finished measurements are saved") == 1


def test_one_of_two_sweeps_on_a_store_is_killed(undisturbed: Undisturbed, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    first = begin(folder)
    second = begin(folder)
    wait_for(lambda: list(folder.glob("mlruns/cells/*/blocks")))
    first.kill()
    second.assert_ends()
    undisturbed.assert_equals(folder)


@examples(1)
@given(cell=st.integers(1, 3))
def test_what_waits_for_a_server_is_delivered_once(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, cell: int
) -> None:
    """MLflow's server dies after the cell, and returns: `sync` delivers what waits."""
    place = tmp_path_factory.mktemp("outage")  # a new one: MLflow keeps databases open, and finds the one before
    folder = place / "sweep"
    folder.mkdir()
    port = free_port()
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
    with plain_server(place, port):
        sweep = begin(folder, **address)
        wait_for(lambda: f"[{cell}/3]" in sweep.said or sweep.process.poll() is not None)
    sweep.process.wait(PATIENCE)
    assert "Traceback" not in sweep.said
    with plain_server(place, port):
        small_stores.ran(folder, "sync", env=address)
        undisturbed.assert_equals(folder, Store(address["MLFLOW_TRACKING_URI"]))
