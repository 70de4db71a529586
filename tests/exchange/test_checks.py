"""Tests of `check_imported`, which checks everything that importers yield."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.analysis.importing import ImportedMeasurement, ImportedScore, ImportNote
from rbptrack.base.errors import BadInput
from rbptrack.exchange import check_imported
from rbptrack.measurement.columns import IMPORTABLE_COLUMNS
from rbptrack.measurement.document import Measurement
from tests.rank_tables import rank_table

ROW = {"model": "a-1", "dataset": "w", "non_embedding_params": "5", "ce": "2"}
DIGITS = "9" * 400


@pytest.mark.parametrize(
    "columns",
    [
        {"non_embedding_params": "-5"},
        {"non_embedding_params": "5.5"},
        {"non_embedding_params": DIGITS},
        {"ce": "NaN"},
        {"ce": "inf"},
        {"ce": "-1"},
        {"ce": "0_2"},
        {"ce": "true"},
        {"ce": True},
        {"ce": ""},
        {"rbp_10": ".4", "rbp_2": ".5"},
        {"rbp_10": ".4", "ce": "0"},
        {"rbp_1": "1.1"},
        {"rbp_0": ".1"},
        {"rbp_x": ".1"},
        {"rbp_9999999999": ".2"},
        {f"rbp_{DIGITS}": ".2"},
        {"vocab_size": "50", "rbp_100": ".4"},
        {"total_params": "4"},
        {"documents": "10", "num_tokens": "9"},
        {"context": "10", "seq_len": "9"},
        {"ce_rank": "1", "ce_rest": "0.5"},
        {"ce_rank": "2.5"},
        {"rbp_1_se": ".1"},
        {"model": "a" * 300},
        {"model": "a\x1b[31m-1"},
        {"model": "a\n-1"},
        {"model": ""},
        {"model": "   "},
        {"model": "nan"},
        {"model": ["a"]},
        {"model": {"a": 1}},
        {"model": True},
        {"model": None},
    ],
)
def test_check_imported_refuses_a_row_that_breaks_a_rule_and_names_the_row(columns: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="row 1") as raised:
        check_imported(Path("t"), [ImportedMeasurement(ROW | columns, "row 1")])
    assert len(str(raised.value)) < 500


def test_check_imported_refuses_two_values_of_one_measurement() -> None:
    rows = [ImportedMeasurement(ROW | {"ce": "2"}, "row 1"), ImportedMeasurement(ROW | {"ce": "3"}, "row 2")]
    with pytest.raises(BadInput, match=r"row 2: .*ce.* row 1"):
        check_imported(Path("t"), rows)


def test_check_imported_refuses_two_values_of_one_score() -> None:
    scores = [ImportedScore({"model": "a", "task": "b", "score": 0.5, "n": n}) for n in (7, 100)]
    with pytest.raises(BadInput, match=r"\bn\b"):
        check_imported(Path("t"), scores)


@pytest.mark.parametrize("item", [None, ROW, "row", ImportedMeasurement])
def test_check_imported_refuses_objects_of_another_type(item: Any) -> None:
    with pytest.raises(BadInput):
        check_imported(Path("t"), [item])


def test_check_imported_keeps_one_of_equal_measurements() -> None:
    rows = [ImportedMeasurement(ROW | {"ce": "2"}), ImportedMeasurement(ROW | {"ce": "2.0"})]
    assert len(check_imported(Path("t"), rows).measurements) == 1


def test_check_imported_keeps_one_of_equal_scores_with_known_n() -> None:
    scores = [ImportedScore({"model": "a", "task": "b", "score": 0.5, "n": n}) for n in (pd.NA, 7, None)]
    assert check_imported(Path("t"), scores).scores["n"].tolist() == [7]


def test_check_imported_keeps_size_of_columns_and_reads_family_from_model_name() -> None:
    row = ROW | {"model": "a-3.1-8B-Chat", "size": "8b"}
    (measurement,) = check_imported(Path("t"), [ImportedMeasurement(row)]).measurements
    assert (measurement.measurement.family, measurement.measurement.size) == ("a-3.1-Chat", "8b")


@pytest.mark.parametrize(
    ("model", "family", "size"),
    [
        ("EleutherAI/pythia-70m", "pythia", "70m"),
        ("pythia-160m-seed3", "pythia", "160m"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen2.5-Instruct", "0.5B"),
        ("./ckpt/Llama-2-7b-hf/", "Llama-2-hf", "7b"),
        ("OLMo-1B-3T", "OLMo-3T", "1B"),
        ("gpt2-medium", "gpt2", "medium"),
        ("gpt2", "gpt2", ""),
        ("EleutherAI__pythia-70m", "pythia", "70m"),
        ("stabilityai/stablelm-2-1_6b", "stablelm-2", "1.6b"),
        ("alpha-70m-8-bit", "alpha-8-bit", "70m"),
        ("alpha-8-bit", "alpha-8-bit", ""),
        ("gpt2-medium-4bit", "gpt2-4bit", "medium"),
        ("70m", "70m", ""),
    ],
)
def test_check_imported_reads_family_and_size_from_model_name(model: str, family: str, size: str) -> None:
    (measurement,) = check_imported(Path("t"), [ImportedMeasurement(ROW | {"model": model})]).measurements
    assert (measurement.measurement.family, measurement.measurement.size) == (family, size)
    (measurement,) = check_imported(
        Path("t"), [ImportedMeasurement(ROW | {"model": model, "family": "f"})]
    ).measurements
    assert (measurement.measurement.family, measurement.measurement.size) == ("f", size)


NAMES_OF_ONE_MODEL = ("acme/a-1m", "acme/a-1m/", "/hub/models--acme--a-1m/snapshots/0123abcd")


def test_check_imported_gives_measurements_of_one_model_the_same_name() -> None:
    rows = [ImportedMeasurement(ROW | {"model": name}) for name in NAMES_OF_ONE_MODEL]
    assert [measurement.measurement.model for measurement in check_imported(Path("t"), rows).measurements] == ["a-1m"]


def test_check_imported_gives_scores_of_one_model_the_same_name_and_reads_commit() -> None:
    items = [ImportedScore({"model": name, "task": "b", "score": 0.5}) for name in NAMES_OF_ONE_MODEL]
    scores = check_imported(Path("t"), items).scores
    assert scores[["model", "revision"]].to_numpy().tolist() == [["acme/a-1m", ""], ["acme/a-1m", "0123abcd"]]


def test_check_imported_keeps_one_of_equal_notes() -> None:
    score = ImportedScore({"model": "a", "task": "b", "score": 0.5})
    items = [ImportNote("x is left out"), score, ImportNote("x is left out")]
    assert check_imported(Path("t"), items).notes == ["x is left out"]


def test_check_imported_of_notes_alone_raises_error_with_notes() -> None:
    with pytest.raises(BadInput, match=r"\n.*x is left out"):
        check_imported(Path("t"), [ImportNote("x is left out")])


def test_check_imported_names_place_and_value_of_every_fault() -> None:
    rows = [
        ImportedMeasurement(ROW, "row 1"),
        ImportedMeasurement(ROW | {"model": "b-1", "non_embedding_params": "0"}, "row 2"),
        ImportedMeasurement(ROW | {"model": "c-1", "ce": "-3.5"}, "row 3"),
    ]
    with pytest.raises(BadInput) as raised:
        check_imported(Path("t"), rows)
    first, second, third = str(raised.value).splitlines()
    assert "2 faults" in first
    assert "row 2, non_embedding_params" in second
    assert "row 3, ce" in third
    assert "-3.5" in third


def test_check_imported_names_ten_of_many_faults_and_counts_the_rest() -> None:
    rows = [ImportedMeasurement(ROW | {"model": f"a-{i}", "ce": "x"}, f"row {i}") for i in range(25)]
    with pytest.raises(BadInput) as raised:
        check_imported(Path("t"), rows)
    lines = str(raised.value).splitlines()
    assert len(lines) == 1 + 10 + 1
    assert "15" in lines[-1]


@pytest.mark.parametrize(
    ("columns", "missing", "value"),
    [
        ({"ce_rank": 1.0, "ce_rest": 0.5}, "ce", 1.5),
        ({"ce": 1.5, "ce_rest": 0.5}, "ce_rank", 1.0),
        ({"ce": 1.5, "ce_rank": 1.0}, "ce_rest", 0.5),
    ],
)
def test_check_imported_computes_missing_one_of_ce_and_its_parts(
    columns: dict[str, float], missing: str, value: float
) -> None:
    (checked,) = check_imported(
        Path("t"), [ImportedMeasurement({"model": "a", "dataset": "w", **columns})]
    ).measurements
    assert getattr(checked.measurement, missing) == value


def test_check_imported_accepts_rounded_parts_of_ce() -> None:
    columns = {"model": "a", "dataset": "w", "ce": 1.5, "ce_rank": 1.0004, "ce_rest": 0.5004}
    (checked,) = check_imported(Path("t"), [ImportedMeasurement(columns)]).measurements
    assert checked.measurement.ce == 1.5


@given(
    st.dictionaries(
        st.sampled_from(["model", *IMPORTABLE_COLUMNS, "rbp_1", "rbp_10", "ce_se", "other"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=1),
    )
)
def test_check_imported_accepts_valid_row_or_raises_bad_input(columns: dict[str, Any]) -> None:
    try:
        (measurement,) = check_imported(Path("t"), [ImportedMeasurement(columns, "row 1")]).measurements
    except BadInput:
        return
    checked = measurement.measurement
    assert checked.model
    assert checked.ce is not None or checked.rbp
    assert Measurement.model_validate(checked.model_dump()) == checked


@pytest.mark.parametrize(
    "column",
    [{"greater": [9, 64]}, {"position": [1, 0]}, {"logprob": [-1.0, math.nan]}, {"document": [1, 0]}],
)
def test_check_imported_refuses_ranks_that_verify_would_call_damaged(column: dict[str, list[float]]) -> None:
    item = ImportedMeasurement({"model": "a", "dataset": "w"}, ranks=rank_table([1, 2], **column))
    with pytest.raises(BadInput):
        check_imported(Path("x"), [item])


def test_check_imported_computes_metrics_and_counts_from_ranks() -> None:
    table = rank_table([1, 2, 3, 40], documents=2)
    item = ImportedMeasurement({"model": "a", "dataset": "w", "rbp_2": 0.5, "ce": 1.01}, ranks=table)
    (measurement,) = check_imported(Path("t"), [item]).measurements
    assert measurement.measurement.rbp == {1: 0.25, 2: 0.5, 10: 0.75}
    assert measurement.measurement.ce == 1.0
    assert (
        measurement.measurement.num_tokens,
        measurement.measurement.documents,
        measurement.measurement.vocab_size,
    ) == (4, 2, 64)


@pytest.mark.parametrize(
    ("column", "value"),
    [("rbp_1", 0.3), ("ce", 1.1), ("num_tokens", 5), ("vocab_size", 63), ("ce_rank", 0.5), ("tie_rate", 0.5)],
)
def test_check_imported_refuses_column_that_disagrees_with_ranks(column: str, value: float) -> None:
    table = rank_table([1, 2, 3, 40], documents=2)
    item = ImportedMeasurement({"model": "a", "dataset": "w", column: value}, "row 1", ranks=table)
    with pytest.raises(BadInput, match=column):
        check_imported(Path("t"), [item])


def test_check_imported_refuses_import_without_rows() -> None:
    with pytest.raises(BadInput, match=r"^t\b.* nothing"):
        check_imported(Path("t"), [])


@pytest.mark.parametrize("text", ["nan", "NaN", "NA", "N/A", "None", "null", " ", "<NA>"])
def test_check_imported_reads_names_of_missing_values_in_labels(text: str) -> None:
    row = ROW | {"dtype": text, "checkpoint": text, "weights": text, "vocab_size": text, "seed": text}
    (measurement,) = check_imported(Path("t"), [ImportedMeasurement(row)]).measurements
    (plain,) = check_imported(Path("t"), [ImportedMeasurement(ROW)]).measurements
    assert measurement == plain


@pytest.mark.parametrize("column", ["ce", "ce_se", "rbp_10", "tie_rate"])
def test_check_imported_refuses_results_that_are_not_a_number(column: str) -> None:
    row = ROW | {column: math.nan}
    with pytest.raises(BadInput, match=column):
        check_imported(Path("t"), [ImportedMeasurement(row)])


@pytest.mark.parametrize("n", [True, "1_000", "x", 2.5])
def test_check_imported_refuses_a_number_of_items_that_is_none(n: object) -> None:
    with pytest.raises(BadInput):
        check_imported(Path("t"), [ImportedScore({"model": "a", "task": "b", "score": 0.5, "n": n})])


def test_check_imported_reads_numbers_of_numpy_as_texts() -> None:
    row = ROW | {"size": np.int64(1000), "checkpoint": np.float64(0.5)}
    (measurement,) = check_imported(Path("t"), [ImportedMeasurement(row)]).measurements
    assert (measurement.measurement.size, measurement.measurement.checkpoint) == ("1000", "0.5")


@pytest.mark.parametrize(
    ("unit", "score"), [("percent", 101), ("percent", -1), ("", 1.5), ("share", 1.5), ("points", float("inf"))]
)
def test_check_imported_refuses_score_outside_the_range_of_its_unit(unit: str, score: float) -> None:
    item = ImportedScore({"model": "a", "task": "b", "score": score, "unit": unit}, "row 1")
    with pytest.raises(BadInput, match="row 1, score"):
        check_imported(Path("t"), [item])
