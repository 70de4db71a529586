"""The table of a launched sweep, from the files that its processes leave."""

from __future__ import annotations

import io
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from rbptrack.analysis.executors import Job
from rbptrack.base.files import write_whole
from rbptrack.config.request import measuring, sweep_of
from rbptrack.console import progress as progress_module
from rbptrack.console.progress import CellProgress, CellState
from rbptrack.ranks.measurement import Shard
from rbptrack.sweep import watch as watch_module
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.reports import Inbox, Teller, report_file
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task
from rbptrack.sweep.watch import Watch
from tests.jobs import job


def shown(watch: Watch) -> list[str]:
    out = Console(file=io.StringIO(), width=100)
    out.print(watch.table())
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def tasks_of(*places: tuple[int, Shard]) -> list[Task]:
    (config,) = sweep_of(measuring(["model=nano/6k", "dataset=pydocs"]))[1]
    return [Task(number, shard, config) for number, shard in places]


def jobs(folder: Path, count: int) -> list[Job]:
    return [job(number, folder=folder) for number in range(count)]


def watching(todo: list[Job], *, total: int) -> tuple[Watch, Inbox]:
    results = Results()
    inbox = Inbox(results, total=total, aloud=True)
    return Watch(results, inbox, todo, total=total), inbox


def test_running_cells_and_shards_are_shown_until_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_STATE_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    todo, tasks = jobs(tmp_path, 3), tasks_of((0, Shard()), (1, Shard(3, 8)), (2, Shard()))
    watch, inbox = watching(todo, total=5)
    assert watch.line() == "0 of 5 cells ended, 0 running; 3 of 3 jobs wait"
    first, second, third = tellers = [Teller(report_file(job)) for job in todo]
    with CellProgress(
        "nano-6k / stdlib", total=2000, progress_label="", tell=partial(first.at_work, tasks[0])
    ) as progress:
        progress(500)
        progress(500)
    far = CellState("nano-6k / pydocs, shard 4 of 8", "node7", 3_000, 40_000, 1000.0, time.time())
    second.at_work(tasks[1], far)
    third.at_work(tasks[2], CellState("nano-2m / stdlib", "node8", 10, 40_000, 0.0, time.time() - 200))
    inbox.read(todo)
    clock = [time.monotonic()]
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: clock[0])
    lines = shown(watch)
    assert "silent" not in lines[4]  # node8's clock may be wrong
    clock[0] += 200
    second.at_work(tasks[1], replace(far, at=time.time() + 1e6))
    progress(0)
    inbox.read(todo)
    lines = shown(watch)
    assert lines[0] == "0 of 5 cells ended, 3 running"
    assert lines[1].split() == ["cell", "node", "tokens", "tok/s", "left", "log"]
    assert all(part in lines[2] for part in ("nano-6k / stdlib", socket.gethostname(), "1k/2k", "job-0.log"))
    assert all(part in lines[3] for part in ("shard 4 of 8", "node7", "3k/40k", "1k", "0:00:37", "job-1.log"))
    assert "silent 0:03:20" in lines[4]
    assert "nano-6k / pydocs, shard 4 of 8 on node7 3k/40k tokens, 1k tok/s, 0:00:37 left" in watch.line()

    failed = Outcome("nano-6k / stdlib", "nano-6k", "stdlib", "failed", message="out of memory")
    first.ended(tasks[0], failed, whole=True)
    second.ended(tasks[1], Outcome("nano-6k / pydocs, shard 4 of 8", "nano-6k", "pydocs", "measured"), whole=False)
    for _ in range(2):
        inbox.read(todo)
    assert capsys.readouterr().out == "[1/5] nano-6k / stdlib  failed: out of memory\n"  # once
    lines = shown(watch)
    assert lines[0] == "1 of 5 cells ended (1 failed), 1 running"
    assert len(lines) == len(tellers)


def test_a_narrow_terminal_shows_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo, tasks = jobs(tmp_path, 1), tasks_of((0, Shard(3, 8)))
    watch, inbox = watching(todo, total=1)
    state = CellState("nano-6k / pydocs, shard 4 of 8", "node7", 3_000, 40_000, 1000.0, time.time())
    Teller(report_file(todo[0])).at_work(tasks[0], state)
    inbox.read(todo)
    monkeypatch.setenv("COLUMNS", "70")
    lines = shown(watch)
    assert lines[1].split() == ["cell", "tokens", "tok/s", "left"]
    assert all(part in lines[2] for part in ("shard 4 of 8", "3k/40k", "0:00:37"))


def test_what_was_found_on_disk_does_not_count_as_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_STATE_SECONDS", 0.0)
    now = [1000.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    told = list[CellState]()
    progress = CellProgress("x", total=2_000_000, progress_label="", tell=told.append)
    progress(1_000_000)  # of an interrupted measurement
    for _ in range(50):
        now[0] += 1.0
        progress(100)
    assert told[-1].speed == pytest.approx(100)
    assert told[-1].seconds_left == pytest.approx((1_000_000 - 5000) / 100)


def test_a_terminal_shows_the_table_below_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    todo, tasks = jobs(tmp_path, 1), tasks_of((0, Shard()))
    watch, inbox = watching(todo, total=2)
    Teller(report_file(todo[0])).at_work(tasks[0], CellState("nano-2m / stdlib", "node8", 10, 40_000, 0.0, time.time()))
    inbox.read(todo)
    with watch:
        watch.show("")
    assert "0 of 2 cells ended, 1 running" in err.getvalue()
    assert "node8" in err.getvalue()


def test_jobs_that_wait_are_counted_and_why(tmp_path: Path) -> None:
    todo = jobs(tmp_path, 2)
    watch, inbox = watching(todo, total=4)
    Teller(report_file(todo[0]))
    inbox.read(todo)
    assert watch.line("Priority") == "0 of 4 cells ended, 0 running; 1 of 2 jobs waits (Priority)"
    assert shown(watch) == ["0 of 4 cells ended, 0 running; 1 of 2 jobs waits"]  # and no empty table
    Teller(report_file(todo[1]))  # a job that is requeued waits although it has begun
    inbox.read(todo)
    assert watch.line("Priority") == "0 of 4 cells ended, 0 running; waiting: Priority"


def test_files_that_cannot_be_read_or_written_end_neither_the_table_nor_a_measurement(tmp_path: Path) -> None:
    todo, tasks = jobs(tmp_path, 2), tasks_of((1, Shard()))
    watch, inbox = watching(todo, total=3)
    todo[1] = replace(todo[1], log=tmp_path / "gone/job-1.log")
    todo[1].log.parent.mkdir()
    teller = Teller(report_file(todo[1]))
    report_file(todo[0]).write_text('{"ended": [[0, 0, true')
    shutil.rmtree(todo[1].log.parent)
    teller.at_work(tasks[0], CellState("x", "n", 5, 10, 0.0, 0.0))
    inbox.read(todo)
    assert watch.line() == "0 of 3 cells ended, 0 running; 2 of 2 jobs wait"


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
