"""Words become measurements: by the sweep, and by what is Hydra's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rbptrack
from rbptrack.config.paths import embedded
from tests.conftest import RunCommand


def test_a_sweep_is_planned_measured_and_found_again(run_command: RunCommand, tmp_path: Path) -> None:
    words = "model=nano/6k,nano/15k dataset=pydocs dataset.documents=2 analyzers=[]"
    code, out, _ = run_command(f"plan {words}")
    assert code == 0
    assert "2 cells to measure" in out
    assert not (tmp_path / "mlflow.db").exists()
    code, out, err = run_command(words)
    assert code == 0, err
    frame = rbptrack.runs().frame
    assert list(frame.sort_values("ce")["name"]) == ["nano-15k/pydocs", "nano-6k/pydocs"]
    assert run_command(words)[0] == 0
    assert len(rbptrack.runs()) == 2
    assert "0 cells to measure" in run_command(f"plan {words}")[1]


def test_a_plan_says_which_cells_could_not_be_looked_up(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "plan model=nano/6k,nano/15k dataset=pydocs dataset.documents=2"
    code, out, _ = run_command(f"{words} dataset.seq_len=256,513")
    assert code == 1
    assert "2 cells to measure" in out
    assert out.count("seq_len must be") == 1
    code, out, _ = run_command(f"{words} dataset.seq_len=513")
    assert code == 2
    assert out.count("maximum of nano-6k") == 1
    monkeypatch.setattr("rbptrack.sources.hub.commit", lambda *_: "a" * 40)
    out = run_command("plan model=nano/6k dataset=org/texts dataset.split=test")[1]
    assert "an unknown time on this device, unknown FLOPs, 0 to download" in out


def test_a_device_that_is_not_here_is_refused_though_the_cell_is_measured(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[]"
    assert run_command(words)[0] == 0
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run_command(f"{words} model.device=cuda")
    assert code == 2
    assert "cuda" in err


def test_numbers_that_are_worse_than_a_guess_get_a_note(run_command: RunCommand, tmp_path: Path) -> None:
    """Weights with the tokenizer of another model, whose vocabulary has the same size."""
    shutil.copytree(embedded("tokenizer"), tmp_path / "other")
    file = tmp_path / "other/tokenizer.json"
    parts = json.loads(file.read_text())
    vocabulary = parts["model"]["vocab"]
    added = {token["content"] for token in parts["added_tokens"]}
    last = max(vocabulary.values())
    first = len(added)
    parts["model"]["vocab"] = {t: i if t in added else last + first - i for t, i in vocabulary.items()}
    file.write_text(json.dumps(parts))
    words = "model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[]"
    assert "guess" not in run_command(words)[1]
    code, out, err = run_command(f"{words} model.tokenizer=./other")
    assert code == 0, err
    assert "guess" in out


def test_what_waits_is_delivered_by_the_next_command(run_command: RunCommand, tmp_path: Path) -> None:
    code, _, err = run_command("model=nano/6k dataset=pydocs dataset.documents=2 analyzers=[] deliver=false")
    assert code == 0, err
    assert not (tmp_path / "mlflow.db").exists()
    assert "1 measurement" in run_command("list")[1]
    assert run_command("sync")[1].startswith("0 measurements")


def test_a_model_is_measured_with_the_tokenizer_that_its_files_describe(
    run_command: RunCommand, tmp_path: Path
) -> None:
    """Known numbers of `tokenizers.Tokenizer.from_file` and transformers in float64.

    transformers' classes of these models drop the rule that splits digits, and the first token.
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
        "begun": ({}, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}),
    }
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    for name, (changes, config) in files.items():
        shutil.copytree(embedded("models/6k"), tmp_path / name)
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(base | changes))
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps(config | special))
    code, _, err = run_command(
        "model=./digits,./begun dataset=files dataset.files=[numbers.jsonl] dataset.name=num analyzers=[]"
    )
    assert code == 0, err
    runs = rbptrack.runs().frame.set_index("family")
    assert runs.loc["digits", "num_tokens"] == 2633
    assert runs.loc["digits", "ce"] == pytest.approx(5.5620, abs=5e-5)
    assert runs.loc["digits", "rbp_10"] == pytest.approx(0.1781, abs=5e-5)
    ranks = rbptrack.runs().ranks("begun/num")
    assert set(ranks.column("position")) >= {2}
    assert 1 not in ranks.column("position"), "the token after a special one is not scored"


def test_the_demo_takes_other_words(run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("rbptrack.cli.measure.measure", lambda words: asked.append(list(words)) or 0)
    run_command("demo")
    run_command("demo dataset=pydocs k=1,10")
    run_command("demo dataset.sequence=slide")
    assert asked == [
        ["model=nano/*", "dataset=pydocs,stdlib", "dataset.sequence=truncate"],
        ["model=nano/*", "dataset=pydocs", "k=1,10"],
        ["model=nano/*", "dataset=pydocs,stdlib", "dataset.sequence=slide"],
    ]
