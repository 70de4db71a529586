"""Cut the power under real sweeps: what the disk holds at that moment is all that is left.

    python -m tests.campaigns power_cut RESULTS.jsonl --times 20

A sweep works on an ext4 file system in an image (a loop mount, which needs root). At a random moment it is stopped, the
image is copied as it is, and the copy is mounted elsewhere, as a disk is after a power cut: what was written and not
synced is not there. Every run that its database calls FINISHED must be whole (`verify read_data=true`), and the same
command must come to the same end there as a sweep that nothing disturbed, without measuring a finished cell again.
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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.campaigns.kills import PATIENCE, Life
from tests.campaigns.recorded import ROOT, record, recorded
from tests.campaigns.whole_store import Cell, cells, faults

FAULT = "power cut"
SIZE = "400M"


def options(parser: argparse.ArgumentParser) -> None:
    """What may be asked for."""
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    """The file system of an image, at a place; raises CalledProcessError where that is not allowed."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def finished(folder: Path) -> int:
    """How many measurements the database calls FINISHED; 0 where there is none yet."""
    database = folder / "mlruns/mlflow.db"
    if not database.exists():
        return 0
    asked = "select count(*) from runs join tags using (run_uuid) where key = 'rbptrack.fingerprint' and status = 'FINISHED'"
    with closing(sqlite3.connect(database)) as opened:
        return int(opened.execute(asked).fetchone()[0])


def trial(home: Path, whole: dict[str, list[Cell]], ended: int, seconds: float) -> tuple[str, int, list[str]]:
    """One cut, some seconds after so many cells had ended: what the sweep was doing, how many cells were finished, and what is wrong."""
    image, copy = home / "disk.img", home / "after.img"
    subprocess.run(["truncate", "-s", SIZE, image], check=True)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    before, after = home / "before", home / "after"
    with mounted(image, before):
        sweep = Life(home, before / "work", "first")
        sweep.until(lambda: sweep.said.read_text().count(" measured ") >= ended)
        time.sleep(seconds)
        sweep.process.send_signal(signal.SIGSTOP)
        phase = sweep.phase() if sweep.process.poll() is None else "ended"
        subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        sweep.process.kill()
        sweep.process.wait()
    shutil.rmtree(home / "tmp")
    with mounted(copy, after):
        (after / "work").mkdir(exist_ok=True)
        done, wrong = finished(after / "work"), list[str]()
        if done:
            wrong += _told(home, after / "work", "verify", "read_data=true")
        again = Life(home, after / "work", "again")
        if code := again.process.wait(PATIENCE):
            wrong.append(f"the same command ended with {code}: {again.said.read_text()[-300:]}")
        if f"{done} skipped" not in (text := again.said.read_text()) and done:
            wrong.append(f"{done} were finished: {text[-300:]}")
        wrong += faults(after / "work", whole, temporary=home / "tmp", sweeps=1)
    return phase, done, wrong


def _told(home: Path, folder: Path, *arguments: str) -> list[str]:
    """What a command says is wrong."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(home / "tmp"), "HF_HUB_OFFLINE": "1"}
    (home / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "rbptrack", *arguments]
    said = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    return [] if said.returncode == 0 else [f"{arguments[0]}: {line}" for line in said.stderr.splitlines()]


def main(asked: argparse.Namespace) -> int:
    """Try so many cuts; 1 where one lost something."""
    left = asked.times - sum(line["fault"] == FAULT for line in recorded(asked.results))
    draw, lost = random.Random(asked.seed + left), 0
    with tempfile.TemporaryDirectory(prefix="power-cut-") as name:
        undisturbed = Path(name, "undisturbed")
        undisturbed.mkdir()
        sweep = Life(undisturbed, undisturbed / "work", "alone")
        if sweep.process.wait(PATIENCE):
            print(sweep.said.read_text(), file=sys.stderr)
            return 1
        whole = cells(undisturbed / "work")
        for number in range(left):
            home = Path(tempfile.mkdtemp(prefix="cut-", dir=name))
            try:
                phase, done, wrong = trial(home, whole, draw.randrange(4), draw.uniform(0.0, 5.0))
            except subprocess.CalledProcessError as error:
                print(f"a loop mount is not allowed here: {error}", file=sys.stderr)
                return 0
            lost += bool(wrong)
            record(asked.results, FAULT, {"times": 1, "phase": phase, "finished": done, "wrong": wrong})
            print(f"{number + 1}/{left} {phase}, {done} finished: {'; '.join(wrong) or 'nothing lost'}", flush=True)
            shutil.rmtree(home)
    return 1 if lost else 0
