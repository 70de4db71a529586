"""The Python API, as docs/python.md shows it, and its edges."""

from __future__ import annotations

import copy
import dataclasses
import gc
import importlib
import json
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.analysis.contract import Runs
from rbptrack.analysis.families import families
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.ranks import rbp_ks
from tests.conftest import EMBEDDED, ROOT, Program

TEXTS = [
    "import os\n\n\ndef walk(path):\n    return os.listdir(path)\n" * 3,
    "The function returns a list of names. " * 5,
]


@pytest.fixture(scope="module")
def nano() -> tuple[object, object]:
    folder = EMBEDDED / "models/6k"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        rbptrack.nonsense  # noqa: B018


def test_loading_the_api_leaves_pythons_random_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the libraries draw while they are imported."""

    def load(name: str) -> ModuleType:
        random.random()
        return importlib.import_module(name)

    monkeypatch.setattr(rbptrack, "import_module", load)
    before = random.getstate()
    assert rbptrack.measure is rbptrack.api.measure
    assert random.getstate() == before


def test_the_documentation_runs(program: Program, tmp_path: Path) -> None:
    """All of docs/python.md in one interpreter; then what it says of the store is looked up there."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    checks = """
assert len(runs) == 4 and runs.frame["sweep"].eq("notebook").all()
assert "<svg" in report._repr_html_() and "<table" in report._repr_html_()
steps = [e["step"] for e in trainer.state.log_history if "eval_rbp_10" in e]
assert steps == [2, 4], steps
from mlflow import MlflowClient
client = MlflowClient("sqlite:///mlruns/mlflow.db")
(run,) = client.search_runs(["1"], "tags.`rbptrack.kind` = 'training'")
history = client.get_metric_history(run.info.run_id, "rbp_10")
assert run.info.status == "FINISHED" and [m.step for m in history] == [0, 2, 4]
print("all of it")
"""
    done = program("-c", "\n".join([*blocks, checks]), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all of it\n")
    assert done.stdout.splitlines()[0] == blocks[0].partition("print(measured)  # ")[2].splitlines()[0]


def test_its_numbers_are_those_of_the_definition(nano: tuple[object, object], tmp_path: Path) -> None:
    model, tokenizer = nano
    model.train()  # type: ignore[attr-defined]
    found = rbptrack.measure(model, tokenizer, TEXTS, seq_len=32, sequence="truncate")  # type: ignore[arg-type]
    assert model.training  # type: ignore[attr-defined]
    model.eval()  # type: ignore[attr-defined]
    ranks, nats = [], []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :32]  # type: ignore[operator]
        with torch.inference_mode():
            logits = model(ids).logits[0].double()  # type: ignore[operator]
        for t in range(1, ids.shape[1]):
            ranks.append(int((logits[t - 1] >= logits[t - 1, ids[0, t]]).sum()))
            nats.append(-float(torch.log_softmax(logits[t - 1], 0)[ids[0, t]]))
    assert found.num_tokens == len(ranks)
    assert np.abs(found.ranks.rank - ranks).max() <= 1
    assert found.rbp(10) == pytest.approx(np.mean(np.array(ranks) <= 10), abs=0.02)
    assert found.ce == pytest.approx(np.mean(nats), abs=1e-5)
    assert found.non_embedding_params == 5676
    assert (found.family, found.size) == ("gpt_neox", "5.68k")
    assert {"ce", "ce_se", "rbp_1", "rbp_100_se"} <= set(found.metrics())
    first, header, ce, *_ = repr(found).splitlines()
    assert first == f"gpt_neox-5.68k / texts: {found.num_tokens} scored tokens, S = 5.68k"
    assert header.split() == ["metric", "value", "±", "se"]
    assert ce.split()[:2] == ["CE", f"{found.ce:.4f}"]
    html = dataclasses.replace(found, dataset="<b>")._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr") == len(repr(found).splitlines()) - 1


def test_the_k_of_a_measurement_are_shown_and_logged(nano: tuple[object, object], with_store: Path) -> None:
    model, tokenizer = nano
    uri = f"sqlite:///{with_store}/mlruns/mlflow.db"
    measurement = rbptrack.measure(model, tokenizer, TEXTS, seq_len=64, k=[2, 7, 10**6])  # type: ignore[arg-type]
    assert set(measurement.metrics()) == {"ce", "ce_se", "rbp_2", "rbp_2_se", "rbp_7", "rbp_7_se"}
    assert str(measurement).endswith(f"RBP_2 {measurement.rbp(2):.4f}, RBP_7 {measurement.rbp(7):.4f}")
    assert [line.split()[0] for line in repr(measurement).splitlines()[2:]] == ["CE", "RBP_2", "RBP_7"]
    titles = [ax.get_title() for ax in measurement.plot().axes]
    assert titles == ["gpt_neox-5.68k / texts", "share of tokens with rank at most k"]
    measurement.log(tracking_uri=uri)
    frame = rbptrack.runs(tracking_uri=uri).frame
    assert sorted(rbp_ks(frame.columns)) == [2, 7]
    assert rbptrack.measure(model, tokenizer, TEXTS, seq_len=64, k=3).ks == (3,)  # type: ignore[arg-type]
    for wrong in (0, [], [1, -1]):
        with pytest.raises(BadInput, match="k must be 1 or more; got"):
            rbptrack.measure(model, tokenizer, TEXTS, k=wrong)  # type: ignore[arg-type]


def toy(kind: str, **settings: object) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = {"vocab_size": 4096, "hidden_size": 32, "num_hidden_layers": 4, **settings}
    config = transformers.CONFIG_MAPPING[kind](**shape)
    found: torch.nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return found.train()


def test_threads_that_measure_one_model_wait_for_each_other(nano: tuple[object, object]) -> None:
    """Else the first to end would turn the dropout of the others on."""
    model = toy("gpt_neox", num_attention_heads=4, intermediate_size=64, hidden_dropout=0.5)
    frozen = next(part for part in model.modules() if isinstance(part, torch.nn.Dropout)).eval()

    def measured(seed: int) -> float:
        return rbptrack.measure(model, nano[1], TEXTS * (1 + seed), seq_len=40, batch_tokens=64).ce  # type: ignore[arg-type]

    alone = [measured(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(measured, range(4)))
    assert together == pytest.approx(alone, abs=1e-5)
    model.get_output_embeddings().weight.data[0] = float("nan")  # type: ignore[operator]
    with pytest.raises(MeasurementError, match="a NaN or an infinity"):
        measured(0)
    assert model.training
    assert not frozen.training


@pytest.mark.parametrize("training", [True, False])
def test_a_model_is_given_back_as_it_was(training: bool, nano: tuple[object, object]) -> None:
    """RWKV divides weights in place where it is to predict, and a user may go on to train or to save it."""
    model = toy("rwkv", rescale_every=1, context_length=64, attention_hidden_size=32).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.autocast("cpu", torch.bfloat16):
        found = rbptrack.measure(model, nano[1], TEXTS, seq_len=40)  # type: ignore[arg-type]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training == training for part in model.modules())
    assert found.ce == rbptrack.measure(model, nano[1], TEXTS, seq_len=40).ce  # type: ignore[arg-type]


def test_its_runs_join_those_of_the_command_line(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nano: tuple[object, object]
) -> None:
    """One size measured by a command, another in Python, on the same texts with the same settings: one family."""
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    words = ["model=nano/15k", "dataset=files", "dataset.files=[texts.jsonl]", "dataset.name=two", "dataset.seq_len=64"]
    done = program("-m", *words, "dataset.context=32", "dataset.sequence=slide,truncate", "analyzers=[]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for rule in ("slide", "truncate"):
        settings = {"family": "nano", "size": "6k", "dataset": "two", "seq_len": 64, "sequence": rule}
        rbptrack.measure(*nano, TEXTS, **settings).log()  # type: ignore[arg-type]
    notes: list[str] = []
    runs = rbptrack.runs()
    found = families(runs, notes)
    assert [(f.name, f.labels) for f in found] == [(f"nano {rule}", ["6k", "15k"]) for rule in ("slide", "truncate")]
    assert notes == [
        "nano on two: its runs mix sequence (slide: 2 runs, truncate: 2 runs). Laws are fitted to each kind apart."
    ]
    assert runs.frame.notna().all()[["revision", "candidates", "rank", "dtype", "context", "software"]].all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"texts": "one string"}, "texts must be a list of strings"),
        ({"texts": []}, "nothing to score: 0 texts"),
        ({"texts": (text for text in ())}, "nothing to score: 0 texts"),
        ({"texts": 3}, "texts must be a list of strings"),
        ({"texts": ["a", "b\ud800"]}, r"texts\[1\] holds '\\ud800' at character 1, half of a character"),
        ({"sequence": "chop"}, "expected one of truncate, slide, pack"),
        ({"seq_len": 513}, "dataset.seq_len must be at most 512"),
        ({"context": 32}, "context must be between 1 and seq_len - 1 = 31; got 32"),
    ],
)
def test_bad_input(arguments: dict[str, object], words: str, nano: tuple[object, object]) -> None:
    given = {"texts": TEXTS, "seq_len": 32} | arguments
    with pytest.raises(BadInput, match=words):
        rbptrack.measure(*nano, given.pop("texts"), **given)  # type: ignore[arg-type]


def test_wrappers_and_slow_tokenizers_are_refused_in_a_line(nano: tuple[object, object]) -> None:
    model, tokenizer = nano
    with pytest.raises(BadInput, match=r"model is a DataParallel, not a model of transformers: give its \.module"):
        rbptrack.measure(torch.nn.DataParallel(model), tokenizer, TEXTS)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"tokenizer is a SimpleNamespace, .* give the fast one"):
        rbptrack.measure(model, SimpleNamespace(is_fast=False), TEXTS)  # type: ignore[arg-type]


def test_models_whose_numbers_would_be_anothers_are_refused(nano: tuple[Any, object]) -> None:
    """A prompt-tuned model is its base plus virtual tokens; one on the device meta holds no numbers."""
    model, tokenizer = nano
    model.active_peft_config = SimpleNamespace(is_prompt_learning=True)
    try:
        with pytest.raises(BadInput, match=r"whose adapter adds virtual tokens \(prompt learning\)"):
            rbptrack.measure(model, tokenizer, TEXTS, seq_len=64)  # type: ignore[arg-type]
    finally:
        del model.active_peft_config
    with torch.device("meta"):
        empty = type(model)(model.config)
    with pytest.raises(BadInput, match="parameters on the device meta, which hold no numbers"):
        rbptrack.measure(empty, tokenizer, TEXTS, seq_len=64)  # type: ignore[arg-type]


def test_a_compiled_model_is_given_back_without_a_hook(nano: tuple[Any, object]) -> None:
    model = copy.deepcopy(nano[0])
    model.compile(backend="eager")
    gc.disable()  # what compiled code holds in a cycle would go with the next collection
    try:
        rbptrack.measure(model, nano[1], TEXTS[:1], seq_len=64)  # type: ignore[arg-type]
        assert not any(part._forward_pre_hooks for part in model.modules())
    finally:
        gc.enable()


def test_bad_input_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no tracking store at"):
        rbptrack.runs()
    with pytest.raises(BadInput, match="family= gives no pattern: the generator is empty"):
        rbptrack.runs(family=(name for name in ()))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no analyzer matches nope"):
        rbptrack.analyze(None, "nope")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"no option of power_law matches kss. Did you mean ks\? Options: ks"):
        rbptrack.analyze(None, "power_law", kss=[1])  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_listed_and_on_the_page() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    assert dir(rbptrack) == rbptrack.__all__
    members = [name for name, member in vars(Runs).items() if callable(member) and not name.startswith("_")]
    internal = {"own_copy", "watch", "was_read"}
    assert not [name for name in (*rbptrack.__all__, *(set(members) - internal)) if name not in page]


def test_a_measurement_is_found_by_its_name_or_the_beginning_of_its_id() -> None:
    runs = example_runs()
    first = runs.frame.iloc[0]
    assert runs[str(first["run_id"])]["ce"] == first["ce"]
    assert runs[f"{first['model']}/{first['dataset']}"]["run_id"] == first["run_id"]
    with pytest.raises(BadInput, match="no measurement is called x/y"):
        runs["x/y"]


def test_measuring_loads_no_mlflow(tmp_path: Path) -> None:
    """It was half of the processor time of a first call. In a fresh process: the prepared ones hold MLflow."""
    code = f"""
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
import rbptrack
folder = {str(EMBEDDED / "models/6k")!r}
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), AutoTokenizer.from_pretrained(folder)
print(rbptrack.measure(model, tokenizer, ["a few words, " * 20], seq_len=64))
assert "mlflow" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
