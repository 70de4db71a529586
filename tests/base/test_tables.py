"""Tests of reading tables: every cell as it is in the file, or an error that names the line."""

from __future__ import annotations

import csv
import io
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.tables import Open, csv_columns, csv_rows, find_separator, json_rows, parquet_rows, read_text


def opener(content: str | bytes) -> Open:
    data = content.encode() if isinstance(content, str) else content
    return partial(io.BytesIO, data)


def texts(content: str | bytes, separator: str = "") -> list[Any]:
    return [row["text"] for _, row in csv_rows(opener(content), separator)]


@pytest.mark.parametrize(
    ("content", "separator", "expected"),
    [
        ("id\ttext\n1\t\"the\n2\tone\n3\tsaid so.\"\n4\tlast\n", "\t", ["\"the", "one", "said so.\"", "last"]),
        ('id\ttext\n1\t"a ""b"" c"\n2\t"x\ty"\n3\tz\n', "\t", ['a "b" c', "x\ty", "z"]),
        ('id\ttext\n1\t"two\nlines"\n2\tz\n', "\t", ["two\nlines", "z"]),
        ('text\n"two\nlines"\nz\n', "\t", ["two\nlines", "z"]),
        ('id\ttext\n1\t"Hi" he said\n2\t5" disk\n', "\t", ['"Hi" he said', '5" disk']),
        ('text,x\n"a \\"quoted\\" word",1\n', ",", ['a "quoted" word']),
        ('text,x\n"C:\\\\ and \\"q\\"",1\n', ",", ['C:\\ and "q"']),
        ('text,x\n"a ""quoted"" word",1\n"\\alpha",2\nsay "hi",3\n', ",", ['a "quoted" word', "\\alpha", 'say "hi"']),
        ("text,x\r\n\r\n007,1\r\nNA,2\r\n,3\r\n", ",", ["007", "NA", ""]),
        ("\ufefftext;x\n1,5;2\n", "", ["1,5"]),
    ],
)  # fmt: skip
def test_csv_rows_reads_the_texts_that_were_written(content: str, separator: str, expected: list[str]) -> None:
    assert texts(content, separator) == expected


@pytest.mark.parametrize(
    "content",
    [
        'text,x\n"a \\"b\\" \\n c",1\n',  # \n may be a line break or a backslash and a letter
        'text,x\n"open,1\nnext,2\n',
        'text,x\n"a" b,1\n',
        "text,x\na,1,2\n",
        "text,x\na\n",
        "text,text\na,b\n",
        "text,x\na,1\n".encode("utf-16"),
        "text,x\na,1\n".encode("utf-16-le"),
        "text,x\ncafé,1\n".encode("latin-1"),
    ],
)
def test_csv_rows_refuses_a_file_that_it_cannot_read_for_certain(content: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"line [23]|column text|UTF-16|utf-8"):
        texts(content, ",")


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.text("ab"))))
def test_csv_rows_reads_every_text_that_python_writes(rows: list[tuple[str, str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("text", "x"), *rows])
    assert texts(file.getvalue()) == [text for text, _ in rows]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters='\0\t\r\n"'), min_size=1), min_size=1))
def test_csv_rows_reads_every_line_of_a_file_with_tabs_and_no_rule_for_quotes(words: list[str]) -> None:
    cells = [f'"{word}' if number % 2 else word for number, word in enumerate(words)]
    lines = "".join(f"{number}\t{cell}\n" for number, cell in enumerate(cells))
    assert texts(f"id\ttext\n{lines}", "\t") == cells


def test_csv_rows_of_a_file_with_tabs_follows_the_quotes_of_its_header() -> None:
    """Each line of this file has two cells, with and without a rule for quotes."""
    assert texts('"text"\t"id"\n"a\tb\nc"\t"5"\n', "\t") == ["a\tb\nc"]


@pytest.mark.parametrize(
    ("header", "default", "expected"),
    [("a,b", ",", ","), ("a;b", ",", ";"), ("a\tb", ",", "\t"), ("text", "\t", "\t"), ("a,b,c\td", "\t", "\t")],
)
def test_find_separator_prefers_the_default_if_no_other_occurs(header: str, default: str, expected: str) -> None:
    assert find_separator(opener(header), default) == expected


def test_csv_rows_and_columns_take_names_and_quotes_from_options() -> None:
    options = {"names": ["text", "x"], "quotechar": "'"}
    content = "'a,b',1\n\"c,2\n"
    assert csv_columns(opener(content), ",", options) == ["text", "x"]
    assert [row["text"] for _, row in csv_rows(opener(content), ",", (), options)] == ["a,b", '"c']


def test_csv_columns_are_the_columns_of_rows_with_the_same_options() -> None:
    options = {"quotechar": "'"}
    content = "'te,xt',x\n'a,b',1\n"
    assert csv_columns(opener(content), ",", options) == ["te,xt", "x"]
    assert [row for _, row in csv_rows(opener(content), ",", (), options)] == [{"te,xt": "a,b", "x": "1"}]


@pytest.mark.parametrize("content", ['{"a": 1}\n{"a": 2}\n', '\n[{"a": 1},\n {"a": 2}]', '\ufeff{"a": 1}\n\n{"a": 2}'])
def test_json_rows_reads_lines_and_arrays(content: str) -> None:
    assert [row for _, row in json_rows(opener(content))] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("content", ['{"a": 1}\n{"a": \n', '{"a": 1}\n[2]', '{"a": 1}\n3', '{"a": 1}'.encode("utf-16")])
def test_json_rows_names_the_line_that_is_not_an_object(content: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"line 2|UTF-16"):
        list(json_rows(opener(content)))


def test_parquet_rows_reads_bytes_as_text_and_refuses_bytes_that_are_none() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": [b"caf\xc3\xa9", None], "x": [1, 2]}), file)
    assert list(parquet_rows(opener(file.getvalue()), ["text"])) == [
        ("row 1", {"text": "café"}),
        ("row 2", {"text": None}),
    ]
    pq.write_table(pa.table({"text": [b"\xff"]}), file := io.BytesIO())
    with pytest.raises(ValueError):  # noqa: PT011  pyarrow's own error
        list(parquet_rows(opener(file.getvalue())))


def test_read_text_keeps_carriage_returns_and_drops_the_byte_order_mark() -> None:
    assert read_text(opener("\ufeffa\r\nb\r")) == "a\r\nb\r"
