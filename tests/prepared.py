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
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import wraps
from importlib import import_module
from pathlib import Path

from filelock import FileLock

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
    "rbptrack.commands.measure",
    "rbptrack.commands.analyze",
    "rbptrack.commands.report",
    "rbptrack.corpus.sequences",
    "rbptrack.models.loading",
    "rbptrack.engine.measure",
)
# Variables that libraries read while they are imported: a program that is given one needs imports of its own.
READ_AT_IMPORT = ("HF_", "LD_", "OMP_", "OPENBLAS_", "PYTHON", "TRITON_", "XDG_")


EMPTY_STORE = "RBPTRACK_TESTS_EMPTY_STORE"  # a variable: where the database lies that `copy_new_stores` copies


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


class Prepared:
    """A process that has imported everything, and runs programs as forks of itself, one at a time.

    Args:
        environment: of the process, and what every program gets beside its own.

    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        here = str(Path(__file__).parent.parent)
        paths = [here, *filter(None, [environment.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.prepared"],
            env={**environment, "GOMP_SPINCOUNT": "10000", "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=here,
        )

    def run(
        self, arguments: Sequence[str], *, cwd: Path, timeout: float, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m rbptrack` with these arguments in a folder."""
        assert self._process.stdin
        assert self._process.stdout
        with tempfile.TemporaryDirectory() as place:
            said = [Path(place, name) for name in ("stdout", "stderr")]
            call = {"arguments": [*arguments], "cwd": str(cwd), "environment": dict(environment)}
            print(json.dumps(call | {"said": [str(path) for path in said]}), file=self._process.stdin, flush=True)
            with selectors.DefaultSelector() as ready:
                ready.register(self._process.stdout, selectors.EVENT_READ)
                answer = self._process.stdout.readline() if ready.select(timeout) else ""
            out, error = (path.read_text() if path.exists() else "" for path in said)
        if not answer:
            self.close()
            raise subprocess.TimeoutExpired([*arguments], timeout, out, error)
        return subprocess.CompletedProcess([*arguments], int(answer), out, error)

    @property
    def ended(self) -> bool:
        """Whether it has been closed, or died."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def _serve() -> None:
    """Read calls from the standard input until it ends; returns in each fork, which is the program then."""
    before = set(os.environ)
    for name in IMPORTS:
        import_module(name)
    gc.freeze()  # else each fork copies everything that the collector touches
    if EMPTY_STORE in os.environ:
        copy_new_stores(Path(os.environ[EMPTY_STORE]))
    made = {k: v for k, v in os.environ.items() if k not in before}  # by imports
    for line in sys.stdin:
        call = json.loads(line)
        child = os.fork()
        if not child:
            _become(call["arguments"], call["cwd"], made | call["environment"], call["said"])
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit(0)


def _become(arguments: list[str], cwd: str, environment: dict[str, str], said: list[str]) -> None:
    """Take over what a new process would be given: folder, environment, arguments, standard streams, the path."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate([os.devnull, *said]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.path[0] = cwd
    sys.argv = ["rbptrack", *arguments]
    sys.orig_argv = [sys.executable, "-m", "rbptrack", *arguments]  # what the program starts anew with


def _run() -> int:
    """Be the program; returns the exit code."""
    try:
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
