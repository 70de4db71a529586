"""`list` and `show`: filters, order and forms."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pandas as pd
import pytest

from rbptrack.cli.readable import value_text
from tests.conftest import RunCommand


def names(out: str) -> list[str]:
    return [line.split()[0] + "/" + line.split()[1] for line in out.splitlines()[1:-1]]


def test_the_table_is_in_order_of_size(on_store: RunCommand) -> None:
    code, out, _ = on_store("list")
    assert code == 0
    assert names(out) == ["nano-6k/code", "nano-15k/code", "nano-6k/few", "nano-15k/few"]
    assert out.splitlines()[-1] == "4 measurements"


def test_no_error_is_shown_below_20_documents(on_store: RunCommand) -> None:
    for line in on_store("list")[1].splitlines()[1:-1]:
        assert ("±" in line) == (" code " in line)
    assert "±" in on_store("show nano-6k/code")[1]
    assert "±" not in on_store("show nano-6k/few")[1]


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--dataset few", ["nano-6k/few", "nano-15k/few"]),
        ("--size 6k --dataset 'c*'", ["nano-6k/code"]),
        ("--model nano/6k --dataset code", ["nano-6k/code"]),
        ("--model '!nano-15k'", ["nano-6k/code", "nano-6k/few"]),
        ("--family nano,other --sweep first", ["nano-6k/code", "nano-15k/code"]),
        ("--where 'seq_len == 64 and documents < 20'", ["nano-6k/few", "nano-15k/few"]),
        ("--sort size,-dataset", ["nano-6k/few", "nano-6k/code", "nano-15k/few", "nano-15k/code"]),
    ],
)
def test_filters_and_order(flags: str, found: list[str], on_store: RunCommand) -> None:
    code, out, err = on_store(f"list {flags}")
    assert (code, err) == (0, "")
    assert names(out) == found


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--dataset wiki", "code, few"),
        ("--where 'nonsense > 3'", "nonsense"),
        ("--where 'ce > 1000'", "ce > 1000"),
        ("--sort cee", "ce"),
        ("--experiment other", "other"),
    ],
)
def test_what_selects_nothing_says_what_there_is(flags: str, said: str, on_store: RunCommand) -> None:
    code, out, err = on_store(f"list {flags}")
    assert (code, out) == (2, "")
    assert said in err


def test_csv_and_json_hold_every_column_as_numbers(on_store: RunCommand) -> None:
    frame = pd.read_csv(io.StringIO(on_store("list --format csv --sort -ce")[1]))
    assert frame["ce"].is_monotonic_decreasing
    assert {"name", "run_id", "seq_len", "rbp_10", "rbp_10_se", "documents", "started"} <= set(frame)
    rows = json.loads(on_store("list --format json")[1])
    assert [row["name"] for row in rows] == ["nano-6k/code", "nano-15k/code", "nano-6k/few", "nano-15k/few"]
    assert rows[0]["ce"] == pytest.approx(frame.set_index("name").loc["nano-6k/code", "ce"], abs=1e-6)


def test_csv_and_json_agree_to_the_last_digit(on_store: RunCommand) -> None:
    cells = list(csv.DictReader(io.StringIO(on_store("list --format csv")[1])))
    text = on_store("list --format json")[1]
    assert '"nano-6k/code"' in text
    for row, texts in zip(json.loads(text), cells, strict=True):
        for column in ("ce", "rbp_1", "rbp_10", "num_tokens"):
            assert row[column] == float(texts[column])
        assert pd.Timestamp(row["started"]) == pd.Timestamp(texts["started"])
        assert row["reference"] is None


def test_tables_for_papers_have_a_number_and_its_error_in_a_cell(on_store: RunCommand) -> None:
    markdown = on_store("list --dataset code --format markdown")[1].splitlines()
    assert markdown[0].startswith("| measurement |")
    assert len(markdown) == 4
    assert re.search(r"\| \d\.\d+ ± 0\.\d+ \|", markdown[2])
    latex = on_store("list --dataset code --format latex")[1]
    assert re.search(r"& \d\.\d+ \$\\pm\$ 0\.\d+ &", latex)
    assert r"RBP\_10" in latex


def test_show_takes_every_name_of_a_measurement(on_store: RunCommand) -> None:
    shown = on_store("show nano-6k/code")[1]
    assert shown == on_store("show nano/6k/code")[1]
    run_id = re.search(r"run_id +(\w+)", shown)
    assert run_id
    assert on_store(f"show {run_id[1][:10]}")[1] == shown
    for wrong in ("nano-6k", "nano-7k/code", "rbp_10"):  # two, none, a column (no run ID begins with this one)
        code, out, err = on_store(f"show {wrong}")
        assert (code, out) == (2, "")
        assert "nano-6k/code" in err


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (299_892_736_000.0, math.nan, "299,892,736,000"),
        (12345.678, math.nan, "12,345.7"),
        (3.14159, math.nan, "3.142"),
        (3.08642, 0.0253, "3.086 ± 0.025"),
        (0.99999999, 1e-8, "1.000000 ± <0.000001"),
        (0.5, 6e-7, "0.500000 ± 0.000001"),
    ],
)
def test_numbers_are_written_for_people(value: float, error: float, text: str) -> None:
    assert value_text("ce", {"ce": value, "ce_se": error, "documents": 100}) == text
