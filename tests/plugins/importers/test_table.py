"""Tables of measurements in every format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plugins.importers.table import Table
from rbptrack.analysis.importing import check_imported
from rbptrack.base.errors import BadInput
from tests.imported_files import read_checked, write_file

CASES = Path(__file__).parent / "cases"
START = "model,dataset,non_embedding_params,"
ROW = {"model": "org/a-1b", "dataset": "w", "non_embedding_params": 5, "ce": 2.0, "rbp_10": 0.5, "rbp_10_se": 0.01}


def rows_of(path: Path, dataset: str = "") -> list[dict[str, Any]]:
    """The rows that the importer reads, without what is missing."""
    measurements = read_checked(Table(dataset=dataset), path).measurements
    return [measurement.row.model_dump(exclude_none=True) for measurement in measurements]


def as_csv(folder: Path, table: list[dict[str, Any]]) -> Path:
    path = folder / "t.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    return path


def as_parquet(folder: Path, table: list[dict[str, Any]]) -> Path:
    path = folder / "t.parquet"
    pd.DataFrame(table).to_parquet(path)
    return path


def as_json(folder: Path, table: list[dict[str, Any]]) -> Path:
    return write_file(folder / "t.json", json.dumps(table))


def as_lines(folder: Path, table: list[dict[str, Any]]) -> Path:
    return write_file(folder / "t.jsonl", "\n".join(map(json.dumps, table)))


@pytest.mark.parametrize("write_table", [as_csv, as_parquet, as_json, as_lines])
def test_a_table_is_read_in_every_format(
    write_table: Callable[[Path, list[dict[str, Any]]], Path], tmp_path: Path
) -> None:
    other = ROW | {"model": "b-2b", "ce": None, "note": "not read"}
    path = write_table(tmp_path, [ROW | {"note": "x"}, other])
    first, second = rows_of(path)
    assert first == ROW | {"family": "a", "size": "1b"}
    assert second["rbp_10"] == 0.5
    assert "ce" not in second


def test_the_case_of_columns_does_not_matter_and_unknown_ones_are_named(tmp_path: Path) -> None:
    rows = rows_of(CASES / "table_upper_case.csv")
    assert [row["rbp_10"] for row in rows] == [0.6, 0.65]
    path = write_file(tmp_path / "t.csv", "Model;DataSet;CE;Rbp_10;MMLU;\na-1m;w;2;0.5;0.3;x\n")
    source = read_checked(Table(), path)
    assert source.measurements[0].row.rbp == {10: 0.5}
    (note,) = source.notes
    assert "mmlu" in note
    assert "2 columns" in note


def test_checkpoints_have_a_size_and_their_training_tokens() -> None:
    rows = rows_of(CASES / "checkpoints.csv")
    assert [row["size"] for row in rows] == ["1m", "1m", "4m", "4m", "16m", "16m"]
    assert [row["training_tokens"] for row in rows] == [1e9, 1e10] * 3


@pytest.mark.parametrize(
    ("text", "number"),
    [("18,915,328", 18_915_328), ("1.9e7", 19_000_000), ("19M", 19_000_000), ("19000000", 19_000_000)],
)
def test_counts_are_read_as_people_write_them(text: str, number: int, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.tsv", f"model\tdataset\tce\tnon_embedding_params\na-19m\tw\t2\t{text}\n")
    assert rows_of(path)[0]["non_embedding_params"] == number


@pytest.mark.parametrize("column", ["vocab_size", "seq_len"])
def test_a_number_that_must_be_exact_is_not_rounded(column: str, tmp_path: Path) -> None:
    assert rows_of(write_file(tmp_path / "t.csv", f'model,dataset,ce,{column}\na-1m,w,2,"4,096"\n'))[0][column] == 4096
    with pytest.raises(BadInput, match=column):
        rows_of(write_file(tmp_path / "t.csv", f"model,dataset,ce,{column}\na-1m,w,2,4k\n"))


def test_a_dataset_may_be_given(tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", "model,ce\na,2\n")
    assert rows_of(path, "wiki")[0]["dataset"] == "wiki"
    with pytest.raises(BadInput, match="dataset"):
        rows_of(path)
    with pytest.raises(BadInput, match="leave out"):
        rows_of(write_file(tmp_path / "u.csv", "model,dataset,ce\na,w,2\n"), "wiki")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (START + "ce\na-1,w,5\n", "Expected 4 columns, got 3"),
        (START + 'ce\n"a-1,w,5,2\n', "Expected 4 columns, got 1"),
        (START + "ce,ce\na-1,w,5,2,3\n", "the column ce more than once"),
        (START + "ce\n", "holds no row"),
        ("", "Empty CSV"),
        ("model,dataset\na-1,w\n", "lacks a column ce"),
        (START + "ce\na-1,w,5,2\nb-1,w,5,2\na-1,w,5,3\n", "row 3: .*ce"),
    ],
)
def test_what_breaks_a_rule_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.csv", text)
    with pytest.raises(BadInput, match=rf"t\.csv.*{reason}"):
        check_imported(path, Table().read(path))


@pytest.mark.parametrize("content", [b"model,dataset,ce\ncaf\xe9,w,1\n", b"\x00\x01", b"PAR1 nonsense PAR1"])
def test_what_is_no_table_is_refused(content: bytes, tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet", "t.json", "t.jsonl"):
        path = write_file(tmp_path / name, content)
        with pytest.raises(BadInput, match=name):
            check_imported(path, Table().read(path))


def test_a_fifo_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    os.mkfifo(path)
    assert not Table().takes(path)
    with pytest.raises(BadInput, match="FIFO"):
        list(Table().read(path))


def test_a_list_is_no_name_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"model": [["a"]], "dataset": ["w"], "ce": [1.0]}), path)
    with pytest.raises(BadInput, match="model"):
        rows_of(path)
