"""Kill real sweeps at random moments, run the same command to its end, and say what is not as if nothing had happened.

    python -m tests.campaigns kills RESULTS.jsonl                 # everything; continues where RESULTS.jsonl stops
    python -m tests.campaigns kills RESULTS.jsonl --only alone --signal SIGKILL --times 20

Each trial has a working folder of its own. A sweep of three models on one corpus is started as a user starts it and
killed, up to three times in a row; then the command runs to its end, and the store is compared with an undisturbed
sweep's (`tests/campaigns/whole_store.py`).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.campaigns.recorded import ROOT, record, recorded
from tests.campaigns.whole_store import Cell, abandoned, cells, faults
from tests.patience import PATIENCE

SWEEP = (
    "-m", "model=nano/6k,nano/15k,nano/38k", "dataset=pydocs", "dataset.documents=20", "engine.part_tokens=600",
    "tracking.every=0.3", "analyzers=[power_law,error_entropy]",
)  # fmt: skip
PLAN = (  # who, signal, how many signals
    ("alone", "SIGKILL", 60),
    ("beside another sweep", "SIGKILL", 40),
    ("making the store", "SIGKILL", 20),
    ("alone", "SIGTERM", 20),
    ("alone", "SIGINT", 20),
    ("making the store", "SIGTERM", 10),
    ("making the store", "SIGINT", 10),
    ("four on one cell", "SIGKILL", 10),
)
LIVES = 3
STORE = 5.0  # seconds of a processor that making a store takes, or a little more


@dataclass
class Life:
    """A program that was started: `python -m rbptrack` with a sweep's arguments; ends with a `with` at the latest.

    Args:
        home: the trial's folder.
        folder: the working folder, below it.
        name: of the file in which its output goes.

    """

    home: Path
    folder: Path
    name: str
    arguments: Sequence[str] = SWEEP
    process: subprocess.Popen[bytes] = field(init=False)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.home / "tmp").mkdir(exist_ok=True)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "HF_", "HYDRA_", "RBPTRACK_"))}
        environment = clean | {
            "HF_HUB_OFFLINE": "1",
            "RBPTRACK_CACHE": str(self.home / "cache"),
            "TMPDIR": str(self.home / "tmp"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "rbptrack", *self.arguments],
                cwd=self.folder, env=environment, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        self.began = time.monotonic()

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> Path:
        """What it printed."""
        return self.home / f"{self.name}.txt"

    def work(self, seconds: float) -> None:
        """Let it use so much of a processor, which other programs do not stretch; or end; or wait for a minute."""
        process, deadline = psutil.Process(self.process.pid), time.monotonic() + 60
        with suppress(psutil.Error):
            self.until(lambda: sum(process.cpu_times()[:2]) >= seconds or time.monotonic() > deadline)

    def until(self, ready: Callable[[], bool]) -> bool:
        """Wait; False if the program ends first."""
        while not ready():
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def phase(self) -> str:
        """What it is doing now, as far as its files and its output tell."""
        text, runs = self.said.read_text(), self.folder / "mlruns"
        if not runs.exists():
            return "starting"
        if not (runs / "mlflow.db").exists():
            return "making the store"
        ended = text.count(" measured ") + text.count(" skipped ")
        if ended >= 3:
            return "analysis"
        if list(runs.glob("partial/*/record/record.json")):
            return "delivering"
        if list(runs.glob("partial/*/*.tmp")):
            return "writing a part"
        return "scoring" if list(runs.glob("partial/*/part-*")) else "loading, or between cells"

    def end(self, number: signal.Signals) -> str:
        """Send a signal and wait; returns what is wrong with how it ended, or nothing."""
        self.process.send_signal(number)
        if (code := self._ended()) is None:
            return f"still there {PATIENCE} s after {number.name}"
        text = self.said.read_text()
        expected = {0, -number} if number == signal.SIGKILL else {0, -number, 128 + number}
        if code not in expected:
            return f"exit code {code} after {number.name}"
        return f"a traceback after {number.name}" if "Traceback" in text else ""

    def finish(self) -> str:
        """Wait for its end; returns what is wrong with it, or nothing."""
        if (code := self._ended()) is None:
            return f"{self.name} did not end in {PATIENCE} s"
        text = self.said.read_text()
        return "" if code == 0 and "Traceback" not in text else f"{self.name}: exit code {code}: {text.strip()[-300:]}"

    def _ended(self) -> int | None:
        """The exit code; None where it does not end and is killed."""
        with self, suppress(subprocess.TimeoutExpired):
            return self.process.wait(PATIENCE)
        return None


@dataclass
class Trial:
    """One working folder's life under one kind of signal.

    Args:
        who: of PLAN.
        number: the signal.
        home: the trial's folder.
        seed: of the moments.
        cost: seconds of a processor that the undisturbed sweep's imports took, and all of it.

    Attributes:
        kills: when each signal was sent, and what the program did then.
        wrong: everything that is not as if nothing had happened.

    """

    who: str
    number: signal.Signals
    home: Path
    seed: int
    cost: tuple[float, float]
    kills: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ended: int = 0  # programs that came to their end

    def __post_init__(self) -> None:
        self.folder, self._moments = self.home / "work", random.Random(self.seed)

    def run(self, undisturbed: dict[str, list[Cell]]) -> dict[str, Any]:
        """Kill, finish and compare; returns what is recorded."""
        began = time.monotonic()
        if self.who == "four on one cell":
            undisturbed = self._four(undisturbed)
        else:
            self._sweeps()
        try:
            self.wrong += faults(self.folder, undisturbed, temporary=self.home / "tmp", sweeps=self.ended)
            left = abandoned(self.folder)
        except sqlite3.Error as error:
            self.wrong.append(f"the database cannot be read: {error}")
            left = 0
        found = {"who": self.who, "signal": self.number.name, "seed": self.seed, "times": len(self.kills)}
        found |= {"kills": self.kills, "wrong": self.wrong, "abandoned": left}
        return found | {"seconds": round(time.monotonic() - began)}

    def _sweeps(self) -> None:
        other = Life(self.home, self.folder, "other") if self.who == "beside another sweep" else None
        for life in range(1 if self.who == "making the store" else LIVES):
            running = Life(self.home, self.folder, f"life-{life}")
            self._wait(running, first=life == 0)
            if running.process.poll() is not None:  # it was faster
                self._finish(running)
                break
            self._kill(running)
        for running in filter(None, [other, Life(self.home, self.folder, "last")]):
            self._finish(running)

    def _wait(self, running: Life, *, first: bool) -> None:
        """Until the random moment: seldom while it imports, else after the first trace of its work."""
        imports, whole = self.cost
        if self.who == "making the store":
            low, high = imports, imports + STORE
        elif self._moments.random() < 0.1:
            low, high = 0.0, imports
        else:
            low, high = imports, (0.85 if first else 0.6) * whole
        running.work(self._moments.uniform(low, high))

    def _four(self, undisturbed: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
        """Four processes that are asked for one cell: two in one folder, two elsewhere; one is killed."""
        words = [word if not word.startswith("model=") else "model=nano/15k" for word in SWEEP]
        elsewhere = [*words, f"tracking.uri=sqlite:///{self.folder}/mlruns/mlflow.db"]
        places = [
            (self.folder, words),
            (self.folder, words),
            (self.home / "b", elsewhere),
            (self.home / "c", elsewhere),
        ]
        lives = [Life(self.home, place, f"life-{i}", said) for i, (place, said) in enumerate(places)]
        victim = self._moments.choice(lives)
        self._wait(victim, first=True)
        if victim.process.poll() is None:
            self._kill(victim)
            lives.remove(victim)
        for running in [*lives, Life(self.home, self.folder, "last", words)]:
            self._finish(running)
        return {name: cell for name, cell in undisturbed.items() if "15k" in name}

    def _kill(self, running: Life) -> None:
        after = round(time.monotonic() - running.began, 2)
        self.kills.append({"after": after, "phase": running.phase()})
        self.wrong += filter(None, [running.end(self.number)])

    def _finish(self, running: Life) -> None:
        self.wrong += filter(None, [running.finish()])
        self.ended += running.process.returncode == 0


def undisturbed_sweep(home: Path) -> tuple[dict[str, list[Cell]], tuple[float, float]]:
    """The cells of a sweep that nothing disturbs, made once in a folder, and what it cost; see Trial."""
    if not (home / "cost").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        Life(home, home / "warm", "warm", ("plugins",)).finish()  # files that are read for the first time take longer
        life = Life(home, home / "work", "undisturbed")
        process = psutil.Process(life.process.pid)
        life.until((home / "work/mlruns").exists)
        imports = whole = sum(process.cpu_times()[:2])
        # Its own time, without the process that draws: `Life.work` counts that alone.
        while life.process.poll() is None:
            with suppress(psutil.Error):
                whole = max(whole, sum(process.cpu_times()[:2]))
            time.sleep(0.05)
        if wrong := life.finish():
            sys.exit(f"the undisturbed sweep: {wrong}")
        (home / "cost").write_text(f"{imports} {whole}")
    imports, whole = map(float, (home / "cost").read_text().split())
    found = cells(home / "work")
    if wrongs := faults(home / "work", found, temporary=home / "tmp", sweeps=1):
        print("an undisturbed sweep, too:", *wrongs, sep="\n  ")
    return found, (imports, whole)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of this campaign."""
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "rbptrack-kills"))
    parser.add_argument("--only", default="", help="who, of the plan")
    parser.add_argument("--signal", default="", help="of the plan")
    parser.add_argument("--times", type=int, default=0, help="signals, in place of the plan's number")
    parser.add_argument("--trials", type=int, default=10**6, help="stop after so many")


