"""The table of a launched sweep, from the files that its processes leave."""

from __future__ import annotations

import io
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from rbptrack.console import CellProgress, CellState
from rbptrack.console import progress as progress_module
from rbptrack.files import write_whole
from rbptrack.measurement import Shard
from rbptrack.sweep import watch as watch_module
from rbptrack.sweep.jobs import Task
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.watch import Watch
from tests.patience import until


def shown(watch: Watch) -> list[str]:
    out = Console(file=io.StringIO(), width=100)
    out.print(watch.table())
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_running_cells_and_shards_are_shown_until_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_STATE_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    watch = Watch(tmp_path, 5)
    assert watch.line() == "0 of 5 cells ended, 0 running"
    tasks = [[Task(0, Shard()), Task(2, Shard())], [Task(1, Shard(3, 8))]]
    watch.expect([tmp_path / "job-4.yaml", tmp_path / "job-5.yaml"], tasks)
    for job in (4, 5):
        (tmp_path / f"job-{job}.log").touch()
    (tmp_path / "0").mkdir()
    with CellProgress("nano-6k / stdlib", total=2000, progress_label="", folder=tmp_path / "0") as progress:
        progress(500)
        progress(500)
    CellState("nano-6k / pydocs, shard 4 of 8", "node7", 3_000, 40_000, 1000.0, time.time()).write(
        tmp_path / "1/shard-3"
    )
    CellState("nano-2m / stdlib", "node8", 10, 40_000, 0.0, time.time() - 200).write(tmp_path / "2")
    clock = [time.monotonic()]
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: clock[0])
    lines = shown(watch)
    assert "silent" not in lines[3]  # node8's clock may be wrong
    clock[0] += 200
    CellState("nano-6k / pydocs, shard 4 of 8", "node7", 3_000, 40_000, 1000.0, time.time() + 1e6).write(
        tmp_path / "1/shard-3"
    )
    progress(0)
    lines = shown(watch)
    assert lines[0] == "0 of 5 cells ended, 3 running"
    assert lines[1].split() == ["cell", "node", "tokens", "tok/s", "left", "log"]
    assert all(part in lines[2] for part in ("nano-6k / stdlib", socket.gethostname(), "1k/2k", "job-4.log"))
    assert "silent 0:03:20" in lines[3]
    assert all(part in lines[4] for part in ("shard 4 of 8", "node7", "3k/40k", "1k", "0:00:37", "job-5.log"))
    assert "nano-6k / pydocs, shard 4 of 8 on node7 3k/40k tokens, 1k tok/s, 0:00:37 left" in watch.line()

    Outcome("nano-6k / stdlib", "nano-6k", "stdlib", "failed", message="out of memory").write(tmp_path / "0")
    Outcome("nano-6k / pydocs, shard 4 of 8", "nano-6k", "pydocs", "measured").write(tmp_path / "1/shard-3")
    with watch:
        pass
    assert "[1/5] nano-6k / stdlib  failed: out of memory" in capsys.readouterr().out
    lines = shown(watch)
    assert lines[0] == "1 of 5 cells ended (1 failed), 1 running"
    assert len(lines) == 3


def test_a_narrow_terminal_shows_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CellState("nano-6k / pydocs, shard 4 of 8", "node7", 3_000, 40_000, 1000.0, time.time()).write(tmp_path / "0")
    monkeypatch.setenv("COLUMNS", "70")
    lines = shown(Watch(tmp_path, 1))
    assert lines[1].split() == ["cell", "tokens", "tok/s", "left"]
    assert all(part in lines[2] for part in ("shard 4 of 8", "3k/40k", "0:00:37"))


def test_what_was_found_on_disk_does_not_count_as_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_STATE_SECONDS", 0.0)
    now = [1000.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    progress = CellProgress("x", total=2_000_000, progress_label="", folder=tmp_path)
    progress(1_000_000)  # of an interrupted measurement
    for _ in range(50):
        now[0] += 1.0
        progress(100)
    state = CellState.read(tmp_path / CellState.FILE)
    assert state is not None
    assert state.speed == pytest.approx(100)
    assert state.seconds_left == pytest.approx((1_000_000 - 5000) / 100)


def test_a_terminal_shows_the_table_below_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("rbptrack.sweep.watch._POLL_SECONDS", 0.01)
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    CellState("nano-2m / stdlib", "node8", 10, 40_000, 0.0, time.time()).write(tmp_path / "0")
    with Watch(tmp_path, 2):
        until(lambda: "node8" in err.getvalue(), "table")
    assert "0 of 2 cells ended, 1 running" in err.getvalue()
    assert "node8" in err.getvalue()


def test_jobs_that_wait_are_counted_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_POLL_SECONDS", 0.01)
    watch = Watch(tmp_path, 4, lambda: "Priority")
    watch.expect([tmp_path / "job-0.yaml", tmp_path / "job-1.yaml"], [[Task(0, Shard())], [Task(1, Shard())]])
    (tmp_path / "job-0.log").touch()
    with watch:
        until(lambda: "Priority" in watch.line(), "reason")
    assert shown(watch) == ["0 of 4 cells ended, 0 running; 1 of 2 jobs waits (Priority)"]  # and no empty table
    (tmp_path / "job-1.log").touch()  # a job that is requeued waits although it has begun
    assert watch.line() == "0 of 4 cells ended, 0 running; waiting: Priority"


def test_files_that_cannot_be_read_or_written_end_neither_the_table_nor_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(progress_module, "_STATE_SECONDS", 0.0)
    (tmp_path / "0").mkdir()
    (tmp_path / "0/progress.json").write_text('{"title": "half of')
    (tmp_path / "1").touch()  # where the progress of cell 1 would be
    (tmp_path / "2/outcome.json").mkdir(parents=True)
    with Watch(tmp_path, 3) as watch:
        with CellProgress("x", total=10, progress_label="", folder=tmp_path / "1") as progress:
            progress(5)
        time.sleep(0.1)
        assert watch._thread.is_alive()
    assert watch.line() == "0 of 3 cells ended, 0 running"


def test_two_that_write_one_file_leave_a_whole_one(tmp_path: Path) -> None:
    """Two shards on machines that give both the same process number find their cell measured."""

    def write(text: str) -> None:
        for _ in range(200):
            write_whole(tmp_path / "file", text)

    texts = ["one" * 10_000, "two" * 10_000]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, texts))
    assert (tmp_path / "file").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
