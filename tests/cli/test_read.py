"""`read`: a page of the texts of a store, by the whole command."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.cli.conftest import TEXTS
from tests.conftest import RunCommand
from tests.reporting.test_reading import data_of


def test_the_page_holds_the_texts_as_the_models_read_them(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = on_store(f"read nano/* code --out {page}")
    assert (code, err) == (0, "")
    assert str(page) in out
    (token_set,) = data_of(page.read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k"]
    assert token_set["of"] == len(TEXTS)
    for document in token_set["documents"]:
        assert "".join(document["texts"]) == TEXTS[int(document["id"])]
        assert document["scored"] == list(range(1, document["shown"]))
        assert all(len(model["rank"]) == len(document["scored"]) for model in document["models"])
        for model in document["models"]:
            assert not [place for place in model["top"] if token_set["strings"][place].startswith("id ")]


def test_two_datasets_are_two_sets_on_one_page(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert on_store(f"read nano-6k * --out {page}")[0] == 0
    labels = [token_set["label"] for token_set in data_of(page.read_text())["sets"]]
    assert labels == ["nano on code", "nano on few"]


def test_documents_and_tokens_that_are_asked_for(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert on_store(f"read nano/* code --document 7,3 --tokens 20 --out {page}")[0] == 0
    (document,) = data_of(page.read_text())["sets"][0]["documents"]
    assert (document["id"], document["shown"]) == ("7", 20)


def test_what_is_not_there_is_named(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for words in ("nano-7k code", "nano/* cod", "nano/* code --document 77"):
        code, out, err = on_store(f"read {words} --out {page}")
        assert (code, out) == (2, "")
        assert words.split()[0 if "7k" in words else -1].strip("'") in err
    assert on_store("read nano/* code --out page.txt")[0] == 2
    assert not page.exists()


def test_a_comparison_has_a_reading_page_of_its_two_measurements(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    assert on_store(f"compare nano-6k/code nano-15k/code --out {page}")[0] == 0
    assert 'href="two-read.html"' in page.read_text()
    (token_set,) = data_of((tmp_path / "two-read.html").read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k"]


def test_a_bundle_holds_the_reading_page_only_if_asked(on_store: RunCommand, tmp_path: Path) -> None:
    for name, flag in (("plain.zip", ""), ("texts.zip", "--texts")):
        bundle = tmp_path / name
        assert on_store(f"export {bundle} --dataset few {flag}")[0] == 0
        with zipfile.ZipFile(bundle) as opened:
            assert ("read.html" in opened.namelist()) is bool(flag)
        assert on_store(f"import {bundle} --experiment {name.partition('.')[0]}")[0] == 0
        assert on_store(f"read * few --experiment {name.partition('.')[0]} --out {tmp_path}/again.html")[0] == 0
