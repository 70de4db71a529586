"""Tests of documents from local files: kinds of files, filters, samples, and the errors of damaged files."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import warnings
from collections.abc import Callable, Iterator
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
from rbptrack.corpus.documents import (
    describe_empty_documents,
    find_only_split,
    load_documents,
    selection_identity,
    texts_hash,
)
from rbptrack.sources.pin import Pinned, pin_dataset

CONFIG = DatasetConfig(name="mine", split="train", seq_len=8)
ROWS: list[dict[str, Any]] = [
    {"text": "one line\nand another", "kind": "a", "meta": {"set": "x"}},
    {"text": "two — é", "kind": "b", "meta": {"set": "y"}},
    {"text": "three", "kind": "a", "meta": {"set": None}},
]


@pytest.fixture(scope="module", autouse=True)
def _close_files_of_earlier_tests() -> None:
    gc.collect()


@pytest.fixture(autouse=True)
def _close_files() -> Iterator[None]:
    """Close files that a test left open. Otherwise garbage collection would warn of them in a later test."""
    gc.freeze()  # older objects cost time, and none of them is garbage
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


def write_rows(folder: Path, name: str) -> str:
    """Write ROWS in the format that the name's ending says, and return the path. A .txt file holds the first text."""
    path = folder / name
    kind = name.lower()
    if kind.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
        return str(path)
    if ".json" in kind:
        content = json_lines(ROWS)
    elif ".csv" in kind or ".tsv" in kind:
        content = csv_bytes(ROWS, "\t" if ".tsv" in kind else ",")
    else:
        content = ROWS[0]["text"].encode("utf-8-sig")  # editors on Windows write this mark before a text
    if kind.endswith(".gz"):
        content = gzip.compress(content)
    elif kind.endswith(".zst"):
        content = zstandard.compress(content)
    path.write_bytes(content)
    return str(path)


