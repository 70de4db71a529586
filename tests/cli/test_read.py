"""Tests of the command `read`, which writes a page with the texts as the models read them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.cli.conftest import TEXTS
from tests.conftest import RunCommand
from tests.reporting.reading_pages import page_data


def test_read_writes_the_texts_and_the_ranks_of_all_documents(run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = run_in_store(f"read nano/* code --out {page}")
    assert (code, err) == (0, "")
    assert str(page) in out
    (token_set,) = page_data(page.read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k"]
    assert token_set["num_documents"] == len(TEXTS)
    for document in token_set["documents"]:
        assert "".join(document["texts"]) == TEXTS[int(document["id"])]
        assert document["scored"] == list(range(1, document["shown"]))
        assert all(len(model["rank"]) == len(document["scored"]) for model in document["models"])
        for model in document["models"]:
            assert not [number for number in model["top"] if token_set["strings"][number].startswith("id ")]


@pytest.mark.parametrize("words", ["nano-6k/code nano-15k/code", "nano/6k/code NANO-15K/code"])
def test_read_takes_two_measurements_as_compare_does(words: str, run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run_in_store(f"read {words} --out {page}")[0] == 0
    (token_set,) = page_data(page.read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k"]


@pytest.mark.parametrize("words", ["'' code", "nano/* ''"])
def test_read_refuses_an_empty_name(words: str, run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run_in_store(f"read {words} --out {page}")[0] == 2
    assert not page.exists()


def test_read_writes_two_datasets_to_one_page(run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run_in_store(f"read nano-6k * --out {page}")[0] == 0
    labels = [token_set["label"] for token_set in page_data(page.read_text())["sets"]]
    assert labels == ["nano on code", "nano on few"]


def test_read_shows_the_first_tokens_of_the_first_document_of_a_list(run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run_in_store(f"read nano/* code --document 7,3 --tokens 20 --out {page}")[0] == 0
    (document,) = page_data(page.read_text())["sets"][0]["documents"]
    assert (document["id"], document["shown"]) == ("7", 20)


@pytest.mark.parametrize(
    ("words", "unknown_word"),
    [("nano-7k code", "nano-7k"), ("nano/* cod", "cod"), ("nano/* code --document 77", "77")],
)
def test_read_names_a_model_dataset_or_document_that_does_not_exist(
    words: str, unknown_word: str, run_in_store: RunCommand, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    code, out, err = run_in_store(f"read {words} --out {page}")
    assert (code, out) == (2, "")
    assert unknown_word in err
    assert not page.exists()


def test_read_refuses_a_page_that_is_not_html(run_in_store: RunCommand) -> None:
    assert run_in_store("read nano/* code --out page.txt")[0] == 2


def test_compare_writes_a_reading_page_of_its_two_measurements(run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    assert run_in_store(f"compare nano-6k/code nano-15k/code --out {page}")[0] == 0
    assert 'href="two-read.html"' in page.read_text()
    (token_set,) = page_data((tmp_path / "two-read.html").read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k"]


@pytest.mark.parametrize(("name", "flag"), [("plain", ""), ("texts", "--texts")])
def test_export_puts_the_reading_page_into_the_bundle_only_with_texts(
    name: str, flag: str, run_in_store: RunCommand, tmp_path: Path
) -> None:
    bundle = tmp_path / f"{name}.zip"
    assert run_in_store(f"export {bundle} --dataset few {flag}")[0] == 0
    with zipfile.ZipFile(bundle) as opened:
        assert ("read.html" in opened.namelist()) is bool(flag)
    # The imported measurements can be read with and without the page.
    assert run_in_store(f"import {bundle} --experiment {name}")[0] == 0
    assert run_in_store(f"read * few --experiment {name} --out {tmp_path}/again.html")[0] == 0
