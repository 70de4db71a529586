"""Documents from local files: every kind, patterns, filters, and what is wrong with them."""

from __future__ import annotations

import csv
import gc
import gzip
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.corpus.documents import load_documents, only_split, selection_identity, texts_hash
from rbptrack.sources.pin import Source, of_dataset

# `datasets` leaves a CSV file open that it does not read to its end: its first row was wanted, or a row is damaged.
leaves_csv_open = pytest.mark.filterwarnings(r"ignore:unclosed file .*\.csv'>:ResourceWarning")
CONFIG = DatasetConfig(name="mine", split="train", seq_len=8)
ROWS: list[dict[str, Any]] = [
    {"text": "one line\nand another", "kind": "a", "meta": {"set": "x"}},
    {"text": "two — é", "kind": "b", "meta": {"set": "y"}},
    {"text": "three", "kind": "a", "meta": {"set": None}},
]


@pytest.fixture(autouse=True)
def _close_files() -> Iterator[None]:
    """Let open files be noticed in the test that left them open."""
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


def write(folder: Path, name: str) -> str:
    path = folder / name
    lines = "\n".join(json.dumps(row) for row in ROWS) + "\n"
    if name.endswith(".jsonl"):
        path.write_text(lines)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif name.endswith(".zst"):
        path.write_bytes(zstandard.compress(lines.encode()))
    elif name.endswith(".csv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "kind"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(ROWS)
    elif name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text(ROWS[0]["text"], encoding="utf-8-sig")  # as Windows' editors do
    return str(path)


def load(config: DatasetConfig, *files: str) -> list[tuple[str, tuple[str, ...]]]:
    config = replace(config, files=list(files))
    return [(document.id, document.fields) for document in load_documents(config, of_dataset(config))]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.jsonl.zst", "a.jsonl.gz", pytest.param("a.csv", marks=leaves_csv_open), "a.parquet"]
)
def test_rows_are_documents(name: str, tmp_path: Path) -> None:
    assert load(CONFIG, write(tmp_path, name)) == [(f"{name}:{i}", (row["text"],)) for i, row in enumerate(ROWS)]


def test_a_text_file_is_one_document_and_so_is_each_of_a_folder_of_them(tmp_path: Path) -> None:
    names = ["part1.txt", "part2.txt", "part[3].txt"]  # no pattern
    for name in reversed(names):
        write(tmp_path, name)
    expected = [(name, (ROWS[0]["text"],)) for name in names]
    assert load(CONFIG, f"{tmp_path}/*.txt") == expected
    (tmp_path / "LICENSE").touch()  # no data
    config = replace(CONFIG, path=str(tmp_path))
    source = of_dataset(config)
    assert only_split(config, source) == "train"
    assert [(document.id, document.fields) for document in load_documents(config, source)] == expected


@leaves_csv_open
def test_kinds_mix_and_where_they_lie_does_not_matter(tmp_path: Path) -> None:
    files = [write(tmp_path, name) for name in ("b.jsonl", "c.csv", "d.txt")]
    ids = [*(f"b.jsonl:{i}" for i in range(3)), *(f"c.csv:{i}" for i in range(3)), "d.txt"]
    assert [id_ for id_, _ in load(CONFIG, *files)] == ids
    (tmp_path / "other").mkdir()
    here = of_dataset(replace(CONFIG, files=[write(tmp_path, "b.jsonl")]))
    there = of_dataset(replace(CONFIG, files=[write(tmp_path / "other", "b.jsonl")]))
    assert here.identity == there.identity
    assert here.files != there.files


@pytest.mark.parametrize("sampling", list(Sampling))
def test_filters_and_selection(sampling: Sampling, tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl")
    config = replace(CONFIG, sampling=sampling)

    def ids(**changes: Any) -> list[str]:
        return [id_.partition(":")[2] for id_, _ in load(replace(config, **changes), path)]

    assert ids(where={"kind": "a"}) == ["0", "2"]
    assert ids(where={"meta.set": "y"}) == ["1"]
    assert ids(longer_than=5) == ["0", "1"]
    assert ids(head=1, longer_than=3) == ["0"]
    assert len(ids(where={"kind": "a"}, documents=1)) == 1
    assert sorted(ids(fields=["kind", "text"], documents=5)) == ["0", "1", "2"]
    assert load(replace(config, fields=["kind", "text"]), path)[0][1] == (ROWS[0]["kind"], ROWS[0]["text"])


def parquet_source(folder: Path, rows: dict[str, list[object]]) -> Source:
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "test.parquet")
    return Source(str(folder), None, "sha256:0")


def test_a_seed_selects(tmp_path: Path) -> None:
    source = parquet_source(
        tmp_path / "d", {"text": [f"text {i}" for i in range(50)], "key": [f"k{i}" for i in range(50)]}
    )
    config = replace(CONFIG, split="test", id_field="key", documents=10)
    first = load_documents(config, source)
    again = load_documents(config, source)
    other = load_documents(replace(config, seed=1), source)
    assert first == again
    assert len({document.id for document in first}) == 10
    assert {document.id for document in first} != {document.id for document in other}
    assert texts_hash(first) == texts_hash(again) != texts_hash(other)
    assert texts_hash(first) != texts_hash(first, chat=True)
    everything = load_documents(replace(config, documents=0), source)
    assert [document.id for document in everything] == [f"k{i}" for i in range(50)]
    identities = [
        selection_identity(replace(config, seed=seed, documents=n), source) for seed in (1, 2) for n in (0, 9)
    ]
    assert identities[0] == identities[2], "the seed of no draw"
    assert identities[1] != identities[3]


