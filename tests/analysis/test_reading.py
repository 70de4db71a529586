"""Files as importers read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.analysis.reading import column_names, parse_json, read_pairs, read_rows, whole_number
from rbptrack.base.errors import BadInput
from tests.imported_files import write_file


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('[{"b": {"a": 1, "a": 1}}]', "'a' appears twice"),
        ("[NaN]", "must be finite"),
        ("[Infinity]", "must be finite"),
        ("[1e999]", "must be finite; got 1e999"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_json_with_a_key_twice_or_no_number_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=f"here: this is not JSON: .*{reason}"):
        parse_json(text, "here")


def test_a_file_of_another_kind_is_no_table(tmp_path: Path) -> None:
    file = write_file(tmp_path / "sizes.xlsx", "a\tb\n")
    with pytest.raises(BadInput, match=r"sizes.xlsx cannot be read as a table: its name must end in .csv, "):
        read_rows(file)


def test_the_option_is_named_where_its_file_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^sizes: there is no file .*nope.csv"):
        read_pairs(str(tmp_path / "nope.csv"), "model", "S", option="sizes")


def test_pairs_are_texts(tmp_path: Path) -> None:
    file = write_file(tmp_path / "sizes.json", '[{"model": "a", "S": 5}]')
    assert read_pairs(str(file), "model", "S", option="sizes") == {"a": "5"}


def test_rows_are_named_by_their_lines_and_blank_lines_are_none(tmp_path: Path) -> None:
    file = write_file(tmp_path / "rows.jsonl", '\n\n{"a": 1}\n\n{"a": 2}\n')
    assert column_names(file) == {"a"}
    assert read_rows(file) == [("line 3", {"a": 1}), ("line 5", {"a": 2})]
    file = write_file(tmp_path / "rows.csv", "\na,b\n1,2\n")
    assert column_names(file) == {"a", "b"}
    assert read_rows(file) == [("row 1", {"a": "1", "b": "2"})]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_may_be_separated_by_commas_semicolons_and_tabs(name: str, separator: str, tmp_path: Path) -> None:
    header = separator.join(["Model", '"a,b;c,d;e"', " CE "])
    file = write_file(tmp_path / name, f"{header}\n{separator.join(['x-1m', '1', '2.5'])}\n")
    assert column_names(file) == {"model", "a,b;c,d;e", "ce"}
    assert read_rows(file) == [("row 1", {"model": "x-1m", "a,b;c,d;e": "1", "ce": "2.5"})]


def test_an_empty_last_column_of_a_table_with_tabs_is_a_column(tmp_path: Path) -> None:
    file = write_file(tmp_path / "t.tsv", "model\tce\t\nx-1m\t2.5\t\n")
    assert column_names(file) == {"model", "ce", ""}
    assert read_rows(file) == [("row 1", {"model": "x-1m", "ce": "2.5", "": None})]


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.csv", "rbp_10,RBP_10\n1,2\n"), ("t.json", '[{"rbp_10": 1, "RBP_10": 2}]'), ("t.jsonl", '{"a": 1, "A ": 1}')],
)
def test_names_of_columns_that_differ_in_case_alone_are_one_column(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="more than once"):
        read_rows(write_file(tmp_path / name, text))


def test_the_parameter_counts_of_the_authors_are_pairs(tmp_path: Path) -> None:
    text = '{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328}, "gpt2": {"non_embedding_params": 85056000}}'
    file = str(write_file(tmp_path / "param_count.json", text))
    pairs = read_pairs(file, "model", "non_embedding_params", option="sizes")
    assert pairs == {"EleutherAI/pythia-70m": "18915328", "gpt2": "85056000"}
    assert read_pairs(file, "model", "vocab_size", option="sizes", optional=True) == {}
    for wrong in ('{"gpt2": 5}', '{"gpt2": {"embedding_params": 5}}', "3"):
        with pytest.raises(BadInput, match=r"param_count\.json"):
            read_pairs(str(write_file(tmp_path / "param_count.json", wrong)), "model", "S", option="sizes")


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
def test_numbers_as_people_write_them_are_whole(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["1.95e1", "1.0005k", "18,91", "1,2345", "0,123", "19MB", "e7", "1e999", "٣M", "1_000", "", None, 1.5, True]
)
def test_what_stands_for_no_whole_number_stays_as_it_is(text: object) -> None:
    assert whole_number(text) is text
