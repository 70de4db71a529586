"""Tests of the importer `table`, which reads measurements from CSV, Parquet, JSON and JSON Lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plugins.importers.table import Table
from rbptrack.analysis import IMPORTABLE_COLUMNS
from rbptrack.base.errors import BadInput
from rbptrack.exchange import check_imported
from tests.imported_files import read_checked, write_file

CASES = Path(__file__).parent / "cases"
START = "model,dataset,non_embedding_params,"
ROW = {"model": "org/a-1b", "dataset": "w", "non_embedding_params": 5, "ce": 2.0, "rbp_10": 0.5, "rbp_10_se": 0.01}


def rows_of(path: Path, dataset: str = "") -> list[dict[str, Any]]:
    """Return the rows that the importer reads, without missing values."""
    measurements = read_checked(Table(dataset=dataset), path).measurements
    rows = [measurement.measurement.columns() for measurement in measurements]
    names = {*IMPORTABLE_COLUMNS, *ROW}
    return [{name: value for name, value in row.items() if name in names and value is not None} for row in rows]


def test_help_of_table_names_every_column_that_is_read() -> None:
    assert set(IMPORTABLE_COLUMNS) <= set(re.findall(r"\w+", Table.__doc__ or ""))


def write_csv(folder: Path, table: list[dict[str, Any]]) -> Path:
    path = folder / "t.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    return path


def write_parquet(folder: Path, table: list[dict[str, Any]]) -> Path:
    path = folder / "t.parquet"
    pd.DataFrame(table).to_parquet(path)
    return path


def write_json(folder: Path, table: list[dict[str, Any]]) -> Path:
    return write_file(folder / "t.json", json.dumps(table))


def write_json_lines(folder: Path, table: list[dict[str, Any]]) -> Path:
    return write_file(folder / "t.jsonl", "\n".join(map(json.dumps, table)))


@pytest.mark.parametrize("write_table", [write_csv, write_parquet, write_json, write_json_lines])
def test_table_reads_rows_in_every_format(
    write_table: Callable[[Path, list[dict[str, Any]]], Path], tmp_path: Path
) -> None:
    row_without_ce = ROW | {"model": "b-2b", "ce": None, "note": "not read"}
    path = write_table(tmp_path, [ROW | {"note": "x"}, row_without_ce])
    first, second = rows_of(path)
    assert first == ROW | {"model": "a-1b", "family": "a", "size": "1b"}
    assert second["rbp_10"] == 0.5
    assert "ce" not in second


def test_table_ignores_case_of_column_names() -> None:
    rows = rows_of(CASES / "table_upper_case.csv")
    assert [row["rbp_10"] for row in rows] == [0.6, 0.65]


def test_table_reads_revision_as_checkpoint_but_not_both(tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", "model,dataset,ce,revision\na-1m,w,2,step1\n")
    assert [row["checkpoint"] for row in rows_of(path)] == ["step1"]
    path = write_file(tmp_path / "t.csv", "model,dataset,ce,checkpoint,revision\na-1m,w,2,step1,\n")
    with pytest.raises(BadInput, match="checkpoint and revision"):
        rows_of(path)


def test_table_notes_unknown_columns(tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", "Model;DataSet;CE;Rbp_10;MMLU;\na-1m;w;2;0.5;0.3;x\n")
    source = read_checked(Table(), path)
    assert source.measurements[0].measurement.rbp == {10: 0.5}
    (note,) = source.notes
    assert "mmlu" in note
    assert "2 columns" in note


def test_table_reads_size_and_training_tokens_of_checkpoints() -> None:
    rows = rows_of(CASES / "checkpoints.csv")
    assert [row["size"] for row in rows] == ["1m", "1m", "4m", "4m", "16m", "16m"]
    assert [row["training_tokens"] for row in rows] == [1e9, 1e10] * 3


@pytest.mark.parametrize(
    ("text", "number"),
    [("18,915,328", 18_915_328), ("1.9e7", 19_000_000), ("19M", 19_000_000), ("19000000", 19_000_000)],
)
def test_table_reads_counts_with_separators_exponents_and_suffixes(text: str, number: int, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.tsv", f"model\tdataset\tce\tnon_embedding_params\na-19m\tw\t2\t{text}\n")
    assert rows_of(path)[0]["non_embedding_params"] == number


@pytest.mark.parametrize("column", ["vocab_size", "seq_len"])
def test_table_reads_exact_number_with_separators(column: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", f'model,dataset,ce,{column}\na-1m,w,2,"4,096"\n')
    assert rows_of(path)[0][column] == 4096


@pytest.mark.parametrize("column", ["vocab_size", "seq_len"])
def test_table_refuses_rounded_value_of_exact_number(column: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", f"model,dataset,ce,{column}\na-1m,w,2,4k\n")
    with pytest.raises(BadInput, match=column):
        rows_of(path)


def test_option_dataset_names_dataset_of_table_without_this_column(tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", "model,ce\na,2\n")
    assert rows_of(path, dataset="wiki")[0]["dataset"] == "wiki"


def test_table_without_dataset_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", "model,ce\na,2\n")
    with pytest.raises(BadInput, match="dataset"):
        rows_of(path)


def test_option_dataset_is_refused_if_table_has_this_column(tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", "model,dataset,ce\na,w,2\n")
    with pytest.raises(BadInput, match="dataset"):
        rows_of(path, dataset="wiki")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (START + "ce\na-1,w,5\n", "4 columns, got 3"),
        (START + 'ce\n"a-1,w,5,2\n', "line 2"),
        (START + "ce,ce\na-1,w,5,2,3\n", r"column ce\b"),
        (START + "ce\n", "no row"),
        ("", "no row"),
        ("model,dataset\na-1,w\n", r"column ce\b"),
        (START + "ce\na-1,w,5,2\nb-1,w,5,2\na-1,w,5,3\n", "row 3: .*ce"),
    ],
)
def test_table_names_fault_of_csv(text: str, fault: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", text)
    with pytest.raises(BadInput, match=rf"t\.csv.*{fault}"):
        check_imported(path, Table().read(path))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.json", "t.jsonl"])
@pytest.mark.parametrize("content", [b"model,dataset,ce\ncaf\xe9,w,1\n", b"\x00\x01", b"PAR1 nonsense PAR1"])
def test_table_refuses_file_of_other_content_and_names_it(content: bytes, name: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / name, content)
    with pytest.raises(BadInput, match=name):
        check_imported(path, Table().read(path))


def test_table_does_not_take_fifo(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    os.mkfifo(path)
    assert not Table().takes(path)


def test_table_refuses_to_read_fifo(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    os.mkfifo(path)
    with pytest.raises(BadInput, match="FIFO"):
        list(Table().read(path))


def test_table_refuses_list_as_name_of_model(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"model": [["a"]], "dataset": ["w"], "ce": [1.0]}), path)
    with pytest.raises(BadInput, match="model"):
        rows_of(path)
