"""What a fingerprint tells apart, and what it does not; pins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.compose import compose
from rbptrack.config.paths import embedded
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.sources.pin import Pinned
from rbptrack.sweep import Resolver, resolve
from rbptrack.sweep.cells import check_unchanged, read_job, write_job
from tests.sweep.conftest import Configs


@pytest.mark.parametrize(
    "words",
    [
        ["model=nano/15k"],
        ["model.family=other"],
        ["model.size=7k"],
        ["model.seed=2"],
        ["model.dtype=bfloat16"],
        ["model.tf32=true"],
        ["dataset=stdlib"],
        ["dataset.name=other"],
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
def test_what_moves_a_number_moves_the_fingerprint(words: list[str], configs: Configs) -> None:
    (plain,) = configs()
    (other,) = configs(*words)
    assert resolve(other).fingerprint != resolve(plain).fingerprint


@pytest.mark.parametrize(
    "words",
    [
        ["engine.batch_tokens=64", "engine.chunk_tokens=16"],
        ["model.device=cpu", "model.device_map=auto"],
        ["k=1,7"],
        ["sweep=mine"],
        ["tracking.experiment=other"],
        ["launch=gpus"],
        ["force=true"],
    ],
)
def test_what_moves_no_number_leaves_it(words: list[str], configs: Configs) -> None:
    (plain,) = configs()
    (other,) = configs(*words)
    assert resolve(other).fingerprint == resolve(plain).fingerprint


def test_weights_and_texts_count_wherever_they_lie(configs: Configs, tmp_path: Path) -> None:
    (plain,) = configs()
    shutil.copytree(embedded("models/6k"), tmp_path / "copy")
    (moved,) = configs("model.path=copy")
    assert resolve(moved).fingerprint == resolve(plain).fingerprint
    config = json.loads((tmp_path / "copy/config.json").read_text())
    (tmp_path / "copy/config.json").write_text(json.dumps(config | {"note": "changed"}))
    assert resolve(moved).fingerprint != resolve(plain).fingerprint


def test_rules_of_the_tokenizer_are_part_of_the_identity(configs: Configs, tmp_path: Path) -> None:
    """Whatever the name of its folder; what lies beside it does not count."""

    def rules(name: str) -> str:
        return str(resolve(*configs(f"model.tokenizer={name}")).identity["tokenizer_rules"])

    for name in ("copy", "other"):
        shutil.copytree(embedded("tokenizer"), tmp_path / name)
    (tmp_path / "copy/NOTES").write_text("of no importance")
    file = tmp_path / "other/tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"normalizer": {"type": "NFC"}}))
    own = str(resolve(*configs()).identity["tokenizer_rules"])
    assert rules("copy") == own
    assert rules("other") != own


def test_sequences_are_as_long_as_the_model_reads(configs: Configs, tmp_path: Path) -> None:
    """If the user names no length: a model that reads fewer tokens is given shorter sequences, and a note says so."""
    for name, limit in (("short", 64), ("long", 512)):
        shutil.copytree(embedded("models/6k"), tmp_path / name)
        path = tmp_path / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": limit}))
    tokenizer = f"model.tokenizer={embedded('tokenizer')}"
    short, long, explicit = (
        resolve(*configs(f"model=./{name}", tokenizer, *words))
        for name, words in (("short", ()), ("long", ()), ("short", ("dataset.seq_len=64", "dataset.context=8")))
    )
    assert (long.config.dataset.seq_len, long.config.dataset.context, long.notes) == (256, 32, ())
    assert (short.config.dataset.seq_len, short.config.dataset.context) == (64, 8)
    assert "64" in short.notes[0]
    assert explicit.fingerprint == short.fingerprint
    assert not explicit.notes
    with_reference = resolve(
        *configs("model=./long", tokenizer, "reference=./short", f"reference.tokenizer={embedded('tokenizer')}")
    )
    assert with_reference.config.dataset.seq_len == 64
    (refused,) = configs("model=./short", tokenizer, "dataset.seq_len=256")
    assert resolve(refused).config.dataset.seq_len == 256


def test_a_chat_template_counts_by_its_content(configs: Configs, tmp_path: Path) -> None:
    (tmp_path / "one.jinja").write_text("{{ messages }}")
    (tmp_path / "same.jinja").write_text("{{ messages }}")
    (tmp_path / "other.jinja").write_text("{{ messages }}!")
    chat = ("dataset.chat=true", "dataset.fields=text,id")
    found = [
        resolve(*configs(*chat, f"model.chat_template={name}.jinja")).fingerprint for name in ("one", "same", "other")
    ]
    assert found[0] == found[1] != found[2]


def test_the_identity_is_plain_data_whose_hash_is_the_fingerprint(configs: Configs) -> None:
    cell = resolve(*configs("reference=nano/15k"))
    assert fingerprint(json.loads(json.dumps(cell.identity))) == cell.fingerprint
    assert cell.folder.name == cell.fingerprint


def test_a_split_that_is_not_named_is_the_only_one(configs: Configs) -> None:
    cell = resolve(*configs("dataset.split=''"))
    assert cell.config.dataset.split == "test"
    assert cell.fingerprint == resolve(*configs()).fingerprint


def test_a_job_file_holds_whole_cells(configs: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch may have moved since: a job measures what its launcher pinned."""
    monkeypatch.setattr("rbptrack.sources.hub.commit", lambda *_: "a" * 40)
    words = ["model=org/tiny", "dataset=org/texts", "dataset.split=test", "dataset.seq_len=64", "dataset.context=8"]
    hub = Resolver().resolve(*compose([*words, f"model.tokenizer={embedded('tokenizer')}"]))
    local = resolve(*configs("reference=nano/15k", "dataset.where.lang=en", "candidates=tokenizer"))
    write_job(tmp_path / "0.json", [hub, local])
    monkeypatch.setattr("rbptrack.sources.hub.commit", lambda *_: "b" * 40)
    assert read_job(tmp_path / "0.json") == [hub, local]
    assert [cell.fingerprint for cell in read_job(tmp_path / "0.json")] == [hub.fingerprint, local.fingerprint]
    assert hub.weights == Pinned("org/tiny", "a" * 40, f"org/tiny@{'a' * 40}", requested="main")
    check_unchanged(hub)
    check_unchanged(local)


def test_local_files_that_change_before_a_job_begins_are_refused(configs: Configs, tmp_path: Path) -> None:
    shutil.copytree(embedded("models/6k"), tmp_path / "mine")
    cell = resolve(*configs("model=./mine", f"model.tokenizer={embedded('tokenizer')}"))
    check_unchanged(cell)
    config = json.loads((tmp_path / "mine/config.json").read_text())
    (tmp_path / "mine/config.json").write_text(json.dumps(config | {"rotary_pct": 0.5}))
    with pytest.raises(BadInput, match="changed"):
        check_unchanged(cell)


@pytest.mark.parametrize("content", ["", "{}", "[1]", None])
def test_what_is_not_a_job_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "job.json").write_text(content)
    with pytest.raises(BadInput, match="job"):
        read_job(tmp_path / "job.json")