def main(asked: argparse.Namespace) -> int:
    """Kill real sweeps at random moments, and record what was lost."""
    undisturbed, cost = undisturbed_sweep(asked.work / "undisturbed")
    plan = {
        (who, name): asked.times or planned
        for who, name, planned in PLAN
        if asked.only in ("", who) and asked.signal in ("", name)
    }
    failed = 0
    for _ in range(asked.trials):
        done = {key: [t for t in recorded(asked.results) if (t.get("who"), t.get("signal")) == key] for key in plan}
        share = {key: sum(trial["times"] for trial in done[key]) / plan[key] for key in plan}
        who, name = min(share, key=lambda key: share[key])
        if share[who, name] >= 1:
            break
        seed = len(done[who, name])
        home = asked.work / f"{who.replace(' ', '-')}-{name}-{seed}"
        shutil.rmtree(home, ignore_errors=True)
        found = record(asked.results, "kill", Trial(who, signal.Signals[name], home, seed, cost).run(undisturbed))
        phases = ", ".join(kill["phase"] for kill in found["kills"])
        print(f"{who}, {name}, {seed}: {phases}: {'; '.join(found['wrong']) or 'nothing lost'}", flush=True)
        failed += bool(found["wrong"])
        if not found["wrong"]:
            shutil.rmtree(home)  # what went wrong can be looked at
    return 1 if failed else 0
