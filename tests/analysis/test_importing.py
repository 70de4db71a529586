"""Checks of everything that importers yield."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.analysis.importing import ImportedMeasurement, ImportedRow, ImportedScore, ImportNote, checked
from rbptrack.base.errors import BadInput
from tests.rank_tables import rank_table

ROW = {"model": "a-1", "dataset": "w", "non_embedding_params": "5", "ce": "2"}
DIGITS = "9" * 400


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"non_embedding_params": "-5"}, "non_embedding_params: .*at least 1; got '-5'"),
        ({"non_embedding_params": "5.5"}, "non_embedding_params: .*whole number"),
        ({"non_embedding_params": DIGITS}, "non_embedding_params: .*below"),
        ({"ce": "NaN"}, "ce: .*finite"),
        ({"ce": "inf"}, "ce: .*finite"),
        ({"ce": "-1"}, "ce: .*at least 0"),
        ({"ce": "0_2"}, "ce: must be a number"),
        ({"ce": "true"}, "ce: .*number"),
        ({"ce": True}, "ce: must be a number"),
        ({"ce": ""}, "neither ce nor rbp_<k>"),
        ({"rbp_10": ".4", "rbp_2": ".5"}, "must not fall with k"),
        ({"rbp_10": ".4", "ce": "0"}, "ce must be at least"),
        ({"rbp_1": "1.1"}, "rbp_1 must be at most 1"),
        ({"rbp_0": ".1"}, "rbp_0 cannot be imported"),
        ({"rbp_x": ".1"}, "rbp_x cannot be imported"),
        ({"rbp_9999999999": ".2"}, "k must be at most vocab_size"),
        ({f"rbp_{DIGITS}": ".2"}, "cannot be imported"),
        ({"vocab_size": "50", "rbp_100": ".4"}, "k must be at most vocab_size = 50"),
        ({"total_params": "4"}, "non_embedding_params must be at most total_params"),
        ({"documents": "10", "num_tokens": "9"}, "documents must be at most num_tokens"),
        ({"context": "10", "seq_len": "9"}, "context must be at most seq_len"),
        ({"ce_rank": "1", "ce_rest": "0.5"}, r"ce must be ce_rank \+ ce_rest"),
        ({"ce_rank": "2.5"}, r"ce must be ce_rank \+ ce_rest"),
        ({"rbp_1_se": ".1"}, "rbp_1_se is a standard error, but the row lacks rbp_1"),
        ({"model": "a" * 300}, "model: .*at most 200"),
        ({"model": "a\x1b[31m-1"}, "model: must not contain control characters"),
        ({"model": "a\n-1"}, "model: must not contain control characters"),
        ({"model": ""}, "model: .*missing"),
        ({"model": "   "}, "model: .*at least 1 character"),
        ({"model": ["a"]}, "model: "),
        ({"model": {"a": 1}}, "model: "),
        ({"model": True}, "model: "),
        ({"model": None}, "model: .*missing"),
    ],
)
def test_what_breaks_a_rule_is_refused(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=f"row 1.*{reason}") as caught:
        checked(Path("t"), [ImportedMeasurement(ROW | columns, "row 1")])
    assert len(str(caught.value)) < 500


def test_two_values_of_one_number_are_refused() -> None:
    rows = [ImportedMeasurement(ROW | {"ce": ce}, f"row {i}") for i, ce in enumerate(("2", "3"), start=1)]
    with pytest.raises(BadInput, match=r"row 2: .*ce.* row 1"):
        checked(Path("t"), rows)
    scores = [ImportedScore({"model": "a", "task": "b", "score": 0.5, "n": n}) for n in (7, 100)]
    with pytest.raises(BadInput, match="values of n differ"):
        checked(Path("t"), scores)


def test_a_row_or_score_that_stands_twice_with_the_same_numbers_counts_once() -> None:
    rows = [ImportedMeasurement(ROW | {"ce": ce}) for ce in ("2", "2.0")]
    assert len(checked(Path("t"), rows).measurements) == 1
    scores = [ImportedScore({"model": "a", "task": "b", "score": 0.5, "n": n}) for n in (pd.NA, 7, None)]
    assert checked(Path("t"), scores).scores["n"].tolist() == [7]


def test_a_size_that_is_given_is_kept() -> None:
    """Also where the family is taken from the model's name."""
    (measurement,) = checked(
        Path("t"), [ImportedMeasurement(ROW | {"model": "a-3.1-8B-Chat", "size": "8b"})]
    ).measurements
    assert (measurement.row.family, measurement.row.size) == ("a-3.1-Chat", "8b")


