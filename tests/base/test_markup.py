"""Tests that names are shown as they are in LaTeX, Markdown and spreadsheets, and are never read as commands."""

from __future__ import annotations

import csv
import io
from math import inf, nan

import numpy as np
import pandas as pd
import pytest

from rbptrack.base import markup


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("3.1 ± 0.2", r"3.1 $\pm$ 0.2"),
        (r"$\input{/etc/passwd}$", r"\$\textbackslash{}input\{/etc/passwd\}\$"),
        ("50%_x & #1 ^~", r"50\%\_x \& \#1 \textasciicircum{}\textasciitilde{}"),
        ("5.4·10⁻¹², R²", r"5.4$\cdot$10$^{-12}$, R$^{2}$"),
        ("A S^-α", r"A S$^{-\alpha}$"),
        ("a\n\\\\b", r"a \textbackslash{}\textbackslash{}b"),
    ],
)
def test_latex_text_escapes_commands(text: str, latex: str) -> None:
    assert markup.latex_text(text) == latex


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("nano-6k/stdlib rbp_10 (v2)", "nano-6k/stdlib rbp_10 (v2)"),
        ("a|b\nc", r"a\|b c"),
        ("<script>x</script>", r"&lt;script\>x&lt;/script\>"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        ("_a_ *b* `c` $d$ &amp;", r"\_a\_ \*b\* \`c\` &#36;d&#36; &amp;amp;"),
    ],
)
def test_markdown_text_escapes_html_links_and_ends_of_cells(text: str, markdown: str) -> None:
    assert markup.markdown_text(text) == markdown


def test_csv_text_marks_texts_that_a_spreadsheet_would_compute() -> None:
    cells = ["=cmd|calc!A1", "+1", "-2+3", "@sum", "\t=1", "plain", None, "a,b"]
    frame = pd.DataFrame({"name": pd.Series(cells, dtype="string"), "=x": range(8)})
    header, *rows = csv.reader(io.StringIO(markup.csv_text(frame), newline=""))
    assert header == ["name", "'=x"]
    assert [row[0] for row in rows] == ["'=cmd|calc!A1", "'+1", "'-2+3", "'@sum", "'\t=1", "plain", "", "a,b"]


def test_csv_text_leaves_negative_numbers() -> None:
    frame = pd.DataFrame({"ce": [-1.5], "n": pd.array([-1], dtype="Int64")})
    _, row = csv.reader(io.StringIO(markup.csv_text(frame, "%.3g"), newline=""))
    assert row == ["-1.5", "-1"]


@pytest.mark.parametrize("float_format", [None, "%.6g"])
def test_csv_text_writes_numbers_as_pandas_does(float_format: str | None) -> None:
    numbers = [1.5, nan, inf, -inf, -0.0, 1e30, 123456789.0, 0.1]
    frame = pd.DataFrame(
        {
            "float64": numbers,
            "float32": np.array(numbers, dtype=np.float32),
            "Float64": pd.array(numbers, dtype="Float64"),
            "int": range(8),
            "bool": [True, False] * 4,
            "text": ['"a",b', "x\ny", "", None, "é", "nan", "1e5", "z"],
            "time": pd.to_datetime(["2020-01-01", None] * 4, utc=True),
            "mixed": pd.Series([1.23456789, None, "x", True, 3, nan, 1e10, pd.NA], dtype=object),
        }
    )
    expected = frame.to_csv(index=False, float_format=float_format, lineterminator="\n")
    assert markup.csv_text(frame, float_format) == expected
    two_of_one_name = frame[["float64", "float64"]]
    assert markup.csv_text(two_of_one_name.tail(1), "%.1g") == "float64,float64\n0.1,0.1\n"
    assert markup.csv_text(frame[["float64"]][1:2], "%.6g") == 'float64\n""\n'


def test_csv_text_does_not_change_the_table() -> None:
    frame = pd.DataFrame({"name": pd.Series(["=cmd|calc!A1"], dtype="string")})
    markup.csv_text(frame)
    assert list(frame["name"]) == ["=cmd|calc!A1"]


def test_text_in_a_code_block_cannot_end_the_block() -> None:
    assert markup.code_block("a\n```\nb").count("```") == 2
