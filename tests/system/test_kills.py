"""Killed sweeps: whatever the moment, the same command goes on, and leaves what an undisturbed sweep leaves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rbptrack.tracking import Store

WORDS = ("model=nano/6k,nano/15k,nano/38k", "dataset=pydocs", "dataset.documents=12", "analyzers=power_law")
PATIENCE = 300.0


def start(folder: Path, *, block_seconds: float = 30.0) -> subprocess.Popen[bytes]:
    """Begin the sweep; short blocks make many moments at which it may be killed."""
    code = (
        "import signal, sys, rbptrack.engine\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where a shell began the tests with `&`
        f"sys.modules['rbptrack.engine.measure'].BLOCK_SECONDS = {block_seconds}\n"
        "from rbptrack.__main__ import main\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", code, "measure", *WORDS]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ.copy(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output.decode()


def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The ranks of each measurement; the store verifies, and nothing is left behind."""
    monkeypatch.chdir(folder)
    store = Store()
    assert list(store.verify()) == []
    states = [run.info.status for run in store.measurements.search("")]
    assert states == ["FINISHED"] * 3
    assert not [path for path in (folder / "mlruns/cells").iterdir() if path.suffix != ".lock"]
    runs = store.runs()
    return {row["model"]: runs.ranks(row["run_id"]).rank for _, row in runs.frame.iterrows()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    code, output = finish(start(folder))
    assert code == 0, output
    return folder


@pytest.mark.parametrize("seed", range(5))
def test_kill_9_at_any_moment(seed: int, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kills, then the sweep ends; every measurement is there once, with the same ranks."""
    draw = random.Random(seed)
    for _ in range(2):
        process = start(tmp_path, block_seconds=0.2)
        time.sleep(draw.uniform(4, 20))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, output = finish(start(tmp_path))
    assert code == 0, output
    want = read(undisturbed, monkeypatch)
    found = read(tmp_path, monkeypatch)
    assert found.keys() == want.keys()
    assert all(np.array_equal(found[model], want[model]) for model in want)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_sweep_with_its_code(number: signal.Signals, code: int, tmp_path: Path) -> None:
    process = start(tmp_path)
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("mlruns/cells/*/blocks/corpus.txt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    ended, output = finish(process)
    assert ended == code, output
    assert output.count("finished measurements are saved") == 1
    assert "Traceback" not in output


def test_one_of_two_sweeps_on_a_store_is_killed(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [start(tmp_path, block_seconds=0.2) for _ in range(2)]
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("mlruns/cells/*/blocks")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(both[0].pid, signal.SIGKILL)
    both[0].communicate()
    code, output = finish(both[1])
    assert code == 0, output
    found = read(tmp_path, monkeypatch)
    want = read(undisturbed, monkeypatch)
    assert all(np.array_equal(found[model], want[model]) for model in want)