@pytest.mark.parametrize(
    ("model", "family", "size"),
    [
        ("EleutherAI/pythia-70m", "pythia", "70m"),
        ("pythia-160m-seed3", "pythia-seed3", "160m"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen2.5-Instruct", "0.5B"),
        ("./ckpt/Llama-2-7b-hf/", "Llama-2-hf", "7b"),
        ("OLMo-1B-3T", "OLMo-3T", "1B"),
        ("gpt2-medium", "gpt2", "medium"),
        ("gpt2", "gpt2", ""),
        ("70m", "70m", ""),
    ],
)
def test_the_size_is_the_part_of_a_name_that_reads_as_one(model: str, family: str, size: str) -> None:
    (measurement,) = checked(Path("t"), [ImportedMeasurement(ROW | {"model": model})]).measurements
    assert (measurement.row.family, measurement.row.size) == (family, size)
    (measurement,) = checked(Path("t"), [ImportedMeasurement(ROW | {"model": model, "family": "f"})]).measurements
    assert (measurement.row.family, measurement.row.size) == ("f", size)


def test_names_of_one_model_are_one_name() -> None:
    names = ("acme/a-1m", "acme/a-1m/", "/hub/models--acme--a-1m/snapshots/0123abcd")
    scores = checked(Path("t"), [ImportedScore({"model": name, "task": "b", "score": 0.5}) for name in names]).scores
    assert scores[["model", "revision"]].to_numpy().tolist() == [["acme/a-1m", ""], ["acme/a-1m", "0123abcd"]]
    rows = [ImportedMeasurement(ROW | {"model": name}) for name in names]
    assert [measurement.row.model for measurement in checked(Path("t"), rows).measurements] == ["acme/a-1m"]


def test_notes_are_kept_once_each() -> None:
    items = [ImportNote("x is left out"), ImportedScore({"model": "a", "task": "b", "score": 0.5})]
    assert checked(Path("t"), [*items, ImportNote("x is left out")]).notes == ["x is left out"]
    with pytest.raises(BadInput, match=r"nothing to import\n.*x is left out"):
        checked(Path("t"), items[:1])


def test_the_place_the_value_and_the_rule_of_every_fault_are_named() -> None:
    wrong = ({}, {"model": "b-1", "non_embedding_params": "0"}, {"model": "c-1", "ce": "-3.5"})
    rows = [ImportedMeasurement(ROW | columns, f"row {i}") for i, columns in enumerate(wrong, start=1)]
    with pytest.raises(BadInput) as caught:
        checked(Path("t"), rows)
    first, second, third = str(caught.value).splitlines()
    assert "2 faults" in first
    assert "row 2, non_embedding_params" in second
    assert "row 3, ce" in third
    assert "-3.5" in third


def test_of_many_faults_ten_are_named_and_the_rest_counted() -> None:
    rows = [ImportedMeasurement(ROW | {"model": f"a-{i}", "ce": "x"}, f"row {i}") for i in range(25)]
    with pytest.raises(BadInput) as caught:
        checked(Path("t"), rows)
    lines = str(caught.value).splitlines()
    assert len(lines) == 12
    assert lines[-1].strip() == "... and 15 more"


def test_what_follows_from_other_numbers_is_filled_in() -> None:
    about = {"model": "a", "dataset": "w", "family": "a"}
    assert ImportedRow.model_validate(about | {"ce_rank": 1.0, "ce_rest": 0.5}).ce == 1.5
    assert ImportedRow.model_validate(about | {"ce": 1.5, "ce_rest": 0.5}).ce_rank == 1.0
    assert ImportedRow.model_validate(about | {"ce": 1.5, "ce_rank": 1.0}).ce_rest == 0.5
    rounded = ImportedRow.model_validate(about | {"ce": 1.5, "ce_rank": 1.0004, "ce_rest": 0.5004})
    assert rounded.ce == 1.5


@given(
    st.dictionaries(
        st.sampled_from([*ImportedRow.model_fields, "rbp_1", "rbp_10", "ce_se", "other"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=1),
    )
)
def test_any_row_is_imported_whole_or_refused_in_words(columns: dict[str, Any]) -> None:
    try:
        (measurement,) = checked(Path("t"), [ImportedMeasurement(columns, "row 1")]).measurements
    except BadInput:
        return
    row = measurement.row
    assert row.model
    assert row.dataset
    assert row.ce is not None or row.rbp
    assert all(0 <= share <= 1 for share in row.rbp.values())
    assert ImportedRow.model_validate(row.model_dump()) == row


def test_ranks_decide_and_must_agree() -> None:
    table = rank_table([1, 2, 3, 40], documents=2)
    about = {"model": "a", "dataset": "w"}
    (measurement,) = checked(Path("t"), [ImportedMeasurement(about | {"rbp_2": 0.5}, ranks=table)]).measurements
    assert measurement.row.rbp == {1: 0.25, 2: 0.5, 10: 0.75}
    assert measurement.row.ce == 1.0
    assert (measurement.row.num_tokens, measurement.row.documents, measurement.row.vocab_size) == (4, 2, 64)
    for wrong in ({"rbp_1": 0.3}, {"ce": 1.1}, {"num_tokens": 5}, {"vocab_size": 63}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            checked(Path("t"), [ImportedMeasurement(about | wrong, "row 1", ranks=table)])


def test_an_import_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing"):
        checked(tmp_path, [])
