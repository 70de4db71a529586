"""Tests of the commands `list` and `show`: filters, order and formats."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pandas as pd
import pytest

from rbptrack.cli.readable import format_with_error
from tests.conftest import RunCommand


def printed_names(out: str) -> list[str]:
    """Return the names (model/dataset) of the measurements in a printed table."""
    rows = out.splitlines()[1:-1]
    return ["/".join(row.split()[:2]) for row in rows]


def test_list_sorts_by_dataset_and_size_and_counts_the_measurements(run_in_store: RunCommand) -> None:
    code, out, _ = run_in_store("list")
    assert code == 0
    assert printed_names(out) == ["nano-6k/code", "nano-15k/code", "nano-6k/few", "nano-15k/few"]
    assert out.splitlines()[-1] == "4 measurements"


def test_list_prints_no_standard_error_of_few_documents(run_in_store: RunCommand) -> None:
    for line in run_in_store("list")[1].splitlines()[1:-1]:
        assert ("±" in line) == (" code " in line)  # few has fewer than 5 documents


def test_show_prints_no_standard_error_of_few_documents(run_in_store: RunCommand) -> None:
    assert "±" in run_in_store("show nano-6k/code")[1]
    assert "±" not in run_in_store("show nano-6k/few")[1]


@pytest.mark.parametrize(
    ("flags", "measurements"),
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
def test_list_filters_and_sorts(flags: str, measurements: list[str], run_in_store: RunCommand) -> None:
    code, out, err = run_in_store(f"list {flags}")
    assert (code, err) == (0, "")
    assert printed_names(out) == measurements


@pytest.mark.parametrize(
    ("flags", "part_of_message"),
    [
        ("--dataset wiki", "code, few"),
        ("--where 'nonsense > 3'", "nonsense"),
        ("--where 'ce > 1000'", "ce > 1000"),
        ("--sort cee", "ce"),
        ("--experiment other", "other"),
    ],
)
def test_list_refuses_an_unknown_name_or_an_empty_selection(
    flags: str, part_of_message: str, run_in_store: RunCommand
) -> None:
    code, out, err = run_in_store(f"list {flags}")
    assert (code, out) == (2, "")
    assert part_of_message in err


def test_list_as_csv_has_all_columns(run_in_store: RunCommand) -> None:
    frame = pd.read_csv(io.StringIO(run_in_store("list --format csv --sort -ce")[1]))
    assert frame["ce"].is_monotonic_decreasing
    assert {"name", "run_id", "seq_len", "rbp_10", "rbp_10_se", "documents", "started"} <= set(frame)


def test_list_as_json_has_one_object_per_measurement(run_in_store: RunCommand) -> None:
    rows = json.loads(run_in_store("list --format json")[1])
    assert [row["name"] for row in rows] == ["nano-6k/code", "nano-15k/code", "nano-6k/few", "nano-15k/few"]


def test_list_as_csv_and_as_json_print_equal_numbers(run_in_store: RunCommand) -> None:
    csv_rows = list(csv.DictReader(io.StringIO(run_in_store("list --format csv")[1])))
    json_text = run_in_store("list --format json")[1]
    assert '"nano-6k/code"' in json_text  # the slash is not escaped
    for json_row, csv_row in zip(json.loads(json_text), csv_rows, strict=True):
        for column in ("ce", "rbp_1", "rbp_10", "num_tokens"):
            assert json_row[column] == float(csv_row[column])
        assert pd.Timestamp(json_row["started"]) == pd.Timestamp(csv_row["started"])


def test_list_as_json_writes_null_for_a_missing_value(run_in_store: RunCommand) -> None:
    for row in json.loads(run_in_store("list --format json")[1]):
        assert row["reference"] is None


def test_list_as_markdown_writes_a_number_and_its_error_into_one_cell(run_in_store: RunCommand) -> None:
    markdown = run_in_store("list --dataset code --format markdown")[1].splitlines()
    assert markdown[0].startswith("| measurement |")
    assert len(markdown) == 4
    assert re.search(r"\| \d\.\d+ ± 0\.\d+ \|", markdown[2])


def test_list_as_latex_writes_a_number_and_its_error_into_one_cell(run_in_store: RunCommand) -> None:
    latex = run_in_store("list --dataset code --format latex")[1]
    assert re.search(r"& \d\.\d+ \$\\pm\$ 0\.\d+ &", latex)
    assert "RBP$_{10}$" in latex


def test_show_accepts_a_name_a_config_or_the_beginning_of_a_run_id(run_in_store: RunCommand) -> None:
    out = run_in_store("show nano-6k/code")[1]
    assert run_in_store("show nano/6k/code")[1] == out
    run_id = re.search(r"run_id +(\w+)", out)
    assert run_id
    assert run_in_store(f"show {run_id[1][:10]}")[1] == out


def test_show_prints_all_values_in_a_narrow_terminal(run_in_store: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "60")
    out = run_in_store("show nano-6k/code")[1]
    assert re.search(r"^vocab_size +4,096$", out, re.MULTILINE)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("nano-6k", id="two measurements"),
        pytest.param("nano-7k/code", id="no measurement"),
        pytest.param("rbp_10", id="a column"),
    ],
)
def test_show_refuses_a_name_that_fits_no_measurement_or_several(name: str, run_in_store: RunCommand) -> None:
    code, out, err = run_in_store(f"show {name}")
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
def test_format_with_error_rounds_a_number_to_the_digits_of_its_error(value: float, error: float, text: str) -> None:
    assert format_with_error("ce", {"ce": value, "ce_se": error, "documents": 100}) == text
