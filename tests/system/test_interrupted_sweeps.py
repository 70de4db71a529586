"""Tests that an interrupted sweep, run again, has the same measurements as a sweep without interruption."""

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
from tests.system.small_stores import PATIENCE, SMALL_SWEEP

SHORT_SWEEP = ("model=nano/6k,nano/15k,nano/38k", *SMALL_SWEEP, "analyzers=power_law")
LONG_SWEEP = ("model=nano/2m", "dataset=stdlib", "analyzers=[]")  # does not end before a signal arrives
DISK_BYTES = 64 * 2**20
CLONE_NEWNS = 0x20000  # <linux/sched.h>; os.unshare needs Python 3.12
# When a sweep is interrupted, in percent of the duration without interruption. Before 30%, it only imports modules.
PERCENT = st.integers(30, 100)


def can_mount() -> bool:
    """Return whether this user can make and mount an ext4 file system."""
    needed = shutil.which("mkfs.ext4") and shutil.which("unshare") and Path("/dev/loop-control").exists()
    return bool(needed) and not subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode


HAS_DISKS = os.geteuid() == 0 and can_mount()


@pytest.fixture(scope="module", autouse=True)
def _own_mounts() -> None:
    """Put this process into its own mount namespace. Its mounts end with the process, even if it is killed.

    Otherwise a disk would remain mounted in pytest's temporary folder, and later runs of pytest would fail when they
    remove this folder.
    """
    if not HAS_DISKS:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@dataclass