def csv_bytes(rows: list[dict[str, Any]], separator: str) -> bytes:
    """Return the columns `text` and `kind` of some rows as CSV."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, ["text", "kind"], extrasaction="ignore", delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def load_files(config: DatasetConfig, *files: str) -> list[tuple[str, tuple[str, ...]]]:
    """Load the documents of some files. Returns ID and fields of each."""
    config = replace(config, files=list(files))
    return [(document.id, document.fields) for document in load_documents(config, pin_dataset(config))]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.jsonl.zst", "a.json.gz", "a.csv", "a.TSV", "a.csv.gz", "a.tsv.zst", "a.parquet"]
)
def test_load_documents_makes_a_document_of_each_row(name: str, tmp_path: Path) -> None:
    documents = load_files(CONFIG, write_rows(tmp_path, name))
    assert documents == [(f"{name}:{i}", (row["text"],)) for i, row in enumerate(ROWS)]


TEXT_FILES = ["part1.txt", "part2.txt", "part[3].txt"]  # the last name is a name and not a pattern


def test_load_documents_makes_a_document_of_each_text_file(tmp_path: Path) -> None:
    for name in reversed(TEXT_FILES):
        write_rows(tmp_path, name)
    assert load_files(CONFIG, f"{tmp_path}/*.txt") == [(name, (ROWS[0]["text"],)) for name in TEXT_FILES]


def test_load_documents_reads_the_text_files_of_a_folder_and_ignores_other_files(tmp_path: Path) -> None:
    for name in reversed(TEXT_FILES):
        write_rows(tmp_path, name)
    (tmp_path / "LICENSE").touch()
    config = replace(CONFIG, path=str(tmp_path))
    pinned = pin_dataset(config)
    assert find_only_split(config, pinned) == "train"
    documents = [(document.id, document.fields) for document in load_documents(config, pinned)]
    assert documents == [(name, (ROWS[0]["text"],)) for name in TEXT_FILES]


def test_load_documents_reads_files_of_several_kinds(tmp_path: Path) -> None:
    files = [write_rows(tmp_path, name) for name in ("b.jsonl", "c.csv", "d.txt")]
    ids = [*(f"b.jsonl:{i}" for i in range(3)), *(f"c.csv:{i}" for i in range(3)), "d.txt"]
    assert [id_ for id_, _ in load_files(CONFIG, *files)] == ids


def test_pin_dataset_gives_equal_files_in_two_folders_one_identity(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = pin_dataset(replace(CONFIG, files=[write_rows(tmp_path, "b.jsonl")]))
    second = pin_dataset(replace(CONFIG, files=[write_rows(tmp_path / "other", "b.jsonl")]))
    assert first.identity == second.identity
    assert first.files != second.files


@pytest.mark.parametrize("sampling", list(Sampling))
@pytest.mark.parametrize(
    ("changes", "row_numbers"),
    [
        ({"where": {"kind": "a"}}, ["0", "2"]),
        ({"where": {"meta.set": "y"}}, ["1"]),
        ({"longer_than": 5}, ["0", "1"]),
        ({"head": 1, "longer_than": 3}, ["0"]),
    ],
)
def test_load_documents_filters_by_fields_length_and_position(
    changes: dict[str, Any], row_numbers: list[str], sampling: Sampling, tmp_path: Path
) -> None:
    config = replace(CONFIG, sampling=sampling, **changes)
    documents = load_files(config, write_rows(tmp_path, "a.jsonl"))
    assert [id_.partition(":")[2] for id_, _ in documents] == row_numbers


@pytest.mark.parametrize("sampling", list(Sampling))
def test_load_documents_selects_a_number_of_the_filtered_documents(sampling: Sampling, tmp_path: Path) -> None:
    config = replace(CONFIG, sampling=sampling, where={"kind": "a"}, documents=1)
    assert len(load_files(config, write_rows(tmp_path, "a.jsonl"))) == 1


@pytest.mark.parametrize("sampling", list(Sampling))
def test_load_documents_returns_all_documents_if_more_are_asked_for(sampling: Sampling, tmp_path: Path) -> None:
    config = replace(CONFIG, sampling=sampling, fields=["kind", "text"], documents=5)
    documents = load_files(config, write_rows(tmp_path, "a.jsonl"))
    assert sorted(id_.partition(":")[2] for id_, _ in documents) == ["0", "1", "2"]


@pytest.mark.parametrize("sampling", list(Sampling))
def test_load_documents_reads_fields_in_the_order_of_the_config(sampling: Sampling, tmp_path: Path) -> None:
    config = replace(CONFIG, sampling=sampling, fields=["kind", "text"])
    assert load_files(config, write_rows(tmp_path, "a.jsonl"))[0][1] == (ROWS[0]["kind"], ROWS[0]["text"])


def parquet_dataset(folder: Path, columns: dict[str, list[object]]) -> Pinned:
    """Write columns to the Parquet file of the split `test` in a new folder. Returns the pinned folder."""
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "test.parquet")
    return pin_dataset(replace(CONFIG, path=str(folder)))


KEYS: list[object] = [f"k{i}" for i in range(50)]
SAMPLE = replace(CONFIG, split="test", id_field="key", documents=10)


@pytest.fixture
def fifty_documents(tmp_path: Path) -> Pinned:
    """A dataset of 50 documents with the IDs k0 to k49."""
    return parquet_dataset(tmp_path / "d", {"text": [f"text {i}" for i in range(50)], "key": KEYS})


def test_load_documents_draws_equal_samples_with_one_seed(fifty_documents: Pinned) -> None:
    first = load_documents(SAMPLE, fifty_documents)
    second = load_documents(SAMPLE, fifty_documents)
    assert first == second
    assert len({document.id for document in first}) == 10
    assert texts_hash(first) == texts_hash(second)


def test_load_documents_draws_another_sample_with_another_seed(fifty_documents: Pinned) -> None:
    first = load_documents(SAMPLE, fifty_documents)
    other = load_documents(replace(SAMPLE, seed=1), fifty_documents)
    assert {document.id for document in first} != {document.id for document in other}
    assert texts_hash(first) != texts_hash(other)


def test_texts_hash_of_conversations_differs_from_that_of_texts(fifty_documents: Pinned) -> None:
    documents = load_documents(SAMPLE, fifty_documents)
    assert texts_hash(documents) != texts_hash(documents, chat=True)


def test_load_documents_with_documents_0_returns_all_in_order(fifty_documents: Pinned) -> None:
    documents = load_documents(replace(SAMPLE, documents=0), fifty_documents)
    assert [document.id for document in documents] == KEYS


def test_selection_identity_contains_the_seed_only_if_documents_are_drawn(fifty_documents: Pinned) -> None:
    def identity(*, documents: int, seed: int) -> dict[str, object]:
        return selection_identity(replace(SAMPLE, documents=documents, seed=seed), fifty_documents)

    assert identity(documents=0, seed=1) == identity(documents=0, seed=2)
    assert identity(documents=9, seed=1) != identity(documents=9, seed=2)


def test_load_documents_makes_a_group_of_its_own_for_a_document_without_group(tmp_path: Path) -> None:
    """The three documents have the ID x. The group of a document without one must not be equal to the group x."""
    path = tmp_path / "a.jsonl"
    rows = [{"id": "x", "text": "a", "meta": {"set": name}} for name in ("x", None, "")]
    path.write_bytes(json_lines(rows))
    config = replace(CONFIG, files=[str(path)], group="meta.set", id_field="id")
    groups = [document.group for document in load_documents(config, pin_dataset(config))]
    assert groups == ["x", "document 1 (no meta.set)", "document 2 (no meta.set)"]


def test_load_documents_does_not_sleep_after_reading_local_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`datasets` sleeps 5 s after each selection, for connections to a Hub to end. Its setting must not be changed."""
    from datasets import config, iterable_dataset

    slept: list[float] = []  # seconds
    monkeypatch.setattr(iterable_dataset, "time", SimpleNamespace(sleep=slept.append))
    before = config.SLEEP_TIME_ON_THREADS_SHUTDOWN
    pinned = parquet_dataset(tmp_path / "d", {"text": [f"text {i}" for i in range(50)]})
    load_documents(replace(CONFIG, split="test", documents=10), pinned)
    assert 0 < sum(slept) < 1
    assert before == config.SLEEP_TIME_ON_THREADS_SHUTDOWN


