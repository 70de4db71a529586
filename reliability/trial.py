"""One trial at a time, each in a process of its own that is forked from this one, so that nothing is loaded again."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rbptrack import cli
from rbptrack.base.errors import RbptrackError

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a trial counts as hanging; the slowest of them loads and measures a model in two."""

_MESSAGE, _TRACEBACK = 2, 99
_OURS = ("mlruns/hydra", "mlruns/rbptrack.log", "mlruns/store.lock", "mlruns/cells", "mlruns/1/models")
_NOISE = ("%|", "it/s", "warn", "Warning", "INFO", "^")


@dataclass(frozen=True)
class Trial:
    """What became of an input: `message`, `traceback`, `hang`, `half` written, or `accepted`; and what was said."""

    what: str
    outcome: str
    said: str


class Bench:
    """A working folder with a store, put back as it was after every trial that changed it.

    Args:
        folder: to be copied beside itself; nobody else uses it.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy = folder.with_name(f"{folder.name}.copy")
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(folder, self._copy, symlinks=True, copy_function=_copied)
        self._before = self._state()
        self._times = _times(folder)

    def command(self, words: list[str]) -> Trial:
        """Run a command line."""

        def run() -> int:
            sys.argv = ["rbptrack", *words]
            return cli.main()

        return self.call(" ".join(words), run)

    def call(self, what: str, function: Callable[[], object]) -> Trial:
        """Call a function, which returns an exit code, or raises."""
        code, said = _forked(function, self.folder)
        after = self._state()
        changed = after != self._before
        if code is None:
            outcome = "hang"
        elif "Traceback (most recent" in said or code in (_TRACEBACK, -signal.SIGSEGV, -signal.SIGABRT):
            outcome = "traceback"
        elif code == 0:
            outcome = "accepted"
        else:
            outcome = "half" if changed else "message"
        if changed:
            said += f"\n[changed: {sorted(after ^ self._before)[:4]}]"
        if _times(self.folder) != self._times:
            self.put_back()
        return Trial(what, outcome, said)

    def put_back(self) -> None:
        """Make the folder what it was at the beginning."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._copy, self.folder, symlinks=True, copy_function=_copied)
        self._times = _times(self.folder)

    def _state(self) -> set[str]:
        """The files, and the store's runs but failed ones: what a refused input must not change."""
        names = set()
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            if not name.startswith((*_OURS, "mlflow.db")) and "__pycache__" not in name and not path.is_dir():
                names.add(name)
        with closing(sqlite3.connect(self.folder / "mlflow.db")) as database:
            rows = database.execute("select run_uuid, status from runs where status != 'FAILED'")
            names |= {f"run {run} {status}" for run, status in rows}
        return names


def counts(trials: Iterable[Trial]) -> Counter[str]:
    """How many trials had each outcome."""
    return Counter(trial.outcome for trial in trials)


def evenly(items: Sequence[T], count: int) -> Sequence[T]:
    """At most `count` of the items, evenly chosen."""
    return items[:: max(1, -(-len(items) // count))]


def _forked(function: Callable[[], object], folder: Path) -> tuple[int | None, str]:
    """The exit code of a function in a process of its own, None where it did not end, and what it printed."""
    log = folder.with_name(f"{folder.name}.said.txt")
    child = os.fork()
    if child == 0:
        os.setsid()
        warnings.simplefilter("ignore")  # errors where pytest runs this
        os.chdir(folder)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
        code = _TRACEBACK
        try:
            code = int(function() or 0)  # type: ignore[call-overload]
        except RbptrackError as error:  # of the API: the message itself
            print(error, file=sys.stderr)
            code = _MESSAGE
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, log.read_text(errors="replace")


def _times(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def _copied(source: str, target: str) -> str:
    if Path(source).is_fifo():
        os.mkfifo(target)
        return target
    return str(shutil.copy2(source, target))


def lines_of(trial: Trial) -> list[str]:
    """What a trial said for people, without bars and notes of libraries."""
    return [line for line in trial.said.splitlines() if line.strip() and not any(word in line for word in _NOISE)]