def test_documents_have_a_source(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"id": "x", "text": "a", "meta": {"set": name}}) + "\n" for name in ("x", None, ""))
    )
    config = replace(CONFIG, files=[str(path)], group="meta.set", id_field="id")
    groups = [document.group for document in load_documents(config, of_dataset(config))]
    assert groups == ["x", "document 1 (no meta.set)", "document 2 (no meta.set)"], "each is its own, and none is x"


def test_local_documents_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` sleeps 5 s after each selection, for connections of a hub to end."""
    from datasets import config, iterable_dataset

    slept: list[float] = []
    monkeypatch.setattr(iterable_dataset, "time", SimpleNamespace(sleep=slept.append))
    before = config.SLEEP_TIME_ON_THREADS_SHUTDOWN
    source = parquet_source(tmp_path / "d", {"text": [f"text {i}" for i in range(50)]})
    load_documents(replace(CONFIG, split="test", documents=10), source)
    assert 0 < sum(slept) < 1
    assert before == config.SLEEP_TIME_ON_THREADS_SHUTDOWN


@pytest.mark.parametrize(
    ("change", "file", "words"),
    [
        ({}, "nothing*.jsonl", "no file matches .*nothing"),
        ({}, "a.pdf", r"a\.pdf"),
        ({"fields": ["body"]}, "a.jsonl", "no field body. Fields: text, kind, meta$"),
        ({"where": {"lang": "en"}}, "a.jsonl", "no field lang"),
        ({"where": {"kind": "z"}}, "a.jsonl", "is empty: 0 documents"),
        ({}, "empty.jsonl", "is empty: 2 documents"),
        ({"group": "kind.x.y"}, "a.jsonl", "the field kind holds a str"),
        ({"group": "meta.nope"}, "a.jsonl", r"dataset\.group=meta\.nope"),
    ],
)
def test_what_is_wrong(change: dict[str, Any], file: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl")
    write(tmp_path, "a.pdf")
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n' * 2)
    with pytest.raises(BadInput, match=words):
        load(replace(CONFIG, **change), f"{tmp_path}/{file}")


LINES = "".join(json.dumps({"text": f"text number {i}", "n": i}) + "\n" for i in range(5000)).encode()
DAMAGED: dict[str, bytes] = {
    "empty.jsonl": b"",
    "blank.jsonl": b"\n\n",
    "cut.jsonl.gz": gzip.compress(LINES)[:5000],
    "cut.jsonl.zst": zstandard.compress(LINES)[:3000],
    "plain.jsonl.zst": LINES,
    "cut.jsonl": LINES[:-10],
    "latin.jsonl": b'{"text": "caf\xe9"}\n',
    "latin.txt": b"caf\xe9",
    "latin.csv": b"text\ncaf\xe9\n",
    "long.csv": b"text,b\na," + b"9" * 24 + b"\n",
    "ragged.csv": b"text,b\na,1\nb,2,3\n",
    "cut.parquet": b"PAR1",
    "null.json": b"null",
    "list.jsonl": b'{"text": ["a", "b"]}\n',
    "bool.jsonl": b'{"text": true}\n',
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=leaves_csv_open if name == "ragged.csv" else ()) for name in DAMAGED]
)
def test_damaged_files_are_refused_in_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(BadInput) as refused:
        load(CONFIG, str(tmp_path / name))
    assert "\n" not in str(refused.value)


def test_several_compressed_frames_are_one_file(tmp_path: Path) -> None:
    half = len(LINES) // 2 + LINES[len(LINES) // 2 :].index(b"\n") + 1
    path = tmp_path / "two.jsonl.zst"
    path.write_bytes(zstandard.compress(LINES[:half]) + zstandard.compress(LINES[half:]))
    assert len(load(CONFIG, str(path))) == 5000
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BadInput, match="not complete"):
        load(CONFIG, str(path))


def test_documents_without_text_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few.jsonl").write_text('{"text": "one"}\n{"text": null}\n{"text": ""}\n')
    assert len(load(CONFIG, str(tmp_path / "few.jsonl"))) == 3
    assert "2 of 3 documents" in capsys.readouterr().out


def test_a_dataset_with_one_split_needs_no_split(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl")
    config = replace(CONFIG, path=str(tmp_path), split="")
    assert only_split(config, of_dataset(config)) == "train"
    write(tmp_path, "test.jsonl")
    with pytest.raises(BadInput, match="Splits: train, test"):
        only_split(config, of_dataset(config))


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_bytes("plain text".encode("utf-16-le"))  # valid UTF-8, with a NUL after each letter
    with pytest.raises(BadInput, match="UTF-8"):
        load(CONFIG, str(path))