@pytest.mark.parametrize(
    ("changes", "file", "part_of_message"),
    [
        ({}, "nothing*.jsonl", "nothing"),
        ({}, "a.pdf", r"a\.pdf"),
        ({"fields": ["body"]}, "a.jsonl", r"body.*: text, kind, meta\b"),
        ({"where": {"lang": "en"}}, "a.jsonl", "field lang"),
        ({"where": {"kind": "z"}}, "a.jsonl", "0 documents"),
        ({}, "empty.jsonl", "2 documents"),
        ({"group": "kind.x.y"}, "a.jsonl", "field kind"),
        ({"group": "meta.nope"}, "a.jsonl", r"dataset\.group=meta\.nope"),
    ],
)
def test_load_documents_names_the_wrong_file_field_or_filter(
    changes: dict[str, Any], file: str, part_of_message: str, tmp_path: Path
) -> None:
    write_rows(tmp_path, "a.jsonl")
    write_rows(tmp_path, "a.pdf")
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n' * 2)
    with pytest.raises(BadInput, match=part_of_message):
        load_files(replace(CONFIG, **changes), f"{tmp_path}/{file}")


LINES = json_lines([{"text": f"text number {i}", "n": i} for i in range(5000)])
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
def test_load_documents_refuses_a_damaged_file_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(BadInput) as caught:
        load_files(CONFIG, str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.fixture
def two_frames(tmp_path: Path) -> Path:
    """Write the 5,000 LINES to a .zst file of two compressed frames."""
    middle = len(LINES) // 2
    half = middle + LINES[middle:].index(b"\n") + 1
    path = tmp_path / "two.jsonl.zst"
    path.write_bytes(zstandard.compress(LINES[:half]) + zstandard.compress(LINES[half:]))
    return path


def test_load_documents_reads_all_compressed_frames_of_a_file(two_frames: Path) -> None:
    assert len(load_files(CONFIG, str(two_frames))) == 5000


def test_load_documents_refuses_a_file_if_its_last_frame_was_cut(two_frames: Path) -> None:
    two_frames.write_bytes(two_frames.read_bytes()[:-5])
    with pytest.raises(BadInput, match="not complete"):
        load_files(CONFIG, str(two_frames))


def test_documents_without_text_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text('{"text": "one"}\n{"text": null}\n{"text": ""}\n')
    config = replace(CONFIG, files=[str(path)])
    documents = load_documents(config, pin_dataset(config))
    assert len(documents) == 3
    note = describe_empty_documents(documents, CONFIG)
    assert "2 of 3 documents" in note
    assert "few.jsonl:1" in note


def test_a_row_without_the_field_is_a_document_without_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"title": "x"}\n{"title": "y", "text": "b"}\n{"text": "c"}\n')
    config = replace(CONFIG, files=[str(tmp_path / "a.jsonl")])
    documents = load_documents(config, pin_dataset(config))
    assert [document.fields for document in documents] == [("",), ("b",), ("c",)]
    assert "1 of 3" in describe_empty_documents(documents, config)


