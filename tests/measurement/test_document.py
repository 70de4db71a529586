"""Tests of the typed document: which fields identify a measurement, and how runs and labels are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig
from rbptrack.measurement.build import from_numbers
from rbptrack.measurement.columns import COLUMN_PARTS, DTYPE_BY_COLUMN, SAME_TOKENS_COLUMNS
from rbptrack.measurement.describe import describe
from rbptrack.measurement.document import PARTS, Measurement, fingerprint, names_of
from rbptrack.measurement.parts import Key, Label, Result, Within

SMALL: dict[str, Any] = {
    "family": "mine",
    "size": "7m",
    "dataset": "texts",
    "commit": "sha256:1",
    "dtype": "float32",
    "seq_len": 64,
    "vocab_size": 512,
    "non_embedding_params": 10_000,
    "num_tokens": 500,
    "ce": 3.1,
    "rbp": {1: 0.3, 10: 0.6},
    "rbp_se": {1: 0.01},
}

# Keys in which the runs of one law may differ, and the reason for each.
MAY_DIFFER = {
    "commit": "a law has models of different weights",
    "texts": "documents_hash says whether the documents are the same",
    "group": "groups change standard errors, but not ranks",
    "reference_commit": "a reference does not change the ranks of the measured model",
    "reference_dtype": "a reference does not change the ranks of the measured model",
    "imported_as": "the names of an imported measurement contain its model",
}


def config(**model: Any) -> Config:
    return Config(
        model=ModelConfig(**{"family": "mine", "size": "7m"} | model),
        dataset=DatasetConfig(name="wiki", seq_len=64),
        k=KConfig(values=[1]),
    )


def describe_config(settings: Config) -> dict[str, Any]:
    return describe(settings, commit="sha256:1", tokenizer_rules="r", texts="t")


def test_every_key_must_agree_in_a_law_or_is_listed_with_a_reason() -> None:
    free = {name for name in names_of(Key) if PARTS[name].within is Within.NOTHING}
    assert free == MAY_DIFFER.keys()


def test_every_column_has_a_meaning_and_follows_only_from_other_columns() -> None:
    for part in COLUMN_PARTS.values():
        assert part.meaning
        assert set(part.determined_by) <= DTYPE_BY_COLUMN.keys()


def test_describe_returns_only_fields_and_all_keys_that_are_known() -> None:
    description = describe_config(config())
    assert description.keys() <= Measurement.model_fields.keys()
    elsewhere = {"reference_commit", "reference_dtype", "imported_as", "head_dtype", "server_name"}
    assert set(names_of(Key)) - description.keys() == elsewhere


@pytest.mark.parametrize(
    "labels",
    [{"family": "other"}, {"size": "8m"}, {"seed": 3}, {"checkpoint": "step9"}, {"training_tokens": 1e9}],
)
def test_labels_are_no_part_of_the_fingerprint(labels: dict[str, Any]) -> None:
    assert fingerprint(describe_config(config(**labels))) == fingerprint(describe_config(config()))
    assert Measurement(**SMALL).updated(labels).fingerprint == Measurement(**SMALL).fingerprint


def test_name_of_the_dataset_is_no_part_of_the_fingerprint() -> None:
    assert Measurement(**SMALL | {"dataset": "other"}).fingerprint == Measurement(**SMALL).fingerprint


@pytest.mark.parametrize("name", [name for name in names_of(Key) if PARTS[name].within is not Within.NOTHING])
def test_every_key_changes_the_fingerprint(name: str) -> None:
    value: object = 7 if DTYPE_BY_COLUMN[name] == "Int64" else "other"
    assert fingerprint(SMALL | {name: value}) != fingerprint(SMALL)


def test_measurement_is_read_from_its_run() -> None:
    measurement = Measurement(**SMALL | {"seed": 2, "checkpoint": "step100", "training_tokens": 3e9, "forced": True})
    read = Measurement.from_run(measurement.tags(), measurement.params(), measurement.metrics())
    assert read == measurement
    assert read.model == "mine-7m-seed2@step100"


def test_other_tags_params_and_metrics_of_a_run_are_ignored() -> None:
    measurement = Measurement(**SMALL)
    tags = measurement.tags() | {"note": "mine", "rbptrack.kind": "measurement"}
    metrics = measurement.metrics() | {"system/cpu": 1.0, "rbp_curve": 1.0}
    assert Measurement.from_run(tags, measurement.params() | {"mine": "1"}, metrics) == measurement


@given(st.sampled_from(sorted(DTYPE_BY_COLUMN.keys() & PARTS.keys())), st.text(max_size=20))
def test_run_with_any_text_is_read_or_refused(name: str, text: str) -> None:
    measurement = Measurement(**SMALL)
    if isinstance(PARTS[name], Result):
        return
    tags = measurement.tags()
    params = measurement.params()
    if isinstance(PARTS[name], Label):
        tags[f"rbptrack.{name}"] = text
    else:
        params[name] = text
    try:
        Measurement.from_run(tags, params, measurement.metrics())
    except ValidationError as error:
        assert error.error_count() >= 1  # noqa: PT017  # no other exception is allowed


@pytest.mark.parametrize(
    "values",
    [
        {"rbp": {1: 0.6, 10: 0.3}},
        {"rbp": {1000: 0.9}},
        {"rbp_se": {5: 0.1}},
        {"ce": 0.01},
        {"ce_rank": 2.0, "ce_rest": 0.1},
        {"ce": None, "rbp": {}, "rbp_se": {}},
        {"commit": ""},
        {"without_ranks": True},
        {"non_embedding_params": 10, "total_params": 5},
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Measurement(**SMALL | values)


def test_numbers_give_the_part_of_ce_that_is_missing() -> None:
    measurement = from_numbers(
        {"family": "f", "dataset": "d", "ce": 3.0, "ce_rank": 2.0, "rbp_1": 0.5}, imported_as="x"
    )
    assert measurement.ce_rest == 1.0
    assert measurement.rbp_curve == {1: 0.5}
    assert measurement.without_ranks


def test_same_tokens_needs_no_name_of_a_model() -> None:
    assert not {"family", "size", "seed", "commit"} & set(SAME_TOKENS_COLUMNS)
