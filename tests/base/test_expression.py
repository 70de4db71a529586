"""Tests of conditions such as `ce < 3`: they select rows, and a condition that does anything else is refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.base.expression import MAX_CONDITION_LENGTH, rows_that_pass


@pytest.fixture
def frame() -> pd.DataFrame:
    """Return four rows named a to d. Row d has no CE and no sequence length; row c has no dtype and no chat."""
    table = pd.DataFrame(
        {
            "name": ["a", "b", "c", "d"],
            "ce": [1.5, 2.5, 3.5, None],
            "seq_len": [64, 256, 256, None],
            "dtype": ["float32", "bfloat16", None, "float32"],
            "chat": [True, False, None, True],
        }
    )
    return table.astype({"ce": "Float64", "seq_len": "Int64", "dtype": "string", "name": "string", "chat": "boolean"})


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("ce < 3", "ab"),
        ("not ce < 3", "c"),
        ("1 < ce <= 2.5", "ab"),
        ("ce < 3 and seq_len == 256", "b"),
        ("ce < 2 or seq_len == 256", "abc"),
        ("dtype in ['float32', 'x']", "ad"),
        ('name not in ("a", "b")', "cd"),
        ("seq_len in [64]", "a"),
        ("seq_len not in [64]", "bc"),
        ("not seq_len in [64, 1]", "bc"),
        ("dtype not in ['float32']", "b"),
        ("dtype != 'float32'", "b"),
        ("not chat == chat", ""),
        ("ce in [seq_len, 1.5]", "a"),
        ("ce in []", ""),
        ("ce not in []", "abcd"),
        ("1 < ce in [1.5, 2.5] and ce in [2.5]", "b"),
        ("dtype == 'float32' and not ce > 1", ""),
        ("seq_len / 64 - 1 == 3", "bc"),
        ("seq_len % 100 == 56 and seq_len // 100 == 2", "bc"),
        ("-ce > -2 and +ce > 0", "a"),
        ("seq_len ** 2 == 65536", "bc"),
        ("2 ** ce < 6", "ab"),
        ("ce == ce", "abc"),
        ("chat", "ad"),
        ("not chat and ce < 3", "b"),
        ("name == 'a & b' or name == \"a\"", "a"),
        ("(ce\n < 2)", "a"),
        ("name == 'a\\u2028b' or name == 'b'", "b"),
        ("'b' < name", "cd"),
    ],
)
def test_rows_that_pass_selects_rows(frame: pd.DataFrame, condition: str, names: str) -> None:
    assert "".join(rows_that_pass(frame, condition)["name"]) == names


@pytest.mark.parametrize(
    "condition",
    [
        'ce.to_csv("F")',
        "name.str.repeat(10**10) == 'a'",
        "__import__('os').system('true')",
        "@frame.size > 1",
        "`ce` < 2",
        "sin(ce) < 1",
        "ce[0] < 1",
        "name * 10**10 == 'a'",
        "name + 'x' == 'ax'",
        "'%999999999d' % seq_len == 'x'",
        "[1] * 10**10 == seq_len",
        "ce < [1]",
        "ce in [1] in [2]",
        "ce is [1]",
        "'a' in name",
        "ce is None",
        "ce == None",
        "(x := 3) < ce",
        "lambda: ce",
        "[x for x in ce] == ce",
        "ce if ce else ce",
        "f'{ce}' == name",
        "ce = 3",
        "ce < 2; ce < 3",
        "(ce < 3) & (ce > 1)",
        "~(ce < 3)",
        "ce << 10**10 > 1",
        "ce < 1j",
        "index < 2",
        "no_such < 2",
        "True",
        "1 < 2",
        "ce",
        "seq_len",
        "ce + 1",
        "'text'",
        "3",
        "ce +",
        "",
        "   ",
        "ce < '2'",
        "name == 2",
        "not ce",
        "ce and seq_len",
        "name in [1]",
        "ce < b'2'",
        "ce < " + "9" * 900,
        "ce < 9**9**9**9",
        "(9**9)**9**9 < ce",
        "seq_len < 2**(10**9)",
        "ce < " + "9" * 5000,
        "ce < " + "(" * 300 + "1" + ")" * 300,
        "-" * (MAX_CONDITION_LENGTH - 10) + "ce < 1",
        "not " * 240 + "ce < 1 and 2",
        "ce < 2\0",
        " ce\n < 2",
    ],
)
def test_rows_that_pass_refuses_conditions_that_are_not_allowed(
    frame: pd.DataFrame, condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the folder that `ce.to_csv("F")` would write to
    with pytest.raises(BadInput):
        rows_that_pass(frame, condition)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "condition",
    [
        "non_embedding_params * training_tokens > 1e20",
        "non_embedding_params ** 2 > 1e20",
        "non_embedding_params * 10000000000 > 1e20",
        "non_embedding_params + 9223372036854775807 > 0",
        "-non_embedding_params * training_tokens < 0",
    ],
)
def test_rows_that_pass_computes_products_above_the_largest_int64(condition: str) -> None:
    table = pd.DataFrame({"non_embedding_params": [12_000_000_000], "training_tokens": [300_000_000_000]})
    assert len(rows_that_pass(table.astype("Int64"), condition)) == 1
    assert len(rows_that_pass(table, condition)) == 1


def test_rows_that_pass_computes_a_tower_of_powers_of_columns(frame: pd.DataFrame) -> None:
    assert not len(rows_that_pass(frame, "seq_len ** seq_len ** seq_len < 0"))
