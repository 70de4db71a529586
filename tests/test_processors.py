"""Tests of tools.processors: which outputs it treats as equal, and when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import processors


def test_main_returns_1_if_the_demo_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    failed_process = subprocess.CompletedProcess([], 1, "an error\n")
    monkeypatch.setattr(processors, "run_case_command", lambda *_: failed_process)
    assert not processors.measure_demo(processors.CASES[0], Path(sys.executable), Path())
    assert processors.main([processors.CASES[0].name]) == 1


def test_environment_installs_again_if_an_installation_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    python = tmp_path / "build" / "lowest" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setattr(processors, "ROOT", tmp_path)
    monkeypatch.setattr(processors, "requirements", lambda _: ["--no-index", "no-such-library"])
    for _ in range(2):  # the second call must run pip again, although the first has left an environment
        with pytest.raises(subprocess.CalledProcessError):
            processors.make_environment("lowest")


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("R2 0.362 (-0.01089 to 0.00003)", "R2 0.364 (-0.01090 to 0.00002)", True),
        ("R2 0.362", "R2 0.366", False),
        ("0.999", "1.00", True),
        ("─────  0.999", "────  1.00", True),
        ("31,787 tokens", "31,788 tokens", True),
        ("7 sizes", "8 sizes", False),
        ("7% of it", "8% of it", True),
        ("1.00e-05", "1.01e-05", True),
        ("0.20 below", "0.20 undecided", False),
        ("0.20", "0.20 0.20", False),
    ],
)
def test_differences_allows_a_share_of_a_number_but_no_other_word(first: str, second: str, equal: bool) -> None:
    assert bool(processors.differences([first], [second], share=processors.MAX_SHARE)) is not equal
    assert processors.differences([first], [second])
    assert not processors.differences([first], [first])
