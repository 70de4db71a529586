"""The main job on machines that withhold something: it measures, delivers and reports all the same."""

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
STRANGER = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]  # a user without an entry in /etc/passwd
OF_A_USER = ("HOME", "USER", "LOGNAME", "USERNAME", "LNAME", "XDG_CACHE_HOME", "RBPTRACK_CACHE", "HF_HOME", "TMPDIR")


def can_be_a_stranger() -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*STRANGER, "true"], check=False).returncode


def poor(
    folder: Path, *words: str, limit: str = "true", before: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the program under a limit of the shell, with variables in place of those of a user."""
    shell = ["bash", "-c", f'{limit} && exec "$@"', "bash"]
    return subprocess.run(
        [*before, *shell, sys.executable, "-m", "rbptrack", *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in OF_A_USER} | variables,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )


def measure_and_report(folder: Path, *, pictures: bool = True, **machine) -> None:
    """Measure a cell, report it with its figures, and check what is in the store."""
    measured = poor(folder, "model=nano/6k", "dataset=pydocs", "dataset.documents=20", **machine)
    assert measured.returncode == 0, measured.stderr
    words = ("report", "--analyzers", "power_law,lognormal", "--format", "svg", "--out", "page.html")
    reported = poor(folder, *words, **machine)
    assert reported.returncode == 0, reported.stderr
    store = Store(f"sqlite:///{folder}/mlflow.db")
    (run_id,) = store.runs()["run_id"]
    assert list(store.verify()) == []
    drawn = [entry.path for entry in store.connection.client.list_artifacts(run_id) if entry.path.endswith(".png")]
    figures = list((folder / "page-figures").glob("*.svg"))
    assert bool(drawn) == bool(figures) == pictures
    assert "RBP_10" in (folder / "page.html").read_text(encoding="utf-8")
    assert pictures or "ulimit" in reported.stderr


def test_little_virtual_memory_costs_the_pictures_alone(tmp_path: Path) -> None:
    measure_and_report(tmp_path, limit=LIMITS["virtual memory"], pictures=False, HOME=str(tmp_path))


def test_few_open_files_one_thread_and_a_terminal_of_ascii(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    measure_and_report(tmp_path, limit=LIMITS["open files"], HOME=str(tmp_path), OMP_NUM_THREADS="1", **ascii_only)


@pytest.mark.skipif(not can_be_a_stranger(), reason="needs user namespaces")
@pytest.mark.parametrize("home", ["read-only", "none"])
def test_a_user_whom_the_system_does_not_know_and_who_can_write_in_one_folder_alone(tmp_path: Path, home: str) -> None:
    (tmp_path / "home").mkdir(mode=0o555)
    (tmp_path / "work").mkdir()
    variables = {"TMPDIR": str(tmp_path / "missing")}
    if home == "read-only":
        variables["HOME"] = str(tmp_path / "home")
    measure_and_report(tmp_path / "work", before=tuple(STRANGER), **variables)
    assert not list((tmp_path / "home").iterdir())
