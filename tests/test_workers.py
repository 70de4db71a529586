"""Other processes that compute analyzers for the one that reports."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.analysis.discovery import ANALYZERS, discover
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.reporting import runner
from rbptrack.reporting.runner import Findings
from rbptrack.tracking.store import Store
from tests.patience import PATIENCE, until_they_end

PLUGIN = """
import os, signal, time
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import ClassVar
from rbptrack.analysis import Analyzer, Report, Runs
from rbptrack.base.errors import RbptrackError


def meet():
    "The first process waits until another one works for it, whose imports may take seconds."
    begun = os.environ.get("BEGUN")
    if begun and parent_process():
        Path(begun).touch()
    while begun and not Path(begun).exists():
        time.sleep(0.05)


@dataclass(kw_only=True)
class Alone(Analyzer):
    name: ClassVar[str] = "alone"

    def analyze(self, runs):
        meet()
        while os.environ.get("AFTER") and not Path(os.environ["AFTER"]).exists():
            time.sleep(0.05)
        return Report(headline="said here" if parent_process() is None else "said elsewhere")


@dataclass(kw_only=True)
class Killed(Analyzer):
    name: ClassVar[str] = "killed"

    def analyze(self, runs):
        meet()
        if parent_process() and not Path("killed-once").exists():
            Path("killed-once").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Report(headline="said here")


@dataclass(kw_only=True)
class Silent(Analyzer):
    name: ClassVar[str] = "silent"

    def analyze(self, runs):
        meet()
        raise RbptrackError("nothing to say" + " here" * (parent_process() is None))


@dataclass(kw_only=True)
class Ends(Analyzer):
    name: ClassVar[str] = "ends"

    def analyze(self, runs):
        os._exit(0)


@dataclass(kw_only=True)
class Forks(Analyzer):
    name: ClassVar[str] = "forks"

    def analyze(self, runs):
        child = os.fork()
        with Path("returned").open("a") as file:
            file.write("one\\n")
        if child:
            os.waitpid(child, 0)
        return Report(headline="forked")


@dataclass(kw_only=True)
class Shuts(Analyzer):
    name: ClassVar[str] = "shuts"

    def analyze(self, runs):
        import io, sys
        os.close(1)
        sys.stdout = sys.stderr = io.StringIO()
        return Report(headline="shut")


@dataclass(kw_only=True)
class Wrong(Analyzer):
    name: ClassVar[str] = "wrong"

    def analyze(self, runs):
        return 1 / 0


@dataclass(kw_only=True)
class Asleep(Analyzer):
    name: ClassVar[str] = "asleep"

    def analyze(self, runs):
        Path("unfinished").write_text(str(os.getpid()))
        Path("unfinished").rename("pid")
        time.sleep(600)


@dataclass(kw_only=True)
class Stop(Analyzer):
    name: ClassVar[str] = "stop"

    def analyze(self, runs):
        while not Path("pid").exists():
            time.sleep(0.05)
        os.kill(os.getppid(), int(os.environ["STOP"]))
        time.sleep(600)
"""


@pytest.fixture
def store(untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own, with analyzers of its own, in the working folder, and two cores."""
    shutil.copytree(untouched / "mlruns", tmp_path / "mlruns")
    (tmp_path / "plugins").mkdir()
    header, *classes = re.split(r"(?=@dataclass\(kw_only=True\)\n)", PLUGIN)
    for text in classes:
        name = re.search(r'= "(\w+)"', text)
        assert name
        (tmp_path / f"plugins/{name[1]}.py").write_text(header + text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    return tmp_path


def analysed(names: list[str], folder: Path) -> Findings:
    """Analyze all measurements, which are said to have many tokens, so that another process is worth its start."""
    reader = Store(TrackingConfig()).reader
    runs = reader.runs(FilterConfig())
    runs.frame["num_tokens"] = 10**9
    chosen = [discover(ANALYZERS).select(name)() for name in names]
    return runner.analyze_all(reader, runs, chosen, folder=folder, sweep="", formats=(), again=True)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.csv"))}


def test_an_analyzer_in_another_process_finds_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["silent", "lack_of_fit", "tokens", "wrong", "alone"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        here = analysed(names, store / "here")
    monkeypatch.setenv("BEGUN", str(store / "begun"))
    there = analysed(names, store / "there")
    assert [s.name for s in there.sections] == [s.name for s in here.sections] == ["lack_of_fit", "alone", "tokens"]
    assert [s.figures for s in there.sections] == [s.figures for s in here.sections], "byte for byte"
    assert [f.sections[1].report.headline for f in (here, there)] == ["said elsewhere", "said elsewhere"]
    assert files(store / "there") == files(store / "here")
    assert len(files(store / "there")) > 2
    assert there.silent == here.silent
    assert there.failed == here.failed == 1
    assert "wrong.py, line" in dict(there.silent)["wrong"]
    assert "ZeroDivisionError" in dict(there.silent)["wrong"]


def test_what_a_lost_process_had_begun_is_computed_here(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed for want of memory, say."""
    monkeypatch.setenv("AFTER", "killed-once")  # the other process begins with the last, this one with the first
    there = analysed(["lack_of_fit", "alone", "killed"], store / "there")
    assert [s.name for s in there.sections] == ["lack_of_fit", "alone", "killed"]
    assert there.sections[2].report.headline == "said here"
    assert there.failed == 0
    assert list((store / "there/lack_of_fit/figures").glob("*.svg"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_other_processes_end_with_the_first(number: signal.Signals, store: Path) -> None:
    code = (
        "import os\n"
        "os.sched_getaffinity = lambda pid: {0, 1}\n"
        "from multiprocessing import get_context\n"
        "from pathlib import Path\n"
        "from rbptrack.reporting import workers\n"
        "from tests.test_workers import analysed\n"
        "workers._context = lambda runs: get_context('fork')\n"
        "analysed(['stop', 'alone', 'asleep'], Path('there'))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "STOP": str(int(number))}
    run = subprocess.run([sys.executable, "-c", code], cwd=store, env=environment, timeout=PATIENCE, check=False)
    assert run.returncode == -number
    until_they_end([int((store / "pid").read_text())])


@pytest.mark.parametrize("cores", [{0}, {0, 1}])
def test_an_analyzer_that_ends_forks_or_shuts_stdout_costs_no_other_its_result(
    cores: set[int], store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores, raising=False)
    findings = analysed(["tokens", "ends", "forks", "shuts", "alone"], store / "there")
    assert [section.name for section in findings.sections] == ["alone", "forks", "shuts", "tokens"]
    assert {s.name: s.report.headline for s in findings.sections if s.name != "tokens"}["forks"] == "forked"
    assert findings.failed == 1
    assert "ended its process (exit code 0) before it returned a report" in dict(findings.silent)["ends"]
    print("stdout is ours")
    assert "stdout is ours" in capfd.readouterr().out
    assert (store / "returned").read_text().count("one") == 2, "the forked process came back, and ended there"


def test_a_report_with_an_analyzer_that_ends_its_process_exits_with_1(store: Path) -> None:
    command = [sys.executable, "-m", "rbptrack", "report", "analyzers=[ends,tokens]", "out=page.html"]
    run = subprocess.run(command, cwd=store, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 1, run.stderr
    assert "analyzer ends failed: Ends ended its process (exit code 0)" in run.stderr
    assert "tokens" in (store / "page.html").read_text(encoding="utf-8")
