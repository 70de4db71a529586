"""Documents from local files: every kind, patterns, filters, and what is wrong with them."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.corpus.documents import Document, load_documents, only_split, selection_identity
from rbptrack.corpus.sequences import build_corpus
from rbptrack.corpus.tokens import token_texts, tokens_name
from rbptrack.sources import cache
from rbptrack.sources.pin import of_dataset
from tests.conftest import EMBEDDED
from tests.test_sequences import byte_tokenizer

# `datasets` leaves a CSV file open that it does not read to its end: its first row was wanted, or a row is damaged.
leaves_csv_open = pytest.mark.filterwarnings(r"ignore:unclosed file .*\.csv'>:ResourceWarning")
CONFIG = DatasetConfig(name="mine", split="train", seq_len=8)
ROWS: list[dict[str, Any]] = [
    {"text": "one line\nand another", "kind": "a", "meta": {"set": "x"}},
    {"text": "two — é", "kind": "b", "meta": {"set": "y"}},
    {"text": "three", "kind": "a", "meta": {"set": "x"}},
]


def write(folder: Path, name: str) -> str:
    path = folder / name
    lines = "\n".join(json.dumps(row) for row in ROWS) + "\n"
    if name.endswith(".jsonl"):
        path.write_text(lines)
    elif name.endswith(".zst"):
        path.write_bytes(zstandard.compress(lines.encode()))
    elif name.endswith(".csv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "kind"])
            writer.writeheader()
            writer.writerows({k: row[k] for k in ("text", "kind")} for row in ROWS)
    elif name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text(ROWS[0]["text"])
    return str(path)


def load(config: DatasetConfig, *files: str) -> list[tuple[str, tuple[str, ...]]]:
    config = replace(config, files=list(files))
    return [(d.id, d.fields) for d in load_documents(config, of_dataset(config))]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", pytest.param("a.csv", marks=leaves_csv_open), "a.parquet"])
def test_rows_are_documents(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    assert load(CONFIG, path) == [(f"{name}:{i}", (row["text"],)) for i, row in enumerate(ROWS)]


def test_a_text_file_is_one_document(tmp_path: Path) -> None:
    names = ["part10.txt", "part2.txt", "part1.txt"]
    for name in names:
        write(tmp_path, name)
    documents = load(CONFIG, f"{tmp_path}/*.txt")
    assert sorted(documents) == [(n, (ROWS[0]["text"],)) for n in sorted(names)]


def written(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        write(folder, name)
    return str(folder)


def test_how_texts_are_cut_is_part_of_what_is_measured(tmp_path: Path) -> None:
    """Whole files by `dataset.files`, lines by `dataset.path`: other documents, fingerprints and cached tokens."""
    folder = written(tmp_path / "texts", "a.txt", "b.txt")
    whole, lines = replace(CONFIG, files=[f"{folder}/*.txt"]), replace(CONFIG, path=folder)
    texts = [len(load_documents(config, of_dataset(config))) for config in (whole, lines)]
    assert texts == [2, 4]
    pinned, tokenizer = (of_dataset(whole), of_dataset(lines)), byte_tokenizer()
    assert pinned[0].identity == pinned[1].identity
    selections = [selection_identity(config, source) for config, source in zip((whole, lines), pinned, strict=True)]
    assert selections[0] != selections[1]
    names = {tokens_name(config, source, tokenizer) for config, source in zip((whole, lines), pinned, strict=True)}
    assert len(names) == 2
    rows = replace(CONFIG, path=written(tmp_path / "rows", "a.jsonl"))
    assert "cut" not in selections[0]  # nor what else was measured before: only folders of text read as lines move
    assert "cut" not in selection_identity(rows, of_dataset(rows))


def test_what_a_folder_of_several_kinds_leaves_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a.txt", "b.txt", "c.txt", "d.jsonl", "e.parquet", "README.md"]
    config = replace(CONFIG, path=written(tmp_path / "mixed", *names))
    assert len(load_documents(config, of_dataset(config))) == 6
    assert "only 3 .txt files can be read together. Left out: d.jsonl, e.parquet." in capsys.readouterr().out
    of_dataset(replace(CONFIG, path=written(tmp_path / "rows", "a.jsonl", "README.md")))
    assert capsys.readouterr().out == ""


def test_kinds_mix_and_where_they_lie_does_not_matter(tmp_path: Path) -> None:
    files = [write(tmp_path, name) for name in ("b.jsonl", "c.csv", "d.txt")]
    ids = [*(f"b.jsonl:{i}" for i in range(3)), *(f"c.csv:{i}" for i in range(3)), "d.txt"]
    assert [document for document, _ in load(CONFIG, *files)] == ids
    (tmp_path / "other").mkdir()
    here, there = (
        of_dataset(replace(CONFIG, files=[write(folder, "b.jsonl")])) for folder in (tmp_path, tmp_path / "other")
    )
    assert here.identity == there.identity
    assert here.files != there.files


@pytest.mark.parametrize("sampling", list(Sampling))
def test_filters_and_selection(sampling: Sampling, tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl")
    config = replace(CONFIG, sampling=sampling)
    assert [i for i, _ in load(replace(config, where={"kind": "a"}), path)] == ["a.jsonl:0", "a.jsonl:2"]
    assert [i for i, _ in load(replace(config, where={"meta.set": "y"}), path)] == ["a.jsonl:1"]
    assert [i for i, _ in load(replace(config, longer_than=5), path)] == ["a.jsonl:0", "a.jsonl:1"]
    assert [i for i, _ in load(replace(config, head=1, longer_than=3), path)] == ["a.jsonl:0"]
    chosen = load(replace(config, where={"kind": "a"}, documents=1), path)
    assert chosen == load(replace(config, where={"kind": "a"}, documents=1), path)
    assert len(chosen) == 1
    both = replace(config, fields=["kind", "text"], documents=5)
    assert {f for _, f in load(both, path)} == {(row["kind"], row["text"]) for row in ROWS}


@pytest.mark.parametrize(
    ("change", "file", "words"),
    [
        ({}, "nothing*.jsonl", "no file matches .*nothing"),
        ({}, "a.pdf", r"a\.pdf cannot be read\. Kinds of file: \.txt, \.jsonl"),
        ({"fields": ["body"]}, "a.jsonl", "no field body. Fields: text, kind, meta$"),
        ({"where": {"lang": "en"}}, "a.jsonl", "no field lang"),
        ({"where": {"kind": "z"}}, "a.jsonl", r"is empty: 0 documents.*where=\{'kind': 'z'\}"),
        ({}, "empty.jsonl", "dataset mine is empty: 2 documents"),
        ({"group": "kind.x.y"}, "a.jsonl", "kind.x.y: the field kind holds a str, which has no parts; give kind"),
        ({"group": "meta.nope"}, "a.jsonl", "dataset.group=meta.nope: no document of mine has this field"),
    ],
)
def test_what_is_wrong(change: dict[str, Any], file: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl")
    write(tmp_path, "a.pdf")
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n' * 2)
    with pytest.raises(BadInput, match=words):
        load(replace(CONFIG, **change), f"{tmp_path}/{file}")


def kept(made: str, name: str = f"tokens/{'a' * 64}.parquet") -> str:
    """What the cache holds, or what is made now."""

    def write(text: str, path: Path) -> None:
        path.write_text(text)

    return cache.cached(name, make=lambda: made, write=write, read=lambda data: str(data, "utf-8"))


def test_the_cache_makes_a_thing_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    assert [kept("first"), kept("second")] == ["first", "first"]
    assert cache.contents() == {"tokens": (1, 5 + 32)}
    (tmp_path / f"cache/tokens/{'a' * 64}.parquet").write_bytes(b"damaged")
    assert [kept("third"), kept("fourth")] == ["third", "third"]
    assert cache.clear()
    assert not (tmp_path / "cache").exists()
    (tmp_path / "cache").write_text("a file where the folder belongs: nothing can be written")
    assert [kept("fifth"), kept("sixth")] == ["fifth", "sixth"]


def test_clearing_the_cache_removes_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the variable names may hold anything: the working folder, a thesis."""
    thesis = {"thesis.tex": "all my work", "tokens/mine.parquet": "mine", "documents/ab.parquet": "mine", "x/y": "mine"}
    for name, text in thesis.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RBPTRACK_CACHE", ".")
    assert not cache.clear()  # nothing was cached here
    cache.remember("commits/models--a--b@main", "0" * 40)
    kept("x")
    assert (tmp_path / f"tokens/{'a' * 64}.parquet").exists()
    assert cache.recall("commits/models--a--b@main") == "0" * 40
    assert cache.clear()
    left = {p.relative_to(tmp_path).as_posix(): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert left == thesis
    assert not (tmp_path / "commits").exists()


LINES = "".join(json.dumps({"text": f"text number {i}", "n": i}) + "\n" for i in range(5000)).encode()
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty.jsonl": (b"", r"empty\.jsonl is empty"),
    "blank.jsonl": (b"\n\n", "has no field text"),
    "cut.jsonl.gz": (gzip.compress(LINES)[:5000], r"cut\.jsonl\.gz is damaged or not complete: Compressed file ended"),
    "cut.jsonl.zst": (zstandard.compress(LINES)[:3000], r"cut\.jsonl\.zst is damaged or not complete: the comp"),
    "plain.jsonl.zst": (LINES, r"plain\.jsonl\.zst is damaged or not complete"),
    "cut.jsonl": (LINES[:-10], r"cannot be read from .*cut\.jsonl: JSON parse error"),
    "latin.jsonl": (
        b'{"text": "caf\xe9"}\n',
        r"latin\.jsonl: it is not UTF-8 text .*; convert it, for example with iconv",
    ),
    "latin.txt": (b"caf\xe9", r"latin\.txt: it is not UTF-8 text"),
    "utf16.txt": ("a text".encode("utf-16-le"), r"utf16\.txt holds NUL bytes: it is not UTF-8 text; convert it"),
    "latin.csv": (b"text\ncaf\xe9\n", r"latin\.csv: it is not UTF-8 text"),
    "long.csv": (b"text,b\na," + b"9" * 24 + b"\n", r"long\.csv: "),
    "ragged.csv": (b"text,b\na,1\nb,2,3\n", r"ragged\.csv: Error tokenizing data"),
    "cut.parquet": (b"PAR1", r"cut\.parquet: Parquet file size is 4 bytes"),
    "list.jsonl": (b'{"text": ["a", "b"]}\n', "field text holds a list, not text; dataset.fields must name"),
    "dict.jsonl": (b'{"text": {"a": "b"}}\n', "field text holds a dict, not text"),
    "bool.jsonl": (b'{"text": true}\n', "field text holds a bool, not text"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=leaves_csv_open if name == "ragged.csv" else ()) for name in DAMAGED]
)
def test_damaged_files_are_refused_in_a_line(name: str, tmp_path: Path) -> None:
    content, words = DAMAGED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=words) as refused:
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


