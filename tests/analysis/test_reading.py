"""Files as importers read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.analysis.reading import column_names, parse_json, read_pairs, read_rows
from rbptrack.base.errors import BadInput
from tests.made import write_file


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('[{"b": {"a": 1, "a": 1}}]', "'a' stands twice"),
        ("[NaN]", "must be finite"),
        ("[Infinity]", "must be finite"),
        ("[1e999]", "must be finite; got 1e999"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_json_with_a_key_twice_or_no_number_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=f"here: is not JSON: .*{reason}"):
        parse_json(text, "here")


def test_a_file_of_another_kind_is_no_table(tmp_path: Path) -> None:
    file = write_file(tmp_path / "sizes.tsv", "a\tb\n")
    with pytest.raises(BadInput, match=r"sizes.tsv cannot be read as a table: its name must end in .csv, .parquet,"):
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
