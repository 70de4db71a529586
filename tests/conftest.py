"""Shared fixtures: the program in a subprocess, small models and synthetic runs made on the spot."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from tests import THREADS
from tests.leftovers import pytest_configure, pytest_sessionfinish  # noqa: F401 - hooks
from tests.patience import PATIENCE
from tests.prepared import EMPTY_STORE, READ_AT_IMPORT, Prepared, Running, copy_new_stores
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 - hooks

# Without a GPU, Triton's kernels run in its interpreter, which must be chosen before anything imports Triton.
if shutil.which("nvidia-smi") is None:
    os.environ["TRITON_INTERPRET"] = "1"

ROOT = Path(__file__).parent.parent
EMBEDDED = ROOT / "rbptrack" / "embedded"
Program = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Running]


# Few examples with every run of the tests, each time the same; `make test-long` asks for the profile `long`, which
# draws others. On a busy machine examples are slow to draw.
SLOW = [HealthCheck.too_slow]
settings.register_profile("short", max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=SLOW)
settings.load_profile("short")

# A shell that starts the tests in the background makes them ignore SIGINT, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Compiled once, whatever the shell says: else each program and each worker compiles every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import every module without looking for garbage, and look for none among what they made while tests run."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of how long they take, so that the workers (one file each at a time) end together."""
    longest = (
        "readme", "program", "launch", "fresh_processes", "ui", "server", "frozen_store", "hub", "reuse", "kernels",
        "workers", "faulty_server", "verify", "kills", "full_disk", "store_growth", "api", "durable", "poisoned_stores",
        "bench", "secrets", "quantised", "examples", "new_store", "measure", "shards", "loading", "bundle", "plugins",
    )  # fmt: skip

    def rank(item: pytest.Item) -> int:
        return next((i for i, name in enumerate(longest) if item.path.stem == f"test_{name}"), len(longest))

    items.sort(key=rank)


def shared(factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of this run of the tests share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """Caches of the tests' own: nothing of the user's is read or written. Warnings are errors in programs, too."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["RBPTRACK_CACHE"] = str(folder / "rbptrack")
    os.environ["PYTHONWARNINGS"] = ",".join(pytestconfig.getini("filterwarnings"))
    os.environ.pop("COLUMNS", None)  # xdist sets it for its workers: what is printed would be wrapped to fit
    os.environ[EMPTY_STORE] = str(shared(tmp_path_factory) / "empty.db")
    copy_new_stores(Path(os.environ[EMPTY_STORE]))
    return folder


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in each test, whichever tests ran before it in this process."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close by its end what a test leaves open and is excused for: not later, in another's."""
    yield
    if any("ResourceWarning" in str(mark.args) for mark in request.node.iter_markers("filterwarnings")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()


@pytest.fixture(scope="session")
def clean(cache: Path) -> dict[str, str]:
    """The environment of a program that is told nothing of where its store is, and has no network."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "HF_", "HYDRA_", "SLURM_"))}
    for name in ("COLUMNS", *THREADS):  # no terminal: nothing is wrapped to fit one; threads are the program's to set
        kept.pop(name, None)
    return kept | {"HF_HOME": str(cache / "hf"), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def prepared(clean: dict[str, str]) -> Iterator[Prepared]:
    """The process whose forks are programs."""
    process = Prepared(clean)
    yield process
    process.close()


@pytest.fixture(scope="session")
def start(clean: dict[str, str], prepared: Prepared) -> Start:
    """Start `python -m rbptrack ...` in a folder; returns it while it runs. It is ended with the tests' process."""

    def run(*arguments: str, cwd: Path, said: tuple[Path, Path] | None = None, **environment: str) -> Running:
        return prepared.start(arguments, cwd=cwd, environment=clean | environment, said=said)

    return run


@pytest.fixture(scope="session")
def program(clean: dict[str, str], request: pytest.FixtureRequest) -> Program:
    """Run `python -m rbptrack ...` in a folder; returns the completed process.

    A prepared process becomes the program, which saves the seconds that imports take. One that is given variables that
    libraries read at import, or other libraries, is started as a new process.
    """

    def run(
        *arguments: str, cwd: Path, timeout: float = PATIENCE, fresh: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        whole = clean | environment
        if fresh or any(name.startswith(READ_AT_IMPORT) for name in environment):
            command = [sys.executable, "-m", "rbptrack", *arguments]
            return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=whole)
        forking: Prepared = request.getfixturevalue("prepared")
        return forking.run(arguments, cwd=cwd, timeout=timeout, environment=whole)

    return run


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracking database that MLflow has made and nobody has used: making one takes seconds."""
    from mlflow import MlflowClient  # seconds, which the process that only hands out tests need not spend

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def with_store(empty_store: Path, tmp_path: Path) -> Path:
    """A folder to work in, in which the tracking database is there already."""
    (tmp_path / "mlruns").mkdir()
    with sqlite3.connect(empty_store) as source, sqlite3.connect(tmp_path / "mlruns/mlflow.db") as target:
        source.backup(target)
    return tmp_path


SWEEP = ("-m", "model=nano/6k,nano/15k,nano/38k,nano/115k", "dataset=stdlib,pydocs", "dataset.documents=25")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str]) -> tuple[Path, str]:
    """A folder that one worker fills, for all of them, and what filling it printed."""
    folder = shared(factory) / name
    said = folder.with_name(f"{name}.txt")
    with FileLock(folder.with_name(f"{name}.lock")):
        if not said.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            said.write_text(make(folder))
    return folder, said.read_text()


@pytest.fixture(scope="session")
def swept(program: Program, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a sweep of 4 sizes x 2 corpora (25 documents each) has run, and what it printed.

    With two analyzers: in test_readme all of them run.
    """

    def sweep(folder: Path) -> str:
        done = program(*SWEEP, "analyzers=power_law,compare", cwd=folder)
        assert done.returncode == 0, done.stderr + done.stdout
        shutil.copytree(folder, folder.with_name("untouched"))
        return done.stdout

    return once(tmp_path_factory, "swept", sweep)


@pytest.fixture(scope="session")
def untouched(swept: tuple[Path, str]) -> Path:
    """The same folder as the sweep left it, to be copied: nobody writes into it, as other workers do into `swept`."""
    return swept[0].with_name("untouched")
