"""Tests that measuring and reporting work with little memory, few open files, or an unknown user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.tracking import Store

LIMITS = {
    "virtual memory": "ulimit -v 4000000",  # KB; torch, transformers and MLflow take 3 GB of addresses
    "open files": "ulimit -n 64",
}
AS_UNKNOWN_USER = ("unshare", "--user", "--map-user=54321", "--map-group=54321")  # has no entry in /etc/passwd
USER_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "USERNAME", "LNAME"),
    *("XDG_CACHE_HOME", "RBPTRACK_CACHE", "HF_HOME", "TMPDIR"),
)


def can_be_unknown_user() -> bool:
    """Return whether this machine permits user namespaces."""
    return bool(shutil.which("unshare")) and not subprocess.run([*AS_UNKNOWN_USER, "true"], check=False).returncode


def run_limited(
    folder: Path, *words: str, limit: str = "true", prefix: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `rbptrack` under a limit.

    Args:
        folder: the working folder.
        words: the words of the command line.
        limit: a command of the shell that runs first, such as `ulimit -n 64`.
        prefix: a command that runs the shell, such as `AS_UNKNOWN_USER`.
        variables: environment variables. `USER_VARIABLES` are not set otherwise.

    """
    shell = ["bash", "-c", f'{limit} && exec "$@"', "bash"]
    return subprocess.run(
        [*prefix, *shell, sys.executable, "-m", "rbptrack", *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in USER_VARIABLES} | variables,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )


def measure_and_report(folder: Path, *, has_pictures: bool = True, **limits: int) -> None:
    """Measure one cell and report it under limits, and check the store, the page and the pictures.

    Args:
        folder: the working folder.
        has_pictures: whether pictures must be drawn. If not, the command must name `ulimit` as the reason.
        limits: arguments of `run_limited`.

    """
    measuring = run_limited(folder, "model=nano/6k", "dataset=pydocs", "dataset.documents=20", **limits)
    assert measuring.returncode == 0, measuring.stderr
    words = ("report", "--analyzers", "power_law,lognormal", "--format", "svg", "--out", "page.html")
    reporting = run_limited(folder, *words, **limits)
    assert reporting.returncode == 0, reporting.stderr
    store = Store(f"sqlite:///{folder}/mlflow.db")
    (run_id,) = store.runs()["run_id"]
    assert list(store.verify()) == []
    pictures = [entry.path for entry in store.connection.client.list_artifacts(run_id) if entry.path.endswith(".png")]
    figures = list((folder / "page-figures").glob("*.svg"))
    assert bool(pictures) == bool(figures) == has_pictures
    assert "RBP_10" in (folder / "page.html").read_text(encoding="utf-8")
    assert has_pictures or "ulimit" in reporting.stderr


def test_measure_and_report_with_4_gb_of_virtual_memory_leave_out_only_pictures(tmp_path: Path) -> None:
    measure_and_report(tmp_path, limit=LIMITS["virtual memory"], has_pictures=False, HOME=str(tmp_path))


def test_measure_and_report_with_64_open_files_one_thread_and_ascii_terminal(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    measure_and_report(tmp_path, limit=LIMITS["open files"], HOME=str(tmp_path), OMP_NUM_THREADS="1", **ascii_only)


@pytest.mark.skipif(not can_be_unknown_user(), reason="needs user namespaces")
@pytest.mark.parametrize("home", ["read-only", "none"])
def test_measure_and_report_by_unknown_user_who_can_write_only_to_working_folder(tmp_path: Path, home: str) -> None:
    (tmp_path / "home").mkdir(mode=0o555)
    (tmp_path / "work").mkdir()
    variables = {"TMPDIR": str(tmp_path / "missing")}
    if home == "read-only":
        variables["HOME"] = str(tmp_path / "home")
    measure_and_report(tmp_path / "work", prefix=AS_UNKNOWN_USER, **variables)
    assert not list((tmp_path / "home").iterdir())
