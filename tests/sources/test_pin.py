"""Tests that models, tokenizers and datasets are identified by the hash of their files, not by their place."""

from __future__ import annotations

import ast
import json
import os
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import transformers

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus.documents import load_documents
from rbptrack.sources import dataset_files
from rbptrack.sources.model_files import TOKENIZER_FILES
from rbptrack.sources.pin import pin_dataset, pin_model, pin_tokenizer
from tests.tiny_models import model_config


def write_model_folder(folder: Path) -> Path:
    """Write a folder with a config, a tokenizer, and weights in two files, and return it."""
    (folder / "sub").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    write_index(folder, "a.safetensors", "sub/b.safetensors")
    for name in ("a.safetensors", "sub/b.safetensors"):
        (folder / name).write_bytes(name.encode())
    return folder


def write_index(folder: Path, *names: str) -> None:
    """Write the index of a model, which says that its weights are in these files."""
    weight_map = {f"tensor{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


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
    (folder / "sub/b.safetensors").write_bytes(b"\1")
    assert pin_model(model_config(folder)).identity != before


def test_pin_model_gives_another_identity_after_a_file_was_renamed(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    before = pin_model(model_config(folder)).identity
    (folder / "sub/b.safetensors").rename(folder / "c.safetensors")
    write_index(folder, "a.safetensors", "c.safetensors")
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


def test_pin_tokenizer_returns_the_folder_of_a_tokenizer(tmp_path: Path) -> None:
    tokenizer = write_model_folder(tmp_path / "tokenizer")
    assert pin_tokenizer(str(tokenizer)).location == str(tokenizer)


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
    assert [file.name for file in pinned.files] == ["b.jsonl"]


def write_single(folder: Path) -> Path:
    """Write a folder with a config, a tokenizer, and weights in one file, and return it."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def names_of(folder: Path, **changes: object) -> list[str]:
    return [file.name for file in pin_model(model_config(folder, **changes)).files]


def test_pin_model_lists_the_files_that_are_loaded_and_no_others(tmp_path: Path) -> None:
    folder = write_single(tmp_path / "model")
    (folder / "checkpoint-200").mkdir()
    for name in ("optimizer.pt", "pytorch_model.bin", "README.md", "modeling.py", "checkpoint-200/model.safetensors"):
        (folder / name).write_text("x")
    assert names_of(folder) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert names_of(write_model_folder(tmp_path / "split")) == [
        "a.safetensors",
        "config.json",
        "model.safetensors.index.json",
        "sub/b.safetensors",
        "tokenizer.json",
    ]


def test_pin_model_refuses_a_stale_file_of_weights_beside_an_index(tmp_path: Path) -> None:
    folder = write_single(tmp_path / "model")
    write_index(folder, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for number in (1, 2):
        (folder / f"model-0000{number}-of-00002.safetensors").write_bytes(b"weights")
    with pytest.raises(BadInput, match=r"two sets of weights"):
        names_of(folder)


def test_pin_model_accepts_an_index_of_the_only_file_of_weights(tmp_path: Path) -> None:
    folder = write_single(tmp_path / "model")
    write_index(folder, "model.safetensors")
    assert "model.safetensors" in names_of(folder)


@pytest.mark.parametrize(
    "name", ["../other/x.safetensors", "/x.safetensors", ".w.safetensors", ".x/y", "missing", "sub"]
)
def test_pin_model_refuses_an_index_of_a_file_that_is_not_in_its_folder(name: str, tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    (tmp_path / "other").mkdir()
    (folder / ".x").mkdir()
    for path in (tmp_path / "other/x.safetensors", folder / ".w.safetensors", folder / ".x/y"):
        path.write_bytes(b"weights")
    write_index(folder, "a.safetensors", name)
    with pytest.raises(BadInput):
        names_of(folder)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": []}']
)
def test_pin_model_refuses_a_damaged_index(content: str, tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(BadInput, match=r"index\.json"):
        names_of(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", {"fast_tokenizer_files": ["/etc/tokenizer.4.0.json"]}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../tokenizer.4.0.json"]}),
        ("special_tokens_map.json", {"vocab_file": "/etc/passwd"}),
    ],
)
def test_pin_model_refuses_settings_of_a_tokenizer_that_name_files_elsewhere(
    name: str, content: dict[str, object], tmp_path: Path
) -> None:
    folder = write_single(tmp_path / "model")
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(BadInput, match=name):
        names_of(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "merges.txt"])
def test_pin_model_refuses_a_fifo_in_place_of_a_file(name: str, tmp_path: Path) -> None:
    folder = write_single(tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(BadInput, match=name):
        names_of(folder)


def test_pin_model_hashes_nothing_of_a_folder_that_is_not_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.sources.pin.pin_file", lambda *_: pytest.fail("a file was hashed"))
    (tmp_path / "film.mkv").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"config\.json"):
        pin_model(model_config(tmp_path))


def test_tokenizer_files_include_every_file_that_transformers_knows() -> None:
    """The names are collected from the code of the installed version."""
    known: set[str] = set()
    for path in Path(str(transformers.__file__)).parent.rglob("tokenization_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                if "VOCAB_FILES_NAMES" in {target.id for target in node.targets if isinstance(target, ast.Name)}:
                    values = [value.value for value in node.value.values if isinstance(value, ast.Constant)]
                    known |= {str(value) for value in values}
    assert len(known) > 10
    assert not {name for name in known if not any(fnmatchcase(name, pattern) for pattern in TOKENIZER_FILES)}


def dataset_folder(folder: Path, readme: str = "") -> DatasetConfig:
    """Write a folder with two splits and a README.md, if it is given. Returns its configuration."""
    folder.mkdir()
    for name in ("train.jsonl", "test.jsonl"):
        (folder / name).write_text('{"text": "a"}\n')
    if readme:
        (folder / "README.md").write_text(f"---\n{readme}\n---\n")
    return DatasetConfig(name="d", path=str(folder), seq_len=8)


def test_pin_dataset_lists_the_files_of_the_configuration_that_is_read(tmp_path: Path) -> None:
    readme = "configs:\n- config_name: one\n  data_files: train.jsonl\n- config_name: two\n  data_files: test.jsonl"
    config = dataset_folder(tmp_path / "d", readme)
    (tmp_path / "d/notes.md").write_text("not read")
    pinned = pin_dataset(replace(config, config="two"))
    assert [file.name for file in pinned.files] == ["README.md", "test.jsonl"]


@pytest.mark.parametrize(
    "file", ["../secret.jsonl", "{root}/secret.jsonl", ".hidden/x.jsonl", "d/../../secret.jsonl", "~/secret.jsonl"]
)
def test_pin_dataset_refuses_a_readme_that_names_files_outside_of_its_folder(file: str, tmp_path: Path) -> None:
    file = file.format(root=tmp_path)
    config = dataset_folder(tmp_path / "d", f"configs:\n- config_name: default\n  data_files: {file}")
    (tmp_path / "d/.hidden").mkdir()
    for path in (tmp_path / "secret.jsonl", tmp_path / "d/.hidden/x.jsonl"):
        path.write_text('{"text": "secret"}\n')
    with pytest.raises(BadInput):
        pin_dataset(config)


@pytest.mark.parametrize("kind", ["fifo", "broken link", "link to a folder", "loop"])
def test_pin_dataset_refuses_a_folder_with_something_that_would_be_left_out(kind: str, tmp_path: Path) -> None:
    config = dataset_folder(tmp_path / "d")
    path = tmp_path / "d/more.jsonl"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to({"link to a folder": tmp_path, "loop": path}.get(kind, Path("/nowhere")))
    with pytest.raises(BadInput, match=r"more\.jsonl"):
        pin_dataset(config)


def test_pin_dataset_refuses_a_folder_in_place_of_its_readme(tmp_path: Path) -> None:
    config = dataset_folder(tmp_path / "d")
    (tmp_path / "d/README.md").mkdir()
    with pytest.raises(BadInput, match=r"README\.md"):
        pin_dataset(config)


def test_pin_dataset_refuses_the_home_folder_and_those_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = dataset_folder(tmp_path / "home")
    with pytest.raises(BadInput, match="home folder"):
        pin_dataset(replace(config, path="~"))
    with pytest.raises(BadInput, match="home folder"):
        pin_dataset(replace(config, path=str(tmp_path)))


def test_pin_dataset_refuses_a_folder_with_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_files, "_MAX_FILES", 1)
    with pytest.raises(BadInput, match="more than 1 files"):
        pin_dataset(dataset_folder(tmp_path / "d"))


def test_load_documents_refuses_a_file_that_was_added_after_the_folder_was_pinned(tmp_path: Path) -> None:
    config = replace(dataset_folder(tmp_path / "d"), split="train")
    pinned = pin_dataset(config)
    assert len(load_documents(config, pinned)) == 1
    (tmp_path / "d/train-2.jsonl").write_text('{"text": "new"}\n')
    with pytest.raises(BadInput, match=r"train-2\.jsonl"):
        load_documents(config, pinned)
