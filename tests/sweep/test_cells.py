"""Tests of cells: what the fingerprint depends on, the length of sequences, job files, and changed local files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.compose import compose
from rbptrack.config.paths import embedded
from rbptrack.sources.pin import Pinned
from rbptrack.sweep import Resolver, resolve
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.jobs import read_job, write_job
from tests.sweep.conftest import SMALL, Configs
from tests.tiny_models import edit_json


@pytest.fixture(scope="module")
def plain_fingerprint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The fingerprint of the cell of `SMALL`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("plain"))
        (plain,) = compose(SMALL)
        return resolve(plain).fingerprint


@pytest.mark.parametrize(
    "words",
    [
        ["model=nano/15k"],
        ["model.dtype=bfloat16"],
        ["dataset=stdlib"],
        ["dataset.documents=4"],
        ["dataset.seed=43"],
        ["dataset.sampling=shuffle"],
        ["dataset.head=10"],
        ["dataset.longer_than=100"],
        ["dataset.group=id"],
        ["dataset.seq_len=128"],
        ["dataset.context=16"],
        ["dataset.sequence=truncate"],
        ["dataset.sequence=pack"],
        ["candidates=tokenizer"],
        ["rank=strict"],
        ["reference=nano/15k"],
        ["reference=nano/15k", "reference.dtype=bfloat16"],
    ],
)
def test_fingerprint_changes_with_every_option_that_changes_a_number(
    words: list[str], configs: Configs, plain_fingerprint: str
) -> None:
    (changed,) = configs(*words)
    assert resolve(changed).fingerprint != plain_fingerprint


@pytest.mark.parametrize(
    "words",
    [
        ["engine.batch_tokens=64", "engine.chunk_tokens=16"],
        ["model.family=other", "model.size=7k", "model.seed=2", "model.checkpoint=last"],
        ["dataset.name=other"],
        ["model.device=cpu", "model.device_map=auto"],
        ["k=1,7"],
        ["sweep=mine"],
        ["tracking.experiment=other"],
        ["launch=gpus"],
        ["force=true"],
    ],
)
def test_fingerprint_does_not_depend_on_options_that_change_no_number(
    words: list[str], configs: Configs, plain_fingerprint: str
) -> None:
    (changed,) = configs(*words)
    assert resolve(changed).fingerprint == plain_fingerprint


def test_fingerprint_does_not_depend_on_the_folder_of_the_model(configs: Configs, tmp_path: Path) -> None:
    (plain,) = configs()
    shutil.copytree(embedded("models/6k"), tmp_path / "copy")
    (moved,) = configs("model.path=copy")
    assert resolve(moved).fingerprint == resolve(plain).fingerprint


def test_fingerprint_changes_with_the_files_of_the_model(configs: Configs, tmp_path: Path) -> None:
    (plain,) = configs()
    shutil.copytree(embedded("models/6k"), tmp_path / "copy")
    edit_json(tmp_path / "copy" / "config.json", note="changed")
    (changed,) = configs("model.path=copy")
    assert resolve(changed).fingerprint != resolve(plain).fingerprint


def tokenizer_rules(configs: Configs, *words: str) -> str:
    return str(resolve(*configs(*words)).description["tokenizer_rules"])


def test_tokenizer_rules_do_not_depend_on_the_folder_or_on_other_files_in_it(configs: Configs, tmp_path: Path) -> None:
    shutil.copytree(embedded("tokenizer"), tmp_path / "copy")
    (tmp_path / "copy" / "NOTES").write_text("of no importance")
    assert tokenizer_rules(configs, "model.tokenizer=copy") == tokenizer_rules(configs)


def test_tokenizer_rules_change_with_the_normalizer(configs: Configs, tmp_path: Path) -> None:
    shutil.copytree(embedded("tokenizer"), tmp_path / "other")
    edit_json(tmp_path / "other" / "tokenizer.json", normalizer={"type": "NFC"})
    assert tokenizer_rules(configs, "model.tokenizer=other") != tokenizer_rules(configs)


@pytest.fixture
def local_models(tmp_path: Path) -> str:
    """Two copies of an embedded model that read 64 tokens (`./short`) and 512 tokens (`./long`).

    The fixture returns the option that gives them a tokenizer.
    """
    for name, limit in (("short", 64), ("long", 512)):
        shutil.copytree(embedded("models/6k"), tmp_path / name)
        edit_json(tmp_path / name / "config.json", max_position_embeddings=limit)
    return f"model.tokenizer={embedded('tokenizer')}"


def test_resolve_shortens_sequences_to_the_models_maximum_with_a_note(configs: Configs, local_models: str) -> None:
    cell = resolve(*configs("model=./short", local_models))
    assert (cell.config.dataset.seq_len, cell.config.dataset.context) == (64, 8)
    (note,) = cell.notes
    assert "64" in note


def test_resolve_keeps_sequences_that_the_model_can_read(configs: Configs, local_models: str) -> None:
    cell = resolve(*configs("model=./long", local_models))
    assert (cell.config.dataset.seq_len, cell.config.dataset.context) == (256, 32)
    assert cell.notes == ()


def test_resolve_gives_shortened_and_explicitly_short_sequences_one_fingerprint(
    configs: Configs, local_models: str
) -> None:
    shortened = resolve(*configs("model=./short", local_models))
    explicit = resolve(*configs("model=./short", local_models, "dataset.seq_len=64", "dataset.context=8"))
    assert explicit.fingerprint == shortened.fingerprint
    assert not explicit.notes


def test_resolve_shortens_sequences_to_the_maximum_of_the_reference(configs: Configs, local_models: str) -> None:
    reference_tokenizer = f"reference.tokenizer={embedded('tokenizer')}"
    cell = resolve(*configs("model=./long", local_models, "reference=./short", reference_tokenizer))
    assert cell.config.dataset.seq_len == 64


def test_resolve_shortens_sequences_to_the_shorter_of_two_models_of_one_name(
    configs: Configs, local_models: str
) -> None:
    options = (f"reference.tokenizer={embedded('tokenizer')}", "model.family=m", "model.size=1", "reference.family=m")
    for model, reference in (("long", "short"), ("short", "long")):
        names = (f"model=./{model}", f"reference=./{reference}", "reference.size=1")
        cell = resolve(*configs(*names, local_models, *options))
        assert cell.config.dataset.seq_len == 64


def test_resolve_keeps_an_explicit_sequence_length_above_the_models_maximum(
    configs: Configs, local_models: str
) -> None:
    """Such a cell is refused later with a message about `dataset.seq_len`."""
    cell = resolve(*configs("model=./short", local_models, "dataset.seq_len=256"))
    assert cell.config.dataset.seq_len == 256


def test_fingerprint_depends_on_the_content_of_the_chat_template_and_not_on_its_name(
    configs: Configs, tmp_path: Path
) -> None:
    (tmp_path / "one.jinja").write_text("{{ messages }}")
    (tmp_path / "same.jinja").write_text("{{ messages }}")
    (tmp_path / "other.jinja").write_text("{{ messages }}!")
    fingerprints = {}
    for name in ("one", "same", "other"):
        (config,) = configs("dataset.chat=true", "dataset.fields=text,id", f"model.chat_template={name}.jinja")
        fingerprints[name] = resolve(config).fingerprint
    assert fingerprints["same"] == fingerprints["one"]
    assert fingerprints["other"] != fingerprints["one"]


def test_folder_of_a_cell_is_named_by_the_fingerprint(configs: Configs) -> None:
    cell = resolve(*configs("reference=nano/15k"))
    assert cell.folder.name == cell.fingerprint


def test_resolve_fills_in_the_only_split_of_a_dataset(configs: Configs) -> None:
    cell = resolve(*configs("dataset.split=''"))
    assert cell.config.dataset.split == "test"
    assert cell.fingerprint == resolve(*configs()).fingerprint


@pytest.fixture
def hub_cell(configs: Configs, monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A cell whose model and dataset are pinned to the commit `aaa...` on the Hub.

    Their branches have moved to the commit `bbb...` since then.
    """
    monkeypatch.setattr("rbptrack.sources.hub.find_commit", lambda *_: "a" * 40)
    words = ["model=org/tiny", "dataset=org/texts", "dataset.split=test", "dataset.seq_len=64", "dataset.context=8"]
    (config,) = compose([*words, f"model.tokenizer={embedded('tokenizer')}"])
    cell = Resolver().resolve(config)
    monkeypatch.setattr("rbptrack.sources.hub.find_commit", lambda *_: "b" * 40)
    return cell


