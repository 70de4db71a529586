"""Tests of `Loader`: what it refuses before it loads weights, and what it keeps in memory for the next cell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.sweep import resolve
from rbptrack.sweep.load import Loader
from tests.sweep.conftest import Configs
from tests.tiny_models import edit_json


def test_check_refuses_a_tokenizer_with_more_entries_than_the_model(configs: Configs, tmp_path: Path) -> None:
    folder = shutil.copytree(embedded("models/6k"), tmp_path / "broken")
    edit_json(folder / "config.json", vocab_size=4000)  # the tokenizer has 4,096 entries
    with pytest.raises(BadInput, match="4000"):
        Loader().check(resolve(*configs("model.path=broken")))


def test_check_refuses_sequences_longer_than_the_model_can_read(configs: Configs) -> None:
    with pytest.raises(BadInput, match="513"):
        Loader().check(resolve(*configs("dataset.seq_len=513")))


def test_check_refuses_a_reference_with_another_tokenizer(configs: Configs, tmp_path: Path) -> None:
    folder = shutil.copytree(embedded("tokenizer"), tmp_path / "other")
    edit_json(folder / "tokenizer.json", normalizer={"type": "Lowercase"})
    with pytest.raises(BadInput, match="normalizer"):
        Loader().check(resolve(*configs("reference=nano/15k", "reference.tokenizer=other")))


def test_load_keeps_the_last_model_and_the_texts_of_a_family(configs: Configs) -> None:
    cells = [resolve(config) for config in configs("model=nano/6k,nano/15k", "dataset=pydocs,stdlib")]
    loader = Loader()
    (model_6k, pydocs), (model_6k_again, stdlib), (model_15k, pydocs_again), (model_15k_again, stdlib_again) = [
        loader.load(cell) for cell in cells
    ]
    assert model_6k is model_6k_again
    assert model_15k is model_15k_again
    assert model_6k is not model_15k
    assert pydocs is pydocs_again
    assert stdlib is stdlib_again
    assert pydocs is not stdlib


def test_load_loads_the_reference_with_the_model(configs: Configs) -> None:
    cell = resolve(*configs("reference=nano/15k", "candidates=tokenizer"))
    model, corpus = Loader().load(cell)
    assert model.reference is not None
    assert model.reference.name == "nano-15k"
    assert len(corpus.document_ids) == 3


def test_prepared_texts_are_those_of_the_next_cell(configs: Configs) -> None:
    this_cell, next_cell = (resolve(config) for config in configs("model=nano/6k", "dataset=pydocs,stdlib"))
    loader = Loader()
    loader.load(this_cell)
    loader.prepare(next_cell)
    _, corpus = loader.load(next_cell)
    _, expected = Loader().load(next_cell)
    assert corpus.token.tolist() == expected.token.tolist()


def test_errors_of_a_cell_that_is_prepared_are_raised_when_it_is_loaded(configs: Configs, tmp_path: Path) -> None:
    folder = shutil.copytree(embedded("models/6k"), tmp_path / "broken")
    this_cell, next_cell = resolve(*configs()), resolve(*configs("model.path=broken"))
    loader = Loader()
    loader.load(this_cell)
    (folder / "model.safetensors").unlink()
    loader.prepare(next_cell)
    with pytest.raises(BadInput):
        loader.load(next_cell)
