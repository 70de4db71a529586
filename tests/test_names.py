"""Names that people give, in metrics' names and in paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from rbptrack.base.errors import BadInput
from rbptrack.base.names import file_name, metric_name, metric_part
from rbptrack.config.request import measuring, sweep_of
from rbptrack.tracking.schema import law_name

STRANGE = [
    "nano (v2)",
    "C++",
    "a,b",
    "a/b",
    "{x}",
    "..",
    ".",
    "",
    " ",
    "../../etc",
    "/etc",
    "a\x00b",
    "x" * 300,
    "a:b",
    "é",
]


@pytest.mark.parametrize("name", STRANGE)
def test_mlflow_takes_the_name(name: str) -> None:
    _validate_metric_name(f"alpha/{metric_part(name)}/{metric_part(name)}/rbp_10")
    _validate_metric_name(metric_name(f"alpha/{name}/wiki/ce"))
    _validate_metric_name(law_name(name, "rbp_10"))


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("pythia", "nano-6k", "pythia bfloat16", "qwen2.5", "step_1"):
        assert (metric_part(name), file_name(name)) == (name, name)
    assert (metric_part("C++"), metric_part("nano (v2)")) == ("C:2b:2b", "nano :28v2:29")


@given(st.text(), st.text())
def test_different_names_stay_different(one: str, two: str) -> None:
    if one != two:
        assert metric_part(one) != metric_part(two)
        assert file_name(one) != file_name(two)


@given(st.text())
def test_a_file_name_is_one_part_of_a_path(name: str) -> None:
    made = file_name(name)
    path = Path("/folder", made)
    assert path.parent == Path("/folder")
    assert path.name == made
    assert ".." not in path.parts
    assert 0 < len(made.encode()) <= 140
    assert made.isprintable()


@pytest.mark.parametrize("key", ["model.family", "model.size", "dataset.name"])
def test_names_that_the_store_would_refuse_are_refused_before_anything_is_measured(key: str) -> None:
    for name, rule in (("a\u202eb", "must not hold control characters"), ("a" * 201, "at most 200 characters")):
        with pytest.raises(BadInput, match=f"{key} must .*{rule.removeprefix('must ')}"):
            sweep_of(measuring(["model=nano/6k", "dataset=pydocs", f"{key}='{name}'"]))
    if key != "model.size":
        with pytest.raises(BadInput, match=f"{key}= is empty: give a name"):
            sweep_of(measuring(["model=nano/6k", "dataset=pydocs", f"{key}="]))
