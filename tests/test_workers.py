"""Other processes that draw and compute for the one that reports."""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rbptrack.analysis import Drawing, Report
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.reporting import making, runner, workers
from rbptrack.reporting.broken import AnalyzerFault
from rbptrack.reporting.discovery import discover
from rbptrack.reporting.files import ReportFiles
from rbptrack.reporting.runner import Findings
from rbptrack.reporting.workers import Workers
from rbptrack.tracking.store import Store
from tests.patience import PATIENCE, until_they_end


def drawn() -> Figure:
    figure = Figure(layout="constrained")
    figure.subplots().plot([1, 2], [3, 4])
    return figure


class Odd(Figure):
    """A class that no other process can load."""

    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("no_such_name",)


def test_figures_are_drawn_in_a_second_process_and_here_where_that_fails(tmp_path: Path) -> None:
    odd = Odd()
    odd.subplots().plot([1, 2], [3, 4])
    report = Report(drawings={"plain": Drawing(drawn()), "odd": Drawing(odd), "local": Drawing(drawn())})
    report.drawings["local"].figure.axes[0].xaxis.set_major_formatter(lambda value, _: f"{value}")  # does not pickle
    with Workers(3) as workers:
        found = ReportFiles(report, tmp_path / "there", draw=workers.draw).inline_svgs()
    here = ReportFiles(Report(drawings={"plain": Drawing(drawn())}), tmp_path / "here").inline_svgs()
    assert found["plain"] == here["plain"], "byte for byte"
    assert set(found) == {"plain", "odd", "local"}
    assert len(list((tmp_path / "there/figures").iterdir())) == 9


def test_workers_end_with_a_killed_first_process() -> None:
    code = (
        "import os, signal\n"
        "os.sched_getaffinity = lambda pid: {0, 1}\n"
        "from matplotlib.figure import Figure\n"
        "from pathlib import Path\n"
        "from rbptrack.reporting.workers import Workers\n"
        "if __name__ == '__main__':\n"
        "    workers = Workers(3)\n"
        "    workers._pool.submit(os.getpid).result()\n"
        "    print(*workers._pool._processes, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == -signal.SIGKILL
    (left,) = map(int, run.stdout.split())
    until_they_end([left])


PLUGIN = """
import os, signal
from dataclasses import dataclass
from multiprocessing import parent_process
from typing import ClassVar
from rbptrack.analysis import Analyzer, Report, Runs
from rbptrack.base.errors import RbptrackError


@dataclass(kw_only=True)
class Alone(Analyzer):
    name: ClassVar[str] = "alone"

    def analyze(self, runs):
        return Report(headline="said here" if parent_process() is None else "said elsewhere")


@dataclass(kw_only=True)
class Killed(Analyzer):
    name: ClassVar[str] = "killed"

    def analyze(self, runs):
        if parent_process():
            os.kill(os.getpid(), signal.SIGKILL)
        return Report(headline="said here")


@dataclass(kw_only=True)
class Silent(Analyzer):
    name: ClassVar[str] = "silent"

    def analyze(self, runs):
        raise RbptrackError("nothing to say" + " here" * (parent_process() is None))


@dataclass(kw_only=True)
class Wrong(Analyzer):
    name: ClassVar[str] = "wrong"

    def analyze(self, runs):
        return 1 / 0
"""


@pytest.fixture
def store(untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own, with analyzers of its own, in the working folder."""
    shutil.copytree(untouched / "mlruns", tmp_path / "mlruns")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/mine.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(names: list[str], folder: Path) -> Findings:
    connection = Store(TrackingConfig())
    runs = connection.reader.runs(FilterConfig())
    plugins = discover()
    chosen = [plugins.analyzers[name]() for name in names]
    return runner.analyze_all(connection.writer, runs, chosen, folder=folder)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.csv"))}


def test_an_analyzer_in_another_process_finds_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    computed, by_this = making.computed, list[str]()
    monkeypatch.setattr(making, "computed", lambda a, runs: by_this.append(a.name) or computed(a, runs))
    names = ["silent", "alone", "lack_of_fit"]
    here = found(names, store / "here")
    monkeypatch.setattr(workers, "_MANY_RUNS", 1)
    there = found(names, store / "there")
    assert by_this == [*names, "silent", "alone"]
    assert [s.name for s in there.sections] == [s.name for s in here.sections] == ["alone", "lack_of_fit"]
    assert [s.figures for s in there.sections] == [s.figures for s in here.sections], "byte for byte"
    assert files(store / "there") == files(store / "here")
    assert len(files(store / "there")) > 2


def test_what_an_analyzer_raises_in_another_process_is_its_result(store: Path) -> None:
    runs = pickle.dumps(Store(TrackingConfig()).reader.runs(FilterConfig()))
    plugins = discover().analyzers

    def there(name: str) -> object:
        return workers._computed_there(None, pickle.dumps(plugins[name]()), runs, "", "f")

    assert str(there("silent")) == "nothing to say here"
    wrong = there("wrong")
    assert isinstance(wrong, AnalyzerFault)
    assert "mine.py, line" in str(wrong)
    assert "ZeroDivisionError" in str(wrong)
    assert pickle.loads(pickle.dumps(wrong)).args == wrong.args


def test_what_a_lost_process_had_begun_is_computed_here(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed for want of memory, say."""
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(workers, "_MANY_RUNS", 1)
    there = found(["lack_of_fit", "alone", "killed"], store / "there")
    assert [s.name for s in there.sections] == ["lack_of_fit", "alone", "killed"]
    assert there.sections[2].report.headline == "said here"
    assert there.failed == 0
    assert list((store / "there/lack_of_fit/figures").glob("*.svg"))


def test_an_interrupt_ends_what_is_computed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    with pytest.raises(KeyboardInterrupt), Workers(3) as some:  # noqa: PT012
        assert some._pool
        asleep = some._pool.submit(time.sleep, 600)
        (process,) = some._pool._processes.values()
        raise KeyboardInterrupt
    assert not process.is_alive()
    with pytest.raises(BrokenProcessPool):
        asleep.result(timeout=0)
