"""Trials of bad input. Each trial runs in its own process, in a folder that is restored after the trial."""

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

import rbptrack.sweep.load  # imported here, because a trial is a fork of this process and need not import it again
import rbptrack.tracking  # noqa: F401
from rbptrack.base.errors import RbptrackError
from rbptrack.cli.app import main

PATIENCE = 300.0
"""Seconds after which a trial counts as hanging. The slowest trial loads and measures a model, and takes about 2 s."""

# Trials are forked from a server process that has imported these modules. It has no threads; pytest's process has.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", __name__, "tests.system.bad_input.calls"])

_EXIT_CODE_OF_API_ERROR = 2
_MAY_CHANGE = ("mlruns/hydra", "mlruns/rbptrack.log", "mlruns/store.lock", "mlruns/cells", "mlruns/1/models")
_NOISE = ("%|", "it/s", "warn", "Warning", "INFO", "^")  # parts of progress bars and of warnings of libraries


@dataclass(frozen=True)
class Trial:
    """The outcome of one input.

    Attributes:
        code: the exit code; None if the program did not end.
        output: everything that the program printed.
        changed: files and runs of the folder that were added or removed.

    """

    code: int | None
    output: str
    changed: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The printed lines without blank lines, progress bars and warnings of libraries."""
        return [line for line in self.output.splitlines() if line.strip() and not any(word in line for word in _NOISE)]

    def assert_ended(self) -> None:
        """Assert that the program ended by itself and without a traceback, and changed nothing if it failed."""
        assert self.code is not None, f"the program did not end within {PATIENCE:.0f} s"
        assert self.code >= 0, f"the program was ended by {signal.Signals(-self.code).name}: {self.output}"
        assert "Traceback (most recent" not in self.output, self.output
        if self.code:
            assert not self.changed

    def assert_refused_in_two_lines(self) -> None:
        """Assert that the program failed and printed one or two lines."""
        assert self.code, f"the input was accepted: {self.output}"
        assert 1 <= len(self.lines) <= 2, self.output


class Bench:
    """A working folder with a store. It is restored after every trial that changed it.

    Args:
        folder: the working folder. It is copied to a folder next to it. No other test may use it.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy = folder.with_name(f"{folder.name}.copy")
        self._log = folder.with_name(f"{folder.name}.output.txt")
        _copy(folder, self._copy)
        self._before = self._state()
        self._times = self._changed_at()

    def run_command_line(self, words: list[str]) -> Trial:
        """Run `rbptrack` with these words."""
        return self.run_function(_main, words)

    def run_function(self, function: Callable[..., object], *arguments: object) -> Trial:
        """Call a function in another process. It must return an exit code or raise an RbptrackError.

        The function and its arguments are pickled.
        """
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
        """Return what a refused input must not change: the names of files, and the runs that did not fail."""
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
        """Return when each file and folder was last changed, in ns."""
        return {path: path.lstat().st_mtime_ns for path in self.folder.rglob("*")}


def _main(words: list[str]) -> int:
    sys.argv = ["rbptrack", *words]
    return main()


def _run(folder: Path, log: Path, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """Call the function in the folder, write its output to the log, and end this process with its exit code."""
    os.setsid()
    os.chdir(folder)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    warnings.simplefilter("ignore")
    try:
        code = function(*arguments)
    except RbptrackError as error:  # a call of the Python API raises the error; only the command line prints it
        print(error, file=sys.stderr)
        code = _EXIT_CODE_OF_API_ERROR
    sys.exit(int(code or 0))  # type: ignore[call-overload]


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)


def _copy_file(source: str, target: str) -> None:
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)
