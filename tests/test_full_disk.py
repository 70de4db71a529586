"""A disk that fills up at any write of a measurement: said in words, nothing damaged, and measured once afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rbptrack.base.errors import RbptrackError
from rbptrack.config.schema import TrackingConfig
from rbptrack.sweep.outcome import CellFailed
from rbptrack.tracking import outbox
from tests.campaigns.recorded import note
from tests.campaigns.whole_store import Cell, cells, faults
from tests.cells import run
from tests.conftest import Program
from tests.test_frozen_store import unpacked  # noqa: F401 - a fixture

MEGABYTE = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a disk: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def one_life(folder: Path, store: Path, free: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """Measure a cell where so many bytes are free, then once more with room; how the first ended, and what is wrong."""
    (folder / "tmp").mkdir(parents=True)
    shutil.copytree(store, folder / "mlruns")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RBPTRACK_CACHE", str(folder / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    ballast = folder / "ballast"
    size = shutil.disk_usage(folder).free - free
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    wrong: list[str] = []
    try:
        first = run().status
    except (RbptrackError, CellFailed) as error:
        first = str(error)
        wrong += [] if "disk" in first and "full" in first else [f"it says: {first}"]
    ballast.unlink()
    with monkeypatch.context() as patch:  # as if this process had ended, and another had been started
        patch.setattr(sys.modules["rbptrack.tracking.claim"], "alive", lambda tags: False)
        outbox.repair_and_deliver(TrackingConfig(), tell=lambda line: None)
    again = run()
    wrong += [f"then it is {again.status}"] if again.status not in ("measured", "skipped") or again.waits else []
    return first, wrong


def lives(disk: Path, store: Path, steps: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """For each number of free bytes: how the first attempt ended, and what is wrong afterwards."""
    whole: dict[str, list[Cell]] = {}
    for free in steps:
        folder = disk / str(free)
        first, wrong = one_life(folder, store, free, monkeypatch)
        if not whole:
            whole = cells(folder)
        wrong += faults(folder, whole, temporary=folder / "tmp", sweeps=0)
        yield first, f"{free} bytes free: {'; '.join(wrong)}" if wrong else ""
        monkeypatch.chdir(disk)
        shutil.rmtree(folder)


def test_a_full_disk_at_some_writes(disk: Path, with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [8 * MEGABYTE, *range(0, 480_000, 160_000)]
    ends = list(lives(disk, with_store / "mlruns", iter(steps), monkeypatch))
    wrong = [text for _, text in ends if text]
    assert wrong == [], "\n".join(wrong)
    assert ends[0][0] == "measured"
    refused = sum(first != "measured" for first, _ in ends)
    assert refused >= 2
    note("full disk", times=len(steps) - 1, refused=refused)


def test_a_full_disk_at_what_is_written_out(disk: Path, unpacked: Path, program: Program, tmp_path: Path) -> None:  # noqa: F811
    """A line that names the folder, and nothing half there."""
    store = shutil.copytree(unpacked, tmp_path / "store")
    with (disk / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - 20_000)
    for command in (("export", f"out={disk}/all.zip"), ("report", f"out={disk}/page.html", "analyzers=power_law")):
        done = program(*command, cwd=store)
        assert done.returncode == 1, done.stderr
        assert f"error: the disk is full at {disk}: free some space" in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.name for path in disk.iterdir()] == ["ballast"]


@pytest.mark.long
def test_a_full_disk_at_any_write(disk: Path, with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps of one page of the database."""
    ends = list(lives(disk, with_store / "mlruns", iter([8 * MEGABYTE, *range(0, 800_000, 4096)]), monkeypatch))
    wrong = [text for _, text in ends if text]
    note("full disk", times=len(ends) - 1, refused=sum(first != "measured" for first, _ in ends), wrong=wrong)
    assert wrong == [], "\n".join(wrong)
