"""The program as a user starts it, without the seconds that its imports take: a fork of a process that has made them.

`python -m rbptrack` spends three to six seconds importing torch, transformers and MLflow. Here one process imports them
and then becomes the program once per call: a child of its own, with its own environment, folder, output and exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.patience import PATIENCE

IMPORTS = (
    "mlflow",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.data.meta_dataset",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gpt_neox.modeling_gpt_neox",
    "datasets",
    "hydra.main",
    "hydra._internal.utils",
    "lmfit",
    "matplotlib.pyplot",
    "scipy.stats",
    "sqlalchemy.dialects.sqlite",
    "tabulate",
    "transformers.models.encoder_decoder",
    "transformers.tokenization_utils_tokenizers",
    "rbptrack.analysis.family_figures",
    "rbptrack.analysis.laws",
    "rbptrack.commands.catalogue",
    "rbptrack.commands.measure",
    "rbptrack.commands.analyze",
    "rbptrack.commands.report",
    "rbptrack.corpus.sequences",
    "rbptrack.models.loading",
    "rbptrack.engine.measure",
    "rbptrack.stats.contrasts",
    "rbptrack.tracking.picture",
)
# Variables that libraries read while they are imported: a program that is given one needs imports of its own.
READ_AT_IMPORT = ("HF_DATASETS_", "HF_ENDPOINT", "HF_HOME", "HF_HUB_", "LD_", "OMP_", "OPENBLAS_", "PYTHONHASHSEED",
                  "TRITON_", "XDG_")  # fmt: skip


EMPTY_STORE = "RBPTRACK_TESTS_EMPTY_STORE"  # a variable: where the database lies that `copy_new_stores` copies


HOLD = "RBPTRACK_TESTS_HOLD"  # a variable: a measurement stops there, when so many of its parts are on disk


def hold_at_part(number: int) -> None:
    """Let a measurement of this process wait, once so many parts are on disk, until a signal ends it."""
    from rbptrack.engine.parts import Block
    from rbptrack.engine.saver import Saver

    take = Saver.take

    @wraps(take)
    def held(saver: Saver, block: Block, *arguments: Any) -> None:
        take(saver, block, *arguments)
        while len(list(block._folder.glob("part-*.parquet"))) >= number:
            time.sleep(0.05)

    Saver.take = held  # type: ignore[method-assign]


def copy_new_stores(made: Path) -> None:
    """Let MLflow make its SQLite tables once, into a file, and copy them where it would make them again.

    That takes seconds each time; tests that start the program as a new process make theirs in full.
    """
    import mlflow.store.db.utils as mlflow_utils
    from sqlalchemy import Engine, create_engine

    make = mlflow_utils._initialize_tables

    @wraps(make)
    def copied(engine: Engine) -> None:
        if engine.dialect.name != "sqlite":
            make(engine)
            return
        with FileLock(made.with_name(made.name + ".lock")):
            if not made.exists():
                unfinished = made.with_name(made.name + ".tmp")
                fresh = create_engine(f"sqlite:///{unfinished}")
                make(fresh)
                fresh.dispose()
                unfinished.rename(made)
        connection = engine.raw_connection()
        with closing(connection), closing(sqlite3.connect(made)) as source:
            source.backup(connection.driver_connection)

    mlflow_utils._initialize_tables = copied


class Running:
    """A program that has been started: what a `subprocess.Popen` says of one.

    Attributes:
        pid: of its process.
        returncode: None as long as it has not been waited for until its end.

    """

    def __init__(
        self, arguments: Sequence[str], said: tuple[Path, Path], answers: int, prepared: subprocess.Popen[str]
    ) -> None:
        self.arguments, self._said, self._answers, self._read = [*arguments], said, answers, b""
        self.returncode: int | None = None
        pid, deadline = None, time.monotonic() + PATIENCE
        while pid is None:
            assert prepared.poll() is None, f"the prepared process has ended ({prepared.returncode}): see its errors"
            assert time.monotonic() < deadline, "the prepared process does not answer"
            pid = self._answer(1)
        self.pid = pid

    def poll(self) -> int | None:
        """The exit code, or None if it still runs."""
        if self.returncode is None and (code := self._answer(0)) is not None:
            self.returncode = code
            os.close(self._answers)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code, once it has ended; minus the signal's number where a signal ended it."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(self.arguments, timeout, *self.said)
            with selectors.DefaultSelector() as ready:
                ready.register(self._answers, selectors.EVENT_READ)
                ready.select(left)
        return code

    @property
    def said(self) -> tuple[str, str]:
        """What it has written so far to its standard output and its standard error."""
        out, error = (path.read_text() if path.exists() else "" for path in self._said)
        return out, error

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if that still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self.send_signal(signal.SIGKILL)
        self.wait(PATIENCE)

    def _answer(self, timeout: float) -> int | None:
        """The next number that the prepared process says of it; None: it has said none in so many seconds."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not ready.select(timeout):
                    return None
                self._read += os.read(self._answers, 100)
        line, _, self._read = self._read.partition(b"\n")
        return int(line)


