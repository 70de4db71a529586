"""Tests of reading JSON, tables, pairs of columns and whole numbers from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.analysis.input_files import column_names, parse_json, read_pairs, read_rows, whole_number
from rbptrack.base.errors import BadInput
from tests.imported_files import write_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "a": 2}', "'a'"),
        ('[{"b": {"a": 1, "a": 1}}]', "'a'"),
        ("[NaN]", "NaN"),
        ("[Infinity]", "Infinity"),
        ("[1e999]", "1e999"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_parse_json_refuses_duplicate_keys_infinite_numbers_and_deep_nesting(text: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"here: .*{value}"):
        parse_json(text, "here")


def test_read_rows_refuses_file_of_unknown_kind(tmp_path: Path) -> None:
    file = write_file(tmp_path / "sizes.xlsx", "a\tb\n")
    with pytest.raises(BadInput, match=r"sizes\.xlsx .*\.csv"):
        read_rows(file)


def test_read_pairs_names_option_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^sizes: .*nope\.csv"):
        read_pairs(str(tmp_path / "nope.csv"), "model", "S", option="sizes")


def test_read_pairs_returns_texts(tmp_path: Path) -> None:
    file = write_file(tmp_path / "sizes.json", '[{"model": "a", "S": 5}]')
    assert read_pairs(str(file), "model", "S", option="sizes") == {"a": "5"}


def test_read_rows_of_jsonl_skips_blank_lines_and_counts_them(tmp_path: Path) -> None:
    file = write_file(tmp_path / "rows.jsonl", '\n\n{"a": 1}\n\n{"a": 2}\n')
    assert column_names(file) == {"a"}
    assert read_rows(file) == [("line 3", {"a": 1}), ("line 5", {"a": 2})]


def test_read_rows_of_csv_skips_blank_lines_before_header(tmp_path: Path) -> None:
    file = write_file(tmp_path / "rows.csv", "\na,b\n1,2\n")
    assert column_names(file) == {"a", "b"}
    assert read_rows(file) == [("row 1", {"a": "1", "b": "2"})]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_read_rows_accepts_commas_semicolons_and_tabs_between_columns(
    name: str, separator: str, tmp_path: Path
) -> None:
    header = separator.join(["Model", '"a,b;c,d;e"', " CE "])
    file = write_file(tmp_path / name, f"{header}\n{separator.join(['x-1m', '1', '2.5'])}\n")
    assert column_names(file) == {"model", "a,b;c,d;e", "ce"}
    assert read_rows(file) == [("row 1", {"model": "x-1m", "a,b;c,d;e": "1", "ce": "2.5"})]


def test_read_rows_keeps_empty_last_column_of_tsv(tmp_path: Path) -> None:
    file = write_file(tmp_path / "t.tsv", "model\tce\t\nx-1m\t2.5\t\n")
    assert column_names(file) == {"model", "ce", ""}
    assert read_rows(file) == [("row 1", {"model": "x-1m", "ce": "2.5", "": None})]


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("t.csv", "rbp_10,RBP_10\n1,2\n", "rbp_10"),
        ("t.json", '[{"rbp_10": 1, "RBP_10": 2}]', "rbp_10"),
        ("t.jsonl", '{"a": 1, "A ": 1}', "a"),
    ],
)
def test_read_rows_refuses_column_names_that_differ_only_in_case(
    name: str, text: str, column: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=rf"\b{column}\b"):
        read_rows(write_file(tmp_path / name, text))


PARAM_COUNT = """{
    "EleutherAI/pythia-70m": {"non_embedding_params": 18915328},
    "gpt2": {"non_embedding_params": 85056000}
}"""


def test_read_pairs_reads_param_count_of_the_papers_authors(tmp_path: Path) -> None:
    file = write_file(tmp_path / "param_count.json", PARAM_COUNT)
    pairs = read_pairs(str(file), "model", "non_embedding_params", option="sizes")
    assert pairs == {"EleutherAI/pythia-70m": "18915328", "gpt2": "85056000"}


def test_read_pairs_takes_the_outer_key_before_a_column_of_its_name(tmp_path: Path) -> None:
    file = write_file(tmp_path / "s.json", '{"m/x": {"model": "other", "S": 6}}')
    assert read_pairs(str(file), "model", "S", option="sizes") == {"m/x": "6"}


@pytest.mark.parametrize("text", ['{"m/x": {"S": 5, "s": 6}}', '{"m/x": {"S": NaN}}', '[{"model": "m", "S": NaN}]'])
def test_read_pairs_refuses_repeated_and_missing_values(text: str, tmp_path: Path) -> None:
    for name in ("s.json", "s.jsonl"):
        file = write_file(tmp_path / name, text)
        with pytest.raises(BadInput):
            read_pairs(str(file), "model", "S", option="sizes")


def test_read_pairs_ignores_other_columns_that_are_not_finite(tmp_path: Path) -> None:
    file = write_file(tmp_path / "s.json", '{"m/x": {"S": 6, "loss": NaN}}')
    assert read_pairs(str(file), "model", "S", option="sizes") == {"m/x": "6"}


def test_read_pairs_of_optional_column_that_is_missing_is_empty(tmp_path: Path) -> None:
    file = write_file(tmp_path / "param_count.json", PARAM_COUNT)
    assert read_pairs(str(file), "model", "vocab_size", option="sizes", optional=True) == {}


@pytest.mark.parametrize("text", ['{"gpt2": 5}', '{"gpt2": {"embedding_params": 5}}', "3"])
def test_read_pairs_refuses_json_of_another_structure(text: str, tmp_path: Path) -> None:
    file = write_file(tmp_path / "param_count.json", text)
    with pytest.raises(BadInput, match=r"param_count\.json"):
        read_pairs(str(file), "model", "S", option="sizes")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18,915,328", 18_915_328),
        ("1.9e7", 19_000_000),
        ("3E+11", 300_000_000_000),
        ("19M", 19_000_000),
        (" 1.4b ", 1_400_000_000),
        ("300 B", 300_000_000_000),
        ("70k", 70_000),
        ("2T", 2_000_000_000_000),
    ],
)
def test_whole_number_reads_thousands_separators_exponents_and_suffixes(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "value",
    ["1.95e1", "1.0005k", "18,91", "1,2345", "0,123", "19MB", "e7", "1e999", "٣M", "1_000", "", None, 1.5, True],
)
def test_whole_number_returns_other_values_unchanged(value: object) -> None:
    assert whole_number(value) is value