def test_read_job_returns_the_cells_of_write_job_with_their_pins(
    hub_cell: Cell, configs: Configs, tmp_path: Path
) -> None:
    local_cell = resolve(*configs("reference=nano/15k", "dataset.where.lang=en", "candidates=tokenizer"))
    write_job(tmp_path / "0.json", [hub_cell, local_cell])
    cells = read_job(tmp_path / "0.json")
    assert cells == [hub_cell, local_cell]
    assert [cell.fingerprint for cell in cells] == [hub_cell.fingerprint, local_cell.fingerprint]
    assert cells[0].weights == Pinned("org/tiny", "a" * 40, f"org/tiny@{'a' * 40}", requested="main")


def test_files_of_a_cell_are_those_of_all_its_local_parts(configs: Configs, tmp_path: Path) -> None:
    shutil.copytree(embedded("models/6k"), tmp_path / "mine")
    cell = resolve(*configs("model=./mine", "reference=nano/15k", f"model.tokenizer={embedded('tokenizer')}"))
    folders = {file.path.parent for file in cell.files}
    assert folders >= {tmp_path / "mine", embedded("models/15k"), embedded("tokenizer")}
    assert {file.name for file in cell.files} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not {file.name for file in cell.files if file.path.parent == tmp_path / "mine"} & {"tokenizer.json"}


def test_files_of_a_cell_from_the_hub_are_only_its_tokenizer(hub_cell: Cell) -> None:
    assert {file.path.parent for file in hub_cell.files} == {embedded("tokenizer")}


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_read_job_refuses_a_file_that_is_not_a_job(content: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(BadInput, match=r"job\.json"):
        read_job(tmp_path / "job.json")


def test_read_job_refuses_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"job\.json"):
        read_job(tmp_path / "job.json")
