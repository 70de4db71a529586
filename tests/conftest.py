"""Fixtures of all tests: empty caches, fixed random numbers, and functions that run the program."""

from __future__ import annotations

import gc
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

os.environ["TRITON_INTERPRET"] = "1"  # torch may import triton before the tests of the kernels do

ROOT = Path(__file__).parent.parent
RunCommand = Callable[[str], tuple[int, str, str]]
"""Takes a command line; returns exit code, standard output and standard error."""

RunProgram = Callable[..., subprocess.CompletedProcess[str]]

SHORT_EXAMPLES = 40  # number of examples that hypothesis tries in the profile "short"
settings.register_profile(
    "short", max_examples=SHORT_EXAMPLES, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("hours", settings.get_profile("short"), max_examples=10_000, derandomize=False)
settings.load_profile("short")


def examples(short: int) -> settings:
    """Set the number of examples of a slow test in the profile "short". The profile "hours" tries 250 times as many."""
    return settings(max_examples=max(1, short * settings.default.max_examples // SHORT_EXAMPLES))


@pytest.fixture(scope="session", autouse=True)
def _empty_caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use empty caches and none of the user's settings."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["RBPTRACK_CACHE"] = str(folder / "rbptrack")
    os.environ["HF_HOME"] = str(folder / "huggingface")
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("COLUMNS", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def _collect_garbage_seldom() -> None:
    """Leave the imported modules and the tests out of garbage collection, and collect only after many new objects.

    Otherwise a tenth of the time goes into garbage collection.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _no_pictures() -> Iterator[None]:
    """Deliver measurements without a picture, which takes 0.15 s, except in tests with the fixture `pictures`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rbptrack.tracking.outbox.draw_picture", lambda _: [])
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:
    """Do not wait until files are on the disk. Otherwise the tests wait for a slow disk 13,000 times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program draw a picture of the ranks of each measurement that the test delivers."""
    from rbptrack.tracking.picture import draw_picture

    monkeypatch.setattr("rbptrack.tracking.outbox.draw_picture", draw_picture)


@pytest.fixture(autouse=True)
def _no_experiment_of_other_tests() -> None:
    """Remove the variable in which `mlflow.set_experiment` names the experiment for child processes."""
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    """Start each test with the same seeds. Its random numbers then do not depend on the tests before it."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)


def block_reading(path: Path) -> None:
    """Replace a file by a link to itself. The operating system opens it for no user (ELOOP), not even for root."""
    path.unlink()
    path.symlink_to(path.name)


@pytest.fixture
def run_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command line of rbptrack in this process, in an empty folder.

    `run_command("list --sort ce")` returns exit code, standard output and standard error.
    """
    from rbptrack.cli import app

    monkeypatch.chdir(tmp_path)

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rbptrack", *shlex.split(line)])
        code = app.main()
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """Run `python -m rbptrack WORDS` in a new process and an empty folder. Returns the process and its output."""

    def run(
        *words: str, cwd: Path = tmp_path, env: dict[str, str] | None = None, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rbptrack", *words],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