def test_numbers_are_no_text_and_documents_without_text_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.jsonl").write_bytes(LINES)
    with pytest.raises(BadInput, match="field n holds a int, not text"):
        load(replace(CONFIG, fields=["n"], head=2), str(tmp_path / "n.jsonl"))
    (tmp_path / "few.jsonl").write_text('{"text": "one"}\n{"text": null}\n{"text": ""}\n')
    load(CONFIG, str(tmp_path / "few.jsonl"))
    assert "2 of 3 documents without text in text" in capsys.readouterr().out


def test_a_document_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=24_000_000_000))
    texts = [Document("short", ("two words",)), Document("book", ("x" * 300_000_000,))]
    with pytest.raises(BadInput, match=r"document book has 300,000,000 characters: .*about 75 GB of memory, and 24 GB"):
        build_corpus(texts, byte_tokenizer(), CONFIG)


def test_the_text_of_a_token_keeps_its_space() -> None:
    """In vocabularies of bytes, and of SentencePiece, where decoding one id loses the space before a word."""
    byte_level = PreTrainedTokenizerFast(tokenizer_file=str(EMBEDDED / "models/15k/tokenizer.json"))
    ids = byte_level("def f(x): return the")["input_ids"]
    assert "".join(token_texts(byte_level, ids)) == "def f(x): return the"
    pieces = Tokenizer(WordLevel({"▁the": 0, "the": 1, "<0x0A>": 2, "<0xC3>": 3}, unk_token="the"))
    pieces.decoder = Metaspace()
    assert token_texts(PreTrainedTokenizerFast(tokenizer_object=pieces), [0, 1, 2, 3]) == [
        " the",
        "the",
        "\n",
        "\ufffd",
    ]


def test_a_dataset_with_one_split_needs_no_split(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl")
    config = replace(CONFIG, path=str(tmp_path), split="")
    assert only_split(config, of_dataset(config)) == "train"
    write(tmp_path, "test.jsonl")
    with pytest.raises(BadInput, match=r"mine has several splits: give dataset.split=... Splits: train, test"):
        only_split(config, of_dataset(config))
