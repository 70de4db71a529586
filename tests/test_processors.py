"""The comparison of processors does not take a demo that failed for one that printed equal lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import processors


def failed(*_: object) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], 1, "an error\n")


def test_a_demo_that_fails_in_every_case_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "run", failed)
    assert processors.demo(processors.CASES[0], Path(sys.executable)) is None
    assert processors.main([processors.CASES[0].name]) == 1


def test_an_environment_that_is_not_complete_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    half_made = tmp_path / "build" / "lowest" / "bin" / "python"
    half_made.parent.mkdir(parents=True)
    half_made.touch()
    monkeypatch.setattr(processors, "ROOT", tmp_path)
    monkeypatch.setattr(processors, "requirements", lambda _: ["--no-index", "no-such-library"])
    for _ in range(2):  # pip fails, and fails again, because nothing that it left counts as complete
        with pytest.raises(subprocess.CalledProcessError):
            processors.environment("lowest")
