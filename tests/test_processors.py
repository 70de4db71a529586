"""The comparison of processors: what counts as equal, and what as a failure."""

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
    assert not processors.measure_demo(processors.CASES[0], Path(sys.executable), Path())
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
            processors.make_environment("lowest")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
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
def test_numbers_of_two_measurements_may_differ_a_little_and_words_may_not(one: str, other: str, equal: bool) -> None:
    assert bool(processors.differences([one], [other], share=processors.MAX_SHARE)) is not equal
    assert processors.differences([one], [other])
    assert not processors.differences([one], [one])
