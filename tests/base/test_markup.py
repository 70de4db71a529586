"""Names that others chose are plain text in LaTeX, Markdown and spreadsheets."""

import csv
import io

import pandas as pd
import pytest

from rbptrack.base import markup


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("3.1 ± 0.2", r"3.1 $\pm$ 0.2"),
        (r"$\input{/etc/passwd}$", r"\$\textbackslash{}input\{/etc/passwd\}\$"),
        ("50%_x & #1 ^~", r"50\%\_x \& \#1 \textasciicircum{}\textasciitilde{}"),
        ("a\n\\\\b", r"a \textbackslash{}\textbackslash{}b"),
    ],
)
def test_latex(text, latex):
    assert markup.latex_text(text) == latex


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("nano-6k/stdlib rbp_10 (v2)", "nano-6k/stdlib rbp_10 (v2)"),
        ("a|b\nc", r"a\|b c"),
        ("<script>x</script>", r"\<script\>x\</script\>"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        ("_a_ *b* `c` $d$ &amp;", r"\_a\_ \*b\* \`c\` \$d\$ \&amp;"),
    ],
)
def test_markdown(text, markdown):
    assert markup.markdown_text(text) == markdown


def test_a_cell_of_a_spreadsheet_is_no_formula():
    cells = ["=cmd|calc!A1", "+1", "-2+3", "@sum", "\t=1", "plain", None, "a,b"]
    frame = pd.DataFrame(
        {"name": pd.Series(cells, dtype="string"), "=x": [-1.5] * 8, "n": pd.array([-1] * 8, dtype="Int64")}
    )
    head, *rows = list(csv.reader(io.StringIO(markup.csv_text(frame, "%.3g"), newline="")))
    assert head == ["name", "'=x", "n"]
    assert [row[0] for row in rows] == ["'=cmd|calc!A1", "'+1", "'-2+3", "'@sum", "'\t=1", "plain", "", "a,b"]
    assert {(row[1], row[2]) for row in rows} == {("-1.5", "-1")}
    assert list(frame["name"][:1]) == ["=cmd|calc!A1"], "the table itself stays"


def test_a_block_is_not_left():
    assert markup.fenced("a\n```\nb").count("```") == 2