class Prepared:
    """A process that has imported everything, and runs programs as forks of itself.

    Args:
        environment: of the process, and what every program gets beside its own.

    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        here = str(Path(__file__).parent.parent)
        paths = [here, *filter(None, [environment.get("PYTHONPATH")])]
        self._place = tempfile.TemporaryDirectory(prefix="prepared-")
        self._started: list[Running] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.prepared"],
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            text=True,
            cwd=here,
        )

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        said: tuple[Path, Path] | None = None,
    ) -> Running:
        """Start `python -m rbptrack` with these arguments in a folder, or `python` where the first is `-c`.

        Args:
            arguments: of the program.
            cwd: the folder.
            environment: all of its variables.
            said: the files to which its standard output and its standard error are appended.

        """
        assert self._process.stdin
        place = Path(self._place.name, str(len(self._started)))
        place.mkdir()
        said = said or (place / "stdout", place / "stderr")
        os.mkfifo(place / "answers")
        answers = os.open(place / "answers", os.O_RDWR)
        call = {"arguments": [*arguments], "cwd": str(cwd), "environment": dict(environment)}
        call |= {"said": [str(path) for path in said], "answers": str(place / "answers")}
        print(json.dumps(call), file=self._process.stdin, flush=True)
        self._started.append(Running(arguments, said, answers, self._process))
        return self._started[-1]

    def run(
        self, arguments: Sequence[str], *, cwd: Path, timeout: float, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m rbptrack` with these arguments in a folder, to its end."""
        running = self.start(arguments, cwd=cwd, environment=environment)
        try:
            code = running.wait(timeout)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        return subprocess.CompletedProcess([*arguments], code, *running.said)

    @property
    def ended(self) -> bool:
        """Whether it has been closed, or died."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process, and every program that still runs."""
        assert self._process.stdin
        for running in self._started:
            running.kill()
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._place.cleanup()


def _serve() -> None:
    """Read calls from the standard input until it ends; returns in each fork, which is the program then."""
    before = set(os.environ)
    gc.disable()  # nothing that imports make is garbage
    for name in IMPORTS:
        import_module(name)
    gc.freeze()  # else each fork copies everything that the collector touches
    gc.enable()
    if EMPTY_STORE in os.environ:
        copy_new_stores(Path(os.environ[EMPTY_STORE]))
    made = {k: v for k, v in os.environ.items() if k not in before}  # by imports
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a program
    for line in sys.stdin:
        call = json.loads(line)
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if program := os.fork():
            with open(call["answers"], "w") as answers:  # noqa: PTH123 - nothing more is imported here
                print(program, file=answers, flush=True)
                print(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]), file=answers, flush=True)
            os._exit(0)
        _become(call["arguments"], call["cwd"], made | call["environment"], call["said"])
        if HOLD in os.environ:
            hold_at_part(int(os.environ[HOLD]))
        return
    sys.exit(0)


def _become(arguments: list[str], cwd: str, environment: dict[str, str], said: list[str]) -> None:
    """Take over what a new process would be given: folder, environment, arguments, standard streams, the path."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate([os.devnull, *said]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    tempfile.tempdir = None
    sys.path[0] = cwd
    sys.path[1:1] = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p not in sys.path]
    module = [] if arguments[:1] == ["-c"] else ["-m", "rbptrack"]
    sys.argv = [*module[1:], *arguments]
    sys.orig_argv = [sys.executable, *module, *arguments]  # what the program starts anew with


def _run() -> int:
    """Be the program, or what stands after `-c`; returns the exit code."""
    try:
        if sys.argv[:1] == ["-c"]:
            exec(sys.argv.pop(1), {"__name__": "__main__"})
            return 0
        runpy.run_module("rbptrack", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, str):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


if __name__ == "__main__":
    _serve()
    code = _run()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without taking apart, for a second or two, everything that was imported
