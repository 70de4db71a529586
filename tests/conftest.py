"""Shared fixtures: the program in a subprocess, small models and synthetic runs made on the spot."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from mlflow import MlflowClient

# Without a GPU, Triton's kernels run in its interpreter, which must be chosen before anything imports Triton.
if shutil.which("nvidia-smi") is None:
    os.environ["TRITON_INTERPRET"] = "1"

ROOT = Path(__file__).parent.parent
EMBEDDED = ROOT / "rbptrack" / "embedded"
Program = Callable[..., subprocess.CompletedProcess[str]]


# A shell that starts the tests in the background makes them ignore SIGINT, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


SHARED = ("demo", "swept", "mirror")  # fixtures that take minutes, the longest first


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share a long fixture run on one worker; xdist reads its groups before any hook on all items."""
    for name in set(SHARED) & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.xdist_group(name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest fixtures first; the other tests fill the second worker."""

    def rank(item: pytest.Item) -> int:
        names = getattr(item, "fixturenames", ())
        return min((i for i, name in enumerate(SHARED) if name in names), default=len(SHARED))

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI nothing is skipped: what a machine lacks there is a failure of its set-up."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {item.nodeid}: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Caches of the tests' own: nothing of the user's is read or written."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["RBPTRACK_CACHE"] = str(folder / "rbptrack")
    return folder


@pytest.fixture(scope="session")
def program(cache: Path) -> Program:
    """Run `python -m rbptrack ...` in a folder; returns the completed process."""

    def run(*arguments: str, cwd: Path, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "HF_", "HYDRA_"))}
        clean |= {"HF_HOME": str(cache / "hf"), "HF_HUB_OFFLINE": "1", "COLUMNS": "100", **environment}
        command = [sys.executable, "-m", "rbptrack", *arguments]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=clean)

    return run


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracking database that MLflow has made and nobody has used: making one takes seconds."""
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


@pytest.fixture(scope="session")
def swept(program: Program, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a sweep of 4 sizes x 2 corpora (25 documents each) has run, and what it printed."""
    folder = tmp_path_factory.mktemp("swept")
    done = program(*SWEEP, cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout


@pytest.fixture(scope="session")
def demo(program: Program, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which the README's main job has run: every nano model on both corpora."""
    folder = tmp_path_factory.mktemp("demo")
    done = program("-m", "model=nano/*", "dataset=stdlib,pydocs", cwd=folder, timeout=900)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout
