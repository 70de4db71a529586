"""Scores of tasks: what people's tools write is read, and what cannot be a score is refused by name."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from rbptrack.plugins.importers.scores import read_names

from rbptrack.analysis.run_names import unmatched
from rbptrack.base import limits
from rbptrack.base.errors import BadInput
from tests.imported import rows_of, scores_in

DIGITS = "9" * 400
START = "model,task,score\n"
WITH_N = "model,task,score,n\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,score\nb,0.5\n", "lacks the column model"),
        (START + ",b,0.5\n", "line 2, column model: is missing"),
        (START + "  ,b,0.5\n", "line 2, column model: is missing"),
        (START + "a,,0.5\n", "line 2, column task: is missing"),
        (START + "a,b,\n", "line 2, column score: is missing"),
        (START, "holds nothing to import"),
        (WITH_N + "a,b,0.5,-5\n", "column n: must be a whole number above 0; got '-5'"),
        (WITH_N + "a,b,0.5,0\n", "column n: must be a whole number above 0; got '0'"),
        (WITH_N + f"a,b,0.5,{DIGITS}\n", r"column n: must be finite; got '9{40}\.\.\. \(400 characters\)'"),
        (START + "a,b,inf\n", "column score: must be finite; got 'inf'"),
        (START + "a,b,nan\n", "column score: must be finite; got 'nan'"),
        (START + "a,b,many\n", "column score: expected a number; got 'many'"),
        (START + "a,b,true\n", "column score: expected a number; got 'true'"),
        (START + "a,b,0_0.5_0\n", "column score: expected a number; got '0_0.5_0'"),
        (START + f"a,b,{DIGITS}\n", r"column score: must be finite; got '9{40}\.\.\. \(400 characters\)'"),
        ("model,task,score,score\na,b,0.5,0.6\n", "has the column score more than once"),
        (START + "a,b\x1b[31m,0.5\n", r"column task: must not hold control characters; got 'b\\x1b\[31m'"),
        (START + f"{'a' * 500_000},b,0.5\n", "line 2: is not CSV: field larger than field limit"),
        (START + f"{'a' * 100_000},b,0.5\n", "line 2: a cell has at most 8,000 characters"),
        (START + f"{'a' * 300},b,0.5\n", "line 2, column model: must have at most 200 characters"),
        (START + "a,b,0.5,x\n", "line 2: has 4 cells for 3 columns"),
        (START + "a,b\n", "line 2: has 2 cells for 3 columns"),
    ],
)
def test_nonsense_in_a_table_of_scores_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message) as caught:
        scores_in(path)
    assert len(str(caught.value)) < 400


def test_a_table_of_scores_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"model": ["a"] * 20, "task": ["b"] * 20, "score": [0.5] * 20}), path)
    monkeypatch.setattr(limits, "ROWS_OF_TABLE", 10)
    for reading in ("ParquetFile", "read_table"):
        monkeypatch.setattr(pq, reading, None)
    with pytest.raises(BadInput, match="has more than 10 rows"):
        scores_in(path)


def test_a_column_of_lists_is_not_read(tmp_path: Path) -> None:
    lists = {"more": [[1, 2]], "pair": [{"a": 1}]}
    pq.write_table(pa.table({"model": ["a-1"], "dataset": ["w"], "ce": [2.0]} | lists), tmp_path / "t.parquet")
    assert [record.metrics["ce"] for record in rows_of(tmp_path / "t.parquet")] == [2.0]
    pq.write_table(pa.table({"model": ["a"], "task": ["b"], "score": [0.5]} | lists), tmp_path / "s.parquet")
    assert scores_in(tmp_path / "s.parquet")["score"].tolist() == [0.5]
    pq.write_table(pa.table({"model": [["a"]], "task": ["b"], "score": [0.5]}), tmp_path / "s.parquet")
    with pytest.raises(BadInput, match="lacks the column model"):
        scores_in(tmp_path / "s.parquet")


def test_a_map_of_names_is_a_file_that_names_each_once(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    os.mkfifo(path)
    with pytest.raises(BadInput, match="is a FIFO, not a file"):
        read_names(path)
    path.unlink()
    path.write_text("name,model\na,b\na,c\n")
    with pytest.raises(BadInput, match="line 3: a is b above, and c here"):
        read_names(path)


def log(scores: list[dict[str, Any]], *, epochs: int = 1, samples: int = 50) -> str:
    """The header of a log of inspect_ai."""
    about = {"task": "org/gsm8k", "model": "hf/org/nano", "config": {"epochs": epochs}}
    results = {"total_samples": samples * epochs, "completed_samples": samples * epochs, "scores": scores}
    return json.dumps({"status": "success", "eval": about, "results": results})


def scored(value: object, **more: str) -> dict[str, Any]:
    return {"name": "match", "metrics": {"accuracy": {"value": value}}} | more


@pytest.mark.parametrize("score", [True, float("inf"), float("nan"), int(DIGITS), -0.1, [1], None])
def test_nonsense_in_a_log_is_refused(score: object, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(log([scored(score)]))
    with pytest.raises(BadInput, match=r"org/nano in gsm8k, column score|nothing to import"):
        scores_in(path)


def test_reducers_of_a_scorer_are_tasks_of_their_own_and_epochs_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(log([scored(0.25, reducer="mean"), scored(0.5, reducer="max")], epochs=4))
    table = scores_in(path)
    assert dict(zip(table["task"], table["score"], strict=True)) == {
        "gsm8k/match/mean": 0.25,
        "gsm8k/match/max": 0.5,
    }
    assert table["n"].tolist() == [50, 50]


def with_zstd(path: Path, text: str) -> bytes:
    """A zip file as inspect_ai writes it, its header compressed by zstd (method 93)."""
    packed = zstandard.compress(text.encode())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/1.json", b"{}")
        archive.writestr("header.json", packed)
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("header.json")
        table_at = archive.start_dir
    content = bytearray(path.read_bytes())
    second = content.index(b"PK\x01\x02", table_at + 4)
    for at, crc, method in ((entry.header_offset, 14, 8), (second, 16, 10)):
        struct.pack_into("<H", content, at + method, 93)
        struct.pack_into("<I", content, at + crc, zlib.crc32(text.encode()))
        struct.pack_into("<I", content, at + crc + 8, len(text.encode()))
    path.write_bytes(content)
    return packed


def test_a_log_with_zstd_entries_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    packed = with_zstd(path, log([scored(0.25)]))
    assert scores_in(path)[["model", "task", "score", "n"]].to_numpy().tolist() == [["org/nano", "gsm8k", 0.25, 50]]
    content = path.read_bytes()
    path.write_bytes(content.replace(packed, packed[:-6] + b"damage"))
    with pytest.raises(BadInput, match="holds no scores"):
        scores_in(path)


def test_averages_of_groups_are_no_tasks(tmp_path: Path) -> None:
    results = {name: {"acc,none": 0.5} for name in ("mmlu", "mmlu_stem", "mmlu_anatomy")}
    groups = {name: {"acc,none": 0.5} for name in ("mmlu", "mmlu_stem")}
    content = {"results": results, "groups": groups, "config": {"model_args": "pretrained=org/nano"}}
    (tmp_path / "results_1.json").write_text(json.dumps(content))
    assert scores_in(tmp_path / "results_1.json")["task"].tolist() == ["mmlu_anatomy"]


def test_a_name_that_no_measurement_has_is_told() -> None:
    models = ["nano-6k@step10", "own"]
    frame = pd.DataFrame({"model": models, "commit": ["org/nano@a1", None]})
    assert unmatched(["org/Nano-6k", "nano", "nano-6k@step10", "org/own", "other", "org"], frame) == ["org", "other"]
