"""Tests of the commands `measure`, `plan`, `demo` and `sync`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import rbptrack
from rbptrack.config.paths import embedded
from tests.conftest import RunCommand


def test_plan_counts_cells_to_measure_and_writes_nothing(run_command: RunCommand, tmp_path: Path) -> None:
    code, out, _ = run_command("plan model=nano/6k,nano/15k dataset=pydocs dataset.documents=2 analyzers=[]")
    assert code == 0
    assert "2 cells to measure" in out
    assert not (tmp_path / "mlflow.db").exists()


def test_measure_skips_cells_that_are_measured_already(run_command: RunCommand) -> None:
    words = "model=nano/6k,nano/15k dataset=pydocs dataset.documents=2 analyzers=[]"
    code, _, err = run_command(words)
    assert code == 0, err
    frame = rbptrack.runs().frame
    assert list(frame.sort_values("ce")["name"]) == ["nano-15k/pydocs", "nano-6k/pydocs"]
    assert run_command(words)[0] == 0
    assert len(rbptrack.runs()) == 2
    assert "0 cells to measure" in run_command(f"plan {words}")[1]


def test_plan_exits_with_1_if_some_cells_cannot_be_measured(run_command: RunCommand) -> None:
    words = "plan model=nano/6k,nano/15k dataset=pydocs dataset.documents=2"
    code, out, _ = run_command(f"{words} dataset.seq_len=256,513")
    assert code == 1
    assert "2 cells to measure" in out
    assert out.count("seq_len must be") == 1


def test_plan_exits_with_2_if_no_cell_can_be_measured(run_command: RunCommand) -> None:
    words = "plan model=nano/6k,nano/15k dataset=pydocs dataset.documents=2"
    code, out, _ = run_command(f"{words} dataset.seq_len=513")
    assert code == 2
    assert out.count("maximum of nano-6k") == 1


def test_plan_prints_unknown_time_and_flops_of_a_dataset_that_is_not_downloaded(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.sources.hub.find_commit", lambda *_: "a" * 40)
    out = run_command("plan model=nano/6k dataset=org/texts dataset.split=test")[1]
    assert "an unknown time on this device, unknown FLOPs, 0 to download" in out


def test_measure_refuses_a_missing_device_even_if_the_cell_is_measured_already(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[]"
    assert run_command(words)[0] == 0
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run_command(f"{words} model.device=cuda")
    assert code == 2
    assert "cuda" in err


def test_measure_notes_that_a_model_is_worse_than_a_guess(run_command: RunCommand, tmp_path: Path) -> None:
    """The weights do not belong to the tokenizer: its vocabulary is the right one in the opposite order."""
    shutil.copytree(embedded("tokenizer"), tmp_path / "other")
    file = tmp_path / "other/tokenizer.json"
    content = json.loads(file.read_text())
    added_tokens = {token["content"] for token in content["added_tokens"]}
    vocabulary = content["model"]["vocab"]
    first = len(added_tokens)
    last = max(vocabulary.values())
    for token, number in vocabulary.items():
        if token not in added_tokens:
            vocabulary[token] = first + last - number
    file.write_text(json.dumps(content))
    words = "model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[]"
    assert "guess" not in run_command(words)[1]
    code, out, err = run_command(f"{words} model.tokenizer=./other")
    assert code == 0, err
    assert "guess" in out


def test_list_delivers_measurements_that_wait_on_disk(run_command: RunCommand, tmp_path: Path) -> None:
    code, _, err = run_command("model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[] deliver=false")
    assert code == 0, err
    assert not (tmp_path / "mlflow.db").exists()
    assert "1 measurement" in run_command("list")[1]
    assert run_command("sync")[1].startswith("0 measurements")


def test_measure_uses_the_tokenizer_that_the_files_of_the_model_describe(
    run_command: RunCommand, tmp_path: Path
) -> None:
    """The class of tokenizer that tokenizer_config.json names would read the texts in another way.

    transformers' GPT2Tokenizer drops the rule that splits digits, and its LlamaTokenizerFast drops the first token. The
    expected numbers were computed with `tokenizers.Tokenizer.from_file` and with transformers in float64.
    """
    lines = [
        f"def f{i}(x):\n    # in 20{i:02d} it was {i * 7919 + 12345}\n    return x + {i * 104729} - 3.14159265{i}\n\n\n"
        f"print(f{i}({i}))  # 650841823, Ångström's 12345\n"
        for i in range(30)
    ]
    (tmp_path / "numbers.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    base = json.loads((embedded("tokenizer") / "tokenizer.json").read_text())
    digits = [{"type": "Digits", "individual_digits": True}, base["pre_tokenizer"]]
    files = {
        "digits": (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": digits}},
            {"tokenizer_class": "GPT2Tokenizer"},
        ),
        "with_bos": ({}, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}),
    }
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    for name, (changes, config) in files.items():
        shutil.copytree(embedded("models/6k"), tmp_path / name)
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({**base, **changes}))
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps({**config, **special}))
    code, _, err = run_command(
        "model=./digits,./with_bos dataset=files dataset.files=[numbers.jsonl] dataset.name=num analyzers=[]"
    )
    assert code == 0, err
    runs = rbptrack.runs().frame.set_index("family")
    assert runs.loc["digits", "num_tokens"] == 2633
    assert runs.loc["digits", "ce"] == pytest.approx(5.5620, abs=5e-5)
    assert runs.loc["digits", "rbp_10"] == pytest.approx(0.1781, abs=5e-5)
    positions = set(rbptrack.runs().ranks("with_bos/num").column("position"))
    assert 2 in positions
    assert 1 not in positions  # the token after the beginning-of-text token is not scored


@pytest.mark.parametrize(
    ("line", "expected_words"),
    [
        ("demo", ["model=nano/*", "dataset=pydocs,stdlib", "dataset.sequence=truncate"]),
        ("demo dataset=pydocs k=1,10", ["model=nano/*", "dataset=pydocs", "k=1,10"]),
        ("demo dataset.sequence=slide", ["model=nano/*", "dataset=pydocs,stdlib", "dataset.sequence=slide"]),
    ],
)
def test_demo_measures_its_default_words_with_the_words_of_the_user(
    line: str, expected_words: list[str], run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def measure(words: Sequence[str]) -> int:
        calls.append(list(words))
        return 0

    monkeypatch.setattr("rbptrack.cli.measure.measure", measure)
    run_command(line)
    assert calls == [expected_words]


@pytest.mark.parametrize("place", ["a folder", "below a file", "a loop of links", "where nobody can create a file"])
def test_a_store_that_cannot_be_opened_is_refused_and_nothing_is_measured(
    place: str, run_command: RunCommand, tmp_path: Path
) -> None:
    databases = {
        "a folder": tmp_path / "folder",
        "below a file": tmp_path / "file/mlflow.db",
        "a loop of links": tmp_path / "loop",
        "where nobody can create a file": Path("/proc/mlflow.db"),
    }
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    uri = f"sqlite:///{databases[place]}"
    words = f"model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[] tracking.uri={uri}"
    for command in (words, f"list --tracking-uri {uri}", f"verify --tracking-uri {uri}"):
        code, _, err = run_command(command)
        assert code in (1, 2)
        assert 1 <= len(err.splitlines()) <= 2
    assert list(tmp_path.rglob("*.parquet")) == []
    assert (tmp_path / "file").read_text() == "mine"
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_sync_fails_for_a_measurement_that_does_not_say_for_which_store_it_waits(
    content: str, run_command: RunCommand, tmp_path: Path
) -> None:
    words = "model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[]"
    assert run_command(f"{words} deliver=false")[0] == 0
    (address,) = tmp_path.glob("mlruns/cells/*/store.json")
    address.write_text(content)
    code, _, err = run_command("sync")
    assert code == 1
    assert address.parent.name in err
    assert run_command(words)[0] == 0
    assert len(rbptrack.runs()) == 1
    assert run_command("sync")[0] == 0
