"""A cell's model and texts: what is refused before anything is loaded, and what is kept for the next cell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.sweep import resolve
from rbptrack.sweep.load import Loader
from tests.sweep.conftest import Configs


def test_a_tokenizer_larger_than_the_model_is_refused(configs: Configs, tmp_path: Path) -> None:
    folder = shutil.copytree(embedded("models/6k"), tmp_path / "broken")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 4000}))
    with pytest.raises(BadInput, match="4000"):
        Loader().check(resolve(*configs("model.path=broken")))


def test_sequences_longer_than_the_model_are_refused(configs: Configs) -> None:
    with pytest.raises(BadInput, match="513"):
        Loader().check(resolve(*configs("dataset.seq_len=513")))


def test_a_reference_with_another_tokenizer_is_refused(configs: Configs, tmp_path: Path) -> None:
    folder = shutil.copytree(embedded("tokenizer"), tmp_path / "other")
    said = json.loads((folder / "tokenizer.json").read_text())
    said["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(BadInput, match="normalizer"):
        Loader().check(resolve(*configs("reference=nano/15k", "reference.tokenizer=other")))


def test_the_last_model_and_the_texts_of_a_family_are_kept(configs: Configs) -> None:
    cells = [resolve(config) for config in configs("model=nano/6k,nano/15k", "dataset=pydocs,stdlib")]
    loader = Loader()
    loaded = [loader.load(cell) for cell in cells]
    models = [id(model) for model, _ in loaded]
    texts = [id(corpus) for _, corpus in loaded]
    assert models[0] == models[1] != models[2] == models[3]
    assert texts[0] == texts[2] != texts[1] == texts[3]


def test_the_reference_is_loaded_with_its_cell(configs: Configs) -> None:
    cell = resolve(*configs("reference=nano/15k", "candidates=tokenizer"))
    model, corpus = Loader().load(cell)
    assert model.reference is not None
    assert model.reference.name == "nano-15k"
    assert len(corpus.document_ids) == 3