def test_a_row_without_the_id_field_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"name": "x", "text": "a"}\n{"text": "b"}\n')
    config = replace(CONFIG, files=[str(tmp_path / "a.jsonl")], id_field="name")
    with pytest.raises(BadInput, match=r"a\.jsonl:1"):
        load_documents(config, pin_dataset(config))


def test_load_documents_refuses_a_file_that_is_gone_and_a_damaged_archive(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    config = replace(CONFIG, files=[str(tmp_path / "a.jsonl")])
    pinned = pin_dataset(config)
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(BadInput, match=r"a\.jsonl"):
        load_documents(config, pinned)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.zip").write_bytes(b"PK\x03\x04" + bytes(60))
    config = replace(CONFIG, path=str(tmp_path / "folder"), files=[], split="train")
    with pytest.raises(BadInput, match="cannot be read"):
        load_documents(config, pin_dataset(config))


def test_a_row_of_csv_without_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("id,text\n1,one\n2,\n")
    config = replace(CONFIG, files=[str(path)])
    documents = load_documents(config, pin_dataset(config))
    assert len(documents) == 2
    assert "few.csv:1" in describe_empty_documents(documents, CONFIG)
    assert not describe_empty_documents(documents[:1], CONFIG)


# Cells that a reader of tables could convert to a missing value, a number, a date or a truth value.
CONVERTIBLE_CELLS = [
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
def test_load_documents_does_not_convert_texts(kind: str, place: str, tmp_path: Path) -> None:
    rows = [{"text": cell, "kind": cell} for cell in CONVERTIBLE_CELLS]
    path = tmp_path / f"train.{kind}"
    separator = "\t" if kind == "tsv" else ","
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows, indent=2))
    else:
        content = json_lines(rows) if "json" in kind else csv_bytes(rows, separator)
        compressions: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.compress}
        compress = compressions.get(kind.rpartition(".")[2], bytes)
        path.write_bytes(compress(content))
    config = replace(CONFIG, fields=["text", "kind"])
    config = replace(config, files=[str(path)]) if place == "files" else replace(config, path=str(tmp_path))
    pinned = pin_dataset(config)
    documents = load_documents(config, pinned)
    assert [document.fields for document in documents] == [(cell, cell) for cell in CONVERTIBLE_CELLS]
    filtered = load_documents(replace(config, where={"kind": "007"}), pinned)
    assert [document.fields for document in filtered] == [("007", "007")]


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("place", ["files", "folder"])
@pytest.mark.parametrize("sampling", list(Sampling))
def test_load_documents_accepts_any_values_in_columns_that_the_config_does_not_name(
    kind: str, place: str, sampling: Sampling, tmp_path: Path
) -> None:
    """The column `meta` is null in the first 12 MB; `datasets` reads 10 MB to guess a type. The column `n` mixes types.

    A Parquet file cannot mix types in a column, so its column `n` does not.
    """
    long = "x" * 20_000
    rows: list[dict[str, Any]] = [{"text": f"{i} {long}", "meta": None, "n": 1} for i in range(600)]
    late = [{"text": f"late {i}", "meta": {"site": "a"}, "n": 2 if kind == "parquet" else "two"} for i in range(3)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train-0.parquet")
        pq.write_table(pa.Table.from_pylist(late), tmp_path / "train-1.parquet")
    elif kind == "json":
        (tmp_path / "train-0.json").write_text(json.dumps(rows + late))
    else:
        (tmp_path / "train-0.jsonl").write_bytes(json_lines(rows + late))
    config = replace(CONFIG, sampling=sampling, documents=603)
    if place == "files":
        config = replace(config, files=[f"{tmp_path}/*.{kind}"])
    else:
        config = replace(config, path=str(tmp_path))
    documents = load_documents(config, pin_dataset(config))
    assert sorted(document.fields[0] for document in documents) == sorted(row["text"] for row in rows + late)


@pytest.mark.parametrize("place", ["files", "folder"])
def test_load_documents_keeps_the_line_ends_of_a_text_file(place: str, tmp_path: Path) -> None:
    text = "one\r\ntwo\rthree\n\u2028\x0cfour\r\n"
    plain = tmp_path / "a.txt"
    plain.write_bytes(text.encode())
    compressed = tmp_path / "b.txt.gz"
    compressed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))  # with a byte order mark
    if place == "files":
        config = replace(CONFIG, files=[str(plain), str(compressed)])
    else:
        config = replace(CONFIG, path=str(tmp_path))
    documents = [(document.id, document.fields) for document in load_documents(config, pin_dataset(config))]
    assert documents == [("a.txt", (text,)), ("b.txt.gz", (text,))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.jsonl", '\ufeff\n{"text": "a"}\n\n{"text": "b", "x": [1, {}]}\r\n'),
        ("array.json", '\n[{"text": "a"},\n {"x": NaN, "text": "b"}]'),
        ("texts.json", '["a",\n"b"]'),
    ],
)
def test_load_documents_reads_json_as_lines_as_an_array_and_as_texts(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert load_files(CONFIG, str(tmp_path / name)) == [(f"{name}:0", ("a",)), (f"{name}:1", ("b",))]


def test_load_documents_reads_a_json_file_of_one_object_as_one_document(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{\n  "text": "a",\n  "n": {}\n}\n')
    assert load_files(CONFIG, str(tmp_path / "one.json")) == [("one.json:0", ("a",))]


def test_load_documents_finds_a_field_that_only_the_last_row_has(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"other": 1}\n' * 50 + '{"text": "a", "lang": "en"}\n')
    assert load_files(replace(CONFIG, where={"lang": "en"}), str(path)) == [("a.jsonl:50", ("a",))]


@pytest.mark.parametrize(
    ("value", "typed"), [(True, "true"), (True, "True"), (1.1, "1.10"), (1.1, "1.1"), ("1.10", "1.10"), (7, "7")]
)
def test_load_documents_filters_by_a_value_that_is_not_a_text(value: object, typed: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines([{"text": "a", "kind": value}, {"text": "b", "kind": None}]))
    assert load_files(replace(CONFIG, where={"kind": typed}), str(tmp_path / "a.jsonl")) == [("a.jsonl:0", ("a",))]


def test_load_documents_does_not_take_a_missing_value_for_the_text_none(tmp_path: Path) -> None:
    rows = [{"text": "a", "kind": None}, {"text": "b", "kind": "None"}, {"text": "c"}]
    (tmp_path / "a.jsonl").write_bytes(json_lines(rows))
    config = replace(CONFIG, where={"kind": "None"})
    assert load_files(config, str(tmp_path / "a.jsonl")) == [("a.jsonl:1", ("b",))]


@pytest.mark.parametrize("sampling", list(Sampling))
@pytest.mark.parametrize("place", ["files", "folder"])
def test_load_documents_draws_equal_samples_from_all_kinds_of_files(
    place: str, sampling: Sampling, tmp_path: Path
) -> None:
    """With `Sampling.shuffle`, the order is NumPy's permutation of the filtered rows, as in `datasets`."""
    rows = [{"text": f"text {i}", "kind": "ab"[i % 2]} for i in range(40)]
    samples = []
    for kind in ("csv", "jsonl", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
        else:
            content = json_lines(rows) if kind == "jsonl" else csv_bytes(rows, ",")
            (folder / f"train.{kind}").write_bytes(content)
        config = replace(CONFIG, documents=7, where={"kind": "a"}, sampling=sampling, seed=3)
        if place == "files":
            config = replace(config, files=[f"{folder}/*"])
        else:
            config = replace(config, path=str(folder))
        samples.append([document.fields[0] for document in load_documents(config, pin_dataset(config))])
    assert samples[0] == samples[1] == samples[2]
    if sampling is Sampling.shuffle:
        assert samples[0] == [f"text {2 * i}" for i in np.random.default_rng(3).permutation(20)[:7]]


def test_find_only_split_returns_the_split_of_a_dataset_with_one(tmp_path: Path) -> None:
    write_rows(tmp_path, "train.jsonl")
    config = replace(CONFIG, path=str(tmp_path), split="")
    assert find_only_split(config, pin_dataset(config)) == "train"


def test_find_only_split_lists_the_splits_of_a_dataset_with_several(tmp_path: Path) -> None:
    write_rows(tmp_path, "train.jsonl")
    write_rows(tmp_path, "test.jsonl")
    config = replace(CONFIG, path=str(tmp_path), split="")
    with pytest.raises(BadInput, match="train, test"):
        find_only_split(config, pin_dataset(config))


def test_load_documents_refuses_a_text_file_in_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_bytes("plain text".encode("utf-16-le"))  # valid UTF-8, with a NUL after each letter
    with pytest.raises(BadInput, match="UTF-8"):
        load_files(CONFIG, str(path))