class Sweep:
    """A sweep that runs in its own process group.

    Attributes:
        process: the process of the launcher.
        log: the file with everything that the sweep prints.

    """

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of the sweep. Returns False if the sweep still runs after this number of seconds."""
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
        """Wait for the end of the sweep. Assert that it ends with this exit code and without a traceback."""
        assert self.process.wait(PATIENCE) == code, self.output
        assert "Traceback" not in self.output


def begin(folder: Path, words: Sequence[str] = SHORT_SWEEP, *, block_seconds: float = 0.1, **variables: str) -> Sweep:
    """Begin a sweep.

    Args:
        folder: the working folder.
        words: the words of the command line after `measure`.
        block_seconds: the duration of a block. With the default, a measurement has several blocks.
        variables: further environment variables.

    """
    code = (
        "import signal, sys, rbptrack.engine\n"
        # A shell that runs the tests in the background makes its processes ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.modules['rbptrack.engine.collector'].BLOCK_SECONDS = {block_seconds}\n"
        "from rbptrack.cli.app import main\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", code, "measure", *words]
    log = folder.parent.with_name(f"{folder.parent.name}.output.txt")  # outside the disk of `Interruptions`
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | variables, stdout=out, stderr=out, start_new_session=True
        )
    return Sweep(process, log)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition is not met after {PATIENCE:.0f} s"
        time.sleep(0.05)


@dataclass(frozen=True)
class Uninterrupted:
    """The measurements of an uninterrupted sweep (`small_stores.metrics_and_hashes`), and its duration."""

    measurements: dict[str, tuple[dict[str, float], str]]
    seconds: float

    def assert_equals(self, folder: Path, store: Store | None = None, *, may_have_failed: bool = False) -> None:
        """Assert that a sweep has the same measurements, and that nothing is damaged, running or left to deliver.

        Args:
            folder: the working folder of the sweep.
            store: the store of the sweep; by default, the one in the folder.
            may_have_failed: whether runs of failed cells may stand beside the measurements.

        """
        store = store or Store(f"sqlite:///{folder}/mlflow.db")
        assert not list(store.verify())
        statuses = {run.info.status for run in store.measurements.search("")}
        assert statuses == {"FINISHED"} or (may_have_failed and statuses == {"FINISHED", "FAILED"})
        assert small_stores.metrics_and_hashes(store) == self.measurements
        assert not [path for path in (folder / "mlruns/cells").iterdir() if path.suffix != ".lock"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    folder = tmp_path_factory.mktemp("uninterrupted") / "sweep"
    folder.mkdir()
    began = time.monotonic()
    begin(folder).assert_ends()
    seconds = time.monotonic() - began
    return Uninterrupted(small_stores.metrics_and_hashes(Store(f"sqlite:///{folder}/mlflow.db")), seconds)


class Interruptions(RuleBasedStateMachine):
    """A sweep that is interrupted several times and then ends.

    If the tests run as root, the sweep runs on its own disk: an ext4 file system in a file.
    """

    def __init__(self, folder: Path, uninterrupted: Uninterrupted) -> None:
        super().__init__()
        self._uninterrupted = uninterrupted
        self._disk_was_full = False  # a cell may then fail, and its run stay in the store with the status FAILED
        self._image = Path(tempfile.mkdtemp(dir=folder)) / "disk.img"
        self._mount_point = self._image.with_name("mounted")
        self._mount_point.mkdir()
        if HAS_DISKS:
            self._image.touch()
            os.truncate(self._image, DISK_BYTES)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self._image], check=True)
            self._mount()
        self._folder = self._mount_point / "sweep"
        self._folder.mkdir()
        os.sync()  # the folder must be on the disk before the power is cut

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self._mount_point], check=True)

    def _unmount(self) -> None:
        subprocess.run(["umount", "-l", self._mount_point], check=True)

    def _sweep_until(self, percent: int) -> Sweep:
        sweep = begin(self._folder)
        sweep.ends_within(percent / 100 * self._uninterrupted.seconds)
        return sweep

    @rule(percent=PERCENT)
    def kill(self, percent: int) -> None:
        """Kill the sweep by SIGKILL."""
        self._sweep_until(percent).kill()

    @precondition(lambda self: HAS_DISKS)
    @rule(percent=PERCENT)
    def cut_power(self, percent: int) -> None:
        """Continue with the disk as it is while the sweep is stopped. Data that are only in memory are lost."""
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
        """Run a sweep with little free space: it must succeed, or name the full disk. Then free the space."""
        filler = self._mount_point / "filler"
        free = os.statvfs(self._mount_point)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - kilobytes * 1024))
        sweep = begin(self._folder)
        sweep.process.wait(PATIENCE)
        assert "Traceback" not in sweep.output
        if sweep.process.returncode:
            assert "full" in sweep.output or "space" in sweep.output
            self._disk_was_full = True
        filler.unlink()

    @invariant()
    def every_block_can_be_read(self) -> None:
        """Read every saved block. An interruption may lose the unfinished block, but no saved one."""
        for path in self._folder.glob("mlruns/cells/*/blocks/*-*.parquet"):
            RankTable.read(path)

    def teardown(self) -> None:
        try:
            begin(self._folder).assert_ends()
            self._uninterrupted.assert_equals(self._folder, may_have_failed=self._disk_was_full)
        finally:
            if HAS_DISKS:
                self._unmount()
            shutil.rmtree(self._image.parent)


def test_sweep_interrupted_by_kill_power_cut_or_full_disk_loses_nothing(
    uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Interruptions(tmp_path, uninterrupted), settings=settings(examples(4), stateful_step_count=3)
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_sweep_with_its_exit_code_and_a_message(number: signal.Signals, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    sweep = begin(folder, LONG_SWEEP, block_seconds=30)
    wait_for(lambda: list(folder.glob("mlruns/cells/*/blocks/corpus.txt")))
    sweep.process.send_signal(number)
    sweep.assert_ends(code)
    assert sweep.output.count("finished measurements are saved") == 1


def test_second_of_two_equal_sweeps_measures_all_cells_if_the_first_is_killed(
    uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    first = begin(folder)
    second = begin(folder)
    wait_for(lambda: list(folder.glob("mlruns/cells/*/blocks")))
    first.kill()
    second.assert_ends()
    uninterrupted.assert_equals(folder)


@examples(1)
@given(cell=st.integers(1, 3))
def test_sync_delivers_measurements_that_wait_for_server_once(
    uninterrupted: Uninterrupted, tmp_path_factory: pytest.TempPathFactory, cell: int
) -> None:
    """MLflow's server is killed after a cell was measured, and started again after the sweep has ended."""
    # Every example needs a new folder, because MLflow keeps the database of the previous example open.
    folder_of_server = tmp_path_factory.mktemp("outage")
    folder = folder_of_server / "sweep"
    folder.mkdir()
    port = free_port()
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
    with plain_server(folder_of_server, port):
        sweep = begin(folder, **address)
        wait_for(lambda: f"[{cell}/3]" in sweep.output or sweep.process.poll() is not None)
    sweep.process.wait(PATIENCE)
    assert "Traceback" not in sweep.output
    with plain_server(folder_of_server, port):
        small_stores.run_rbptrack(folder, "sync", env=address)
        uninterrupted.assert_equals(folder, Store(address["MLFLOW_TRACKING_URI"]))
