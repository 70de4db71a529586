"""Tests that any text becomes a valid part of a metric's name and of a path, and that no two texts become equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from rbptrack.base.escape import file_part, metric_part

UNUSUAL_NAMES = [
    "nano (v2)",
    "C++",
    "a,b",
    "a/b",
    "..",
    ".",
    "",
    " ",
    "../../etc",
    "a\x00b",
    "x" * 300,
    "a:b",
    "é",
    "\U0001f600",
]


@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_metric_part_is_accepted_by_mlflow(name: str) -> None:
    validate: Any = _validate_metric_name
    validate(f"alpha/{metric_part(name)}/{metric_part(name)}/rbp_10")


@pytest.mark.parametrize("name", ["pythia", "nano-6k", "pythia bfloat16", "qwen2.5", "step_1"])
def test_metric_part_and_file_part_keep_ordinary_names(name: str) -> None:
    assert metric_part(name) == name
    assert file_part(name) == name


def test_metric_part_writes_other_characters_as_hexadecimal_codes() -> None:
    assert metric_part("C++") == "C:2b:2b"


@given(st.text(), st.text())
def test_metric_part_and_file_part_of_different_names_differ(first: str, second: str) -> None:
    if first != second:
        assert metric_part(first) != metric_part(second)
        assert file_part(first) != file_part(second)


@given(st.text())
def test_file_part_is_one_part_of_a_path(name: str) -> None:
    part = file_part(name)
    path = Path("/folder", part)
    assert path.parent == Path("/folder")
    assert path.name == part
    assert ".." not in path.parts
    assert 0 < len(part.encode()) <= 140
    assert part.isprintable()
