"""Trials of bad input: each runs in a process of its own, in a working folder that is put back after it."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import rbptrack.sweep.load  # so that the trials, which are forks, need not import it
import rbptrack.tracking  # noqa: F401
from rbptrack.base.errors import RbptrackError
from rbptrack.cli.app import main

PATIENCE = 300.0
"""Seconds after which a trial counts as hanging; the slowest loads and measures a model in two."""

# Trials are forked from a process that has imported these modules and has no threads, as pytest's has.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", __name__, "tests.system.odd.calls"])

_MESSAGE = 2
_MAY_CHANGE = ("mlruns/hydra", "mlruns/rbptrack.log", "mlruns/store.lock", "mlruns/cells", "mlruns/1/models")
_NOISE = ("%|", "it/s", "warn", "Warning", "INFO", "^")


@dataclass(frozen=True)
class Trial:
    """What became of an input.

    Attributes:
        code: the exit code; None if the program did not end.
        said: all that it printed.
        changed: files and runs of the folder that are new or gone.

    """

    code: int | None
    said: str
    changed: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The lines for people, without progress bars and warnings of libraries."""
        return [line for line in self.said.splitlines() if line.strip() and not any(word in line for word in _NOISE)]

    def assert_ended(self) -> None:
        """The program ended by itself and without a traceback; if it refused the input, it left nothing behind."""
        assert self.code is not None, f"no end after {PATIENCE:.0f} s"
        assert self.code >= 0, f"ended by {signal.Signals(-self.code).name}: {self.said}"
        assert "Traceback (most recent" not in self.said, self.said
        if self.code:
            assert not self.changed

    def assert_message(self) -> None:
        """The input was refused in one or two lines."""
        assert self.code, f"accepted: {self.said}"
        assert 1 <= len(self.lines) <= 2, self.said


class Bench:
    """A working folder with a store, which is put back after every trial that changed it.

    Args:
        folder: is copied to a folder next to it; nobody else uses it.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy = folder.with_name(f"{folder.name}.copy")
        self._log = folder.with_name(f"{folder.name}.said.txt")
        _copy(folder, self._copy)
        self._before = self._state()
        self._times = self._changed_at()

    def type(self, words: list[str]) -> Trial:
        """Run a command line."""
        return self.call(_main, words)

    def call(self, function: Callable[..., object], *arguments: object) -> Trial:
        """Call a function that returns an exit code or raises. Both it and its arguments can be pickled."""
        process = FORKS.Process(target=_run, args=(self.folder, self._log, function, arguments))
        process.start()
        process.join(PATIENCE)
        code = process.exitcode
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        trial = Trial(code, self._log.read_text(errors="replace"), tuple(sorted(self._state() ^ self._before)))
        if self._changed_at() != self._times:
            shutil.rmtree(self.folder)
            _copy(self._copy, self.folder)
            self._times = self._changed_at()
        return trial

    def _state(self) -> set[str]:
        """The files, and the store's runs but failed ones: what a refused input must not change."""
        names = set()
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            if not name.startswith((*_MAY_CHANGE, "mlflow.db")) and "__pycache__" not in name and not path.is_dir():
                names.add(name)
        with closing(sqlite3.connect(self.folder / "mlflow.db")) as database:
            rows = database.execute("select run_uuid, status from runs where status != 'FAILED'")
            names |= {f"run {run} {status}" for run, status in rows}
        return names

    def _changed_at(self) -> dict[Path, int]:
        return {path: path.lstat().st_mtime_ns for path in self.folder.rglob("*")}


def _main(words: list[str]) -> int:
    sys.argv = ["rbptrack", *words]
    return main()


def _run(folder: Path, log: Path, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """Call the function in the folder, and end this process with its exit code. Prints into the log."""
    os.setsid()
    os.chdir(folder)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    warnings.simplefilter("ignore")
    try:
        code = function(*arguments)
    except RbptrackError as error:  # of the API: the message itself
        print(error, file=sys.stderr)
        code = _MESSAGE
    sys.exit(int(code or 0))  # type: ignore[call-overload]


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)


def _copy_file(source: str, target: str) -> None:
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)
