"""The words of the program, its documentation and its code, as `tools.words` checks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import words


def test_nothing_is_found() -> None:
    """`python -m tools.words` prints these lines."""
    files = words.files([words.HERE / name for name in words.CHECKED])
    assert [fault for file in files for fault in words.faults(file)] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('"""Module."""\nERROR = "the answer cannot be told"\n', "cannot be told"),
        ('"""Module."""\n\n\ndef add():\n    """The sum."""\n', "begin with a verb"),
        ('"""Module."""\n\n\ndef add(one):\n    """Return it."""\n', "'one' does not say what it holds"),
    ],
)
def test_a_fault_is_found(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(text)
    (line,) = words.faults(file)
    assert fault in line
