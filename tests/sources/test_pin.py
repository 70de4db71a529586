"""What is measured is pinned: files by their hash, wherever they lie; damaged and strange ones are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig, ModelConfig
from rbptrack.sources.pin import pin_dataset, pin_model, pin_tokenizer


def model(folder: Path, **changes: str) -> ModelConfig:
    return ModelConfig(family="toy", size="1k", path=str(folder), **changes)  # type: ignore[arg-type]


def filled(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub/weights").write_bytes(b"\0")
    return folder


def test_a_folder_is_its_files(tmp_path: Path) -> None:
    one = filled(tmp_path / "one")
    other = filled(tmp_path / "other")
    source = pin_model(model(one))
    assert source.identity == pin_model(model(other)).identity
    assert (source.location, source.revision) == (str(one), None)
    (one / ".git").mkdir()
    (one / ".git/index").write_text("hidden")
    (one / ".gitignore").write_text("hidden")
    assert pin_model(model(one)).identity == source.identity
    (one / "sub/weights").write_bytes(b"\1")
    assert pin_model(model(one)).identity != source.identity
    (other / "sub/weights").rename(other / "sub/renamed")
    assert pin_model(model(other)).identity != source.identity


def test_a_gguf_file_is_that_file_alone(tmp_path: Path) -> None:
    folder = filled(tmp_path / "one")
    (folder / "a.gguf").write_bytes(b"gguf")
    source = pin_model(model(folder, gguf="a.gguf"))
    (folder / "config.json").write_text("other")
    assert pin_model(model(folder, gguf="a.gguf")) == source
    assert source.gguf == "a.gguf"
    with pytest.raises(BadInput):
        pin_model(model(folder, gguf="b.gguf"))


def test_a_tokenizer_is_the_models_own_or_a_folder(tmp_path: Path) -> None:
    own = pin_model(model(filled(tmp_path / "one")))
    assert pin_tokenizer(model(tmp_path / "one"), own) is own
    other = filled(tmp_path / "other")
    assert pin_tokenizer(model(tmp_path / "one", tokenizer=str(other)), own).location == str(other)


@pytest.mark.parametrize("name", ["nothing", "file", "zero\0byte"])
def test_a_folder_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        pin_model(model(tmp_path / name))
    with pytest.raises(BadInput):
        pin_dataset(DatasetConfig(name="d", path=str(tmp_path / name), seq_len=8))


def test_texts_are_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    for pattern in ("*.jsonl", "*.txt"):
        with pytest.raises(BadInput):
            pin_dataset(DatasetConfig(name="d", files=[f"{tmp_path}/{pattern}"], seq_len=8))


def test_a_folder_with_rows_stays_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.jsonl").write_text("{}")
    source = pin_dataset(DatasetConfig(name="d", path=str(tmp_path), seq_len=8))
    assert source.location == str(tmp_path)
    assert not source.files
