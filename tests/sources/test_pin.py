"""Tests that models, tokenizers and datasets are identified by the hash of their files, not by their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig
from rbptrack.sources.pin import pin_dataset, pin_model, pin_tokenizer
from tests.tiny_models import model_config


def write_model_folder(folder: Path) -> Path:
    """Write a folder with two files, config.json and sub/weights, and return it."""
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub/weights").write_bytes(b"\0")
    return folder


def test_pin_model_records_the_folder(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    pinned = pin_model(model_config(folder))
    assert (pinned.location, pinned.revision) == (str(folder), None)


def test_pin_model_gives_folders_with_equal_files_one_identity(tmp_path: Path) -> None:
    first = write_model_folder(tmp_path / "first")
    second = write_model_folder(tmp_path / "second")
    assert pin_model(model_config(first)).identity == pin_model(model_config(second)).identity


def test_pin_model_ignores_hidden_files(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    before = pin_model(model_config(folder)).identity
    (folder / ".git").mkdir()
    (folder / ".git/index").write_text("hidden")
    (folder / ".gitignore").write_text("hidden")
    assert pin_model(model_config(folder)).identity == before


def test_pin_model_gives_another_identity_after_a_change_of_a_file(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    before = pin_model(model_config(folder)).identity
    (folder / "sub/weights").write_bytes(b"\1")
    assert pin_model(model_config(folder)).identity != before


def test_pin_model_gives_another_identity_after_a_file_was_renamed(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    before = pin_model(model_config(folder)).identity
    (folder / "sub/weights").rename(folder / "sub/renamed")
    assert pin_model(model_config(folder)).identity != before


def test_pin_model_identifies_a_gguf_file_without_the_rest_of_its_folder(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    (folder / "a.gguf").write_bytes(b"gguf")
    pinned = pin_model(model_config(folder, gguf="a.gguf"))
    (folder / "config.json").write_text("other")
    assert pin_model(model_config(folder, gguf="a.gguf")) == pinned
    assert pinned.gguf == "a.gguf"


def test_pin_model_refuses_a_gguf_file_that_does_not_exist(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    with pytest.raises(BadInput):
        pin_model(model_config(folder, gguf="b.gguf"))


def test_pin_tokenizer_returns_the_model_if_no_tokenizer_is_named(tmp_path: Path) -> None:
    config = model_config(write_model_folder(tmp_path / "model"))
    pinned_model = pin_model(config)
    assert pin_tokenizer(config, pinned_model) is pinned_model


def test_pin_tokenizer_returns_the_folder_of_a_tokenizer_that_is_named(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    pinned_model = pin_model(model_config(folder))
    tokenizer = write_model_folder(tmp_path / "tokenizer")
    config = model_config(folder, tokenizer=str(tokenizer))
    assert pin_tokenizer(config, pinned_model).location == str(tokenizer)


@pytest.mark.parametrize("name", ["nothing", "file", "zero\0byte"])
def test_pin_model_refuses_a_path_that_is_not_a_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        pin_model(model_config(tmp_path / name))


@pytest.mark.parametrize("name", ["nothing", "file", "zero\0byte"])
def test_pin_dataset_refuses_a_path_that_is_not_a_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        pin_dataset(DatasetConfig(name="d", path=str(tmp_path / name), seq_len=8))


@pytest.mark.parametrize("pattern", ["*.jsonl", "*.txt"])
def test_pin_dataset_refuses_a_pattern_that_matches_no_regular_file(pattern: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    with pytest.raises(BadInput):
        pin_dataset(DatasetConfig(name="d", files=[f"{tmp_path}/{pattern}"], seq_len=8))


def test_pin_dataset_records_a_folder_with_rows_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.jsonl").write_text("{}")
    pinned = pin_dataset(DatasetConfig(name="d", path=str(tmp_path), seq_len=8))
    assert pinned.location == str(tmp_path)
    assert not pinned.files
