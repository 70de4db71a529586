"""Documents from local files: every kind, patterns, filters, and what is wrong with them."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.corpus.documents import load_documents, only_split, selection_identity, texts_hash
from rbptrack.sources.pin import Pinned, pin_dataset

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
    kind = name.lower()
    if kind.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
        return str(path)
    if ".json" in kind:
        content = ("\n".join(json.dumps(row) for row in ROWS) + "\n").encode()
    elif ".csv" in kind or ".tsv" in kind:
        content = table(ROWS, "\t" if ".tsv" in kind else ",")
    else:
        content = ROWS[0]["text"].encode("utf-8-sig")  # as Windows' editors write it
    if kind.endswith(".gz"):
        content = gzip.compress(content)
    elif kind.endswith(".zst"):
        content = zstandard.compress(content)
    path.write_bytes(content)
    return str(path)


def table(rows: list[dict[str, Any]], separator: str) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, ["text", "kind"], extrasaction="ignore", delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def load(config: DatasetConfig, *files: str) -> list[tuple[str, tuple[str, ...]]]:
    config = replace(config, files=list(files))
    return [(document.id, document.fields) for document in load_documents(config, pin_dataset(config))]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.jsonl.zst", "a.json.gz", "a.csv", "a.TSV", "a.csv.gz", "a.tsv.zst", "a.parquet"]
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
    source = pin_dataset(config)
    assert only_split(config, source) == "train"
    assert [(document.id, document.fields) for document in load_documents(config, source)] == expected


def test_kinds_mix_and_where_they_lie_does_not_matter(tmp_path: Path) -> None:
    files = [write(tmp_path, name) for name in ("b.jsonl", "c.csv", "d.txt")]
    ids = [*(f"b.jsonl:{i}" for i in range(3)), *(f"c.csv:{i}" for i in range(3)), "d.txt"]
    assert [id_ for id_, _ in load(CONFIG, *files)] == ids
    (tmp_path / "other").mkdir()
    here = pin_dataset(replace(CONFIG, files=[write(tmp_path, "b.jsonl")]))
    there = pin_dataset(replace(CONFIG, files=[write(tmp_path / "other", "b.jsonl")]))
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


def parquet_source(folder: Path, rows: dict[str, list[object]]) -> Pinned:
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "test.parquet")
    return Pinned(str(folder), None, "sha256:0")


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
    groups = [document.group for document in load_documents(config, pin_dataset(config))]
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
    "ragged.csv": b"text,b\na,1\nb,2,3\n",
    "wide.csv": b"text,b\na,1,2\nb,2,3\n",
    "array.jsonl": b'["a", 3]',
    "numbers.jsonl": b"[1, 2]",
    "half.jsonl": b'{"text": "\\ud800"}\n',
    "late.jsonl": LINES + b"{text}\n",
    "cut.parquet": b"PAR1",
    "null.json": b"null",
    "list.jsonl": b'{"text": ["a", "b"]}\n',
    "bool.jsonl": b'{"text": true}\n',
}


@pytest.mark.parametrize("name", DAMAGED)
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


def test_documents_without_text_are_counted_and_the_first_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "few.jsonl").write_text('{"text": "one"}\n{"text": null}\n{"text": ""}\n')
    (tmp_path / "few.csv").write_text("id,text\n1,one\n2,\n")
    assert len(load(CONFIG, str(tmp_path / "few.jsonl"))) == 3
    assert "2 of 3 documents" in (out := capsys.readouterr().out)
    assert "few.jsonl:1" in out
    assert len(load(CONFIG, str(tmp_path / "few.csv"))) == 2
    assert "few.csv:1" in capsys.readouterr().out


ODD_CELLS = [
    "None",
    "null",
    "NA",
    "NaN",
    "nan",
    "n/a",
    "-",
    "007",
    "1e5",
    "1.50",
    "2020-01-01",
    "true",
    "TRUE",
    " x ",
    "é\r\n\u2028",
]


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "jsonl", "jsonl.zst", "json", "parquet"])
@pytest.mark.parametrize("place", ["files", "folder"])
def test_cells_are_the_text_that_they_are(kind: str, place: str, tmp_path: Path) -> None:
    rows = [{"text": cell, "kind": cell} for cell in ODD_CELLS]
    path = tmp_path / f"train.{kind}"
    separator = "\t" if kind == "tsv" else ","
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows, indent=2))
    else:
        content = "".join(json.dumps(row) + "\n" for row in rows).encode() if "json" in kind else table(rows, separator)
        packed = {"gz": gzip.compress, "zst": zstandard.compress}.get(kind.rpartition(".")[2], bytes)
        path.write_bytes(packed(content))
    config = replace(CONFIG, fields=["text", "kind"])
    config = replace(config, files=[str(path)]) if place == "files" else replace(config, path=str(tmp_path))
    source = pin_dataset(config)
    assert [document.fields for document in load_documents(config, source)] == [(cell, cell) for cell in ODD_CELLS]
    chosen = load_documents(replace(config, where={"kind": "007"}), source)
    assert [document.fields for document in chosen] == [("007", "007")]


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("place", ["files", "folder"])
@pytest.mark.parametrize("sampling", list(Sampling))
def test_columns_that_nobody_named_may_hold_anything(kind: str, place: str, sampling: Sampling, tmp_path: Path) -> None:
    """A column is null for longer than `datasets` reads to guess its type, which is 10 MB; another mixes types."""
    long = "x" * 20_000
    rows: list[dict[str, Any]] = [{"text": f"{i} {long}", "meta": None, "n": 1} for i in range(600)]
    late = [{"text": f"late {i}", "meta": {"site": "a"}, "n": 2 if kind == "parquet" else "two"} for i in range(3)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train-0.parquet")
        pq.write_table(pa.Table.from_pylist(late), tmp_path / "train-1.parquet")
    elif kind == "json":
        (tmp_path / "train-0.json").write_text(json.dumps(rows + late))
    else:
        (tmp_path / "train-0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows + late))
    config = replace(CONFIG, sampling=sampling, documents=603)
    chosen = {"files": [f"{tmp_path}/*.{kind}"]} if place == "files" else {"path": str(tmp_path)}
    config = replace(config, **chosen)
    documents = load_documents(config, pin_dataset(config))
    assert sorted(document.fields[0] for document in documents) == sorted(row["text"] for row in rows + late)


def test_a_text_file_keeps_its_carriage_returns(tmp_path: Path) -> None:
    text = "one\r\ntwo\rthree\n\u2028\x0cfour\r\n"
    for name, content in (("a.txt", text.encode()), ("b.txt.gz", gzip.compress(b"\xef\xbb\xbf" + text.encode()))):
        (tmp_path / name).write_bytes(content)
    expected = [("a.txt", (text,)), ("b.txt.gz", (text,))]
    assert load(CONFIG, str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")) == expected
    config = replace(CONFIG, path=str(tmp_path))
    assert [(one.id, one.fields) for one in load_documents(config, pin_dataset(config))] == expected


def test_shapes_of_json(tmp_path: Path) -> None:
    shapes = {
        "lines.jsonl": '\ufeff\n{"text": "a"}\n\n{"text": "b", "x": [1, {}]}\r\n',
        "array.json": '\n[{"text": "a"},\n {"x": NaN, "text": "b"}]',
        "texts.json": '["a",\n"b"]',
    }
    for name, content in shapes.items():
        (tmp_path / name).write_text(content)
        assert load(CONFIG, str(tmp_path / name)) == [(f"{name}:0", ("a",)), (f"{name}:1", ("b",))]
    (tmp_path / "one.json").write_text('{\n  "text": "a",\n  "n": {}\n}\n')
    assert load(CONFIG, str(tmp_path / "one.json")) == [("one.json:0", ("a",))]


def test_a_field_that_appears_late_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"other": 1}\n' * 50 + '{"text": "a", "lang": "en"}\n')
    assert load(replace(CONFIG, where={"lang": "en"}), str(path)) == [("a.jsonl:50", ("a",))]


@pytest.mark.parametrize("sampling", list(Sampling))
@pytest.mark.parametrize("place", ["files", "folder"])
def test_a_draw_is_the_same_from_every_kind_of_file(place: str, sampling: Sampling, tmp_path: Path) -> None:
    """And the permutation of all rows is NumPy's, as in `datasets`."""
    rows = [{"text": f"text {i}", "kind": "ab"[i % 2]} for i in range(40)]
    drawn = []
    for kind in ("csv", "jsonl", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
        else:
            content = "".join(json.dumps(row) + "\n" for row in rows).encode() if kind == "jsonl" else table(rows, ",")
            (folder / f"train.{kind}").write_bytes(content)
        config = replace(CONFIG, documents=7, where={"kind": "a"}, sampling=sampling, seed=3)
        chosen = {"files": [f"{folder}/*"]} if place == "files" else {"path": str(folder)}
        config = replace(config, **chosen)
        drawn.append([document.fields[0] for document in load_documents(config, pin_dataset(config))])
    assert drawn[0] == drawn[1] == drawn[2]
    if sampling is Sampling.shuffle:
        assert drawn[0] == [f"text {2 * i}" for i in np.random.default_rng(3).permutation(20)[:7]]


def test_a_dataset_with_one_split_needs_no_split(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl")
    config = replace(CONFIG, path=str(tmp_path), split="")
    assert only_split(config, pin_dataset(config)) == "train"
    write(tmp_path, "test.jsonl")
    with pytest.raises(BadInput, match="Splits: train, test"):
        only_split(config, pin_dataset(config))


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_bytes("plain text".encode("utf-16-le"))  # valid UTF-8, with a NUL after each letter
    with pytest.raises(BadInput, match="UTF-8"):
        load(CONFIG, str(path))
