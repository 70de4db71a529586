"""The Python API, and that it meets the command line's checks."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.paths import embedded

TEXTS = [
    "import os\n\n\ndef walk(path):\n    return os.listdir(path)\n" * 3,
    "The function returns a list of names. " * 5,
]

Nano = tuple[Any, Any]


@pytest.fixture(scope="module")
def nano() -> Nano:
    model = AutoModelForCausalLM.from_pretrained(embedded("models/6k"), dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(embedded("tokenizer"))


def toy(kind: str, **settings: object) -> Any:
    torch.manual_seed(0)
    shape = {"vocab_size": 4096, "hidden_size": 32, "num_hidden_layers": 2, **settings}
    config = transformers.CONFIG_MAPPING[kind](**shape)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()


def test_names_load_when_they_are_used() -> None:
    code = "import rbptrack, sys; print('torch' in sys.modules, 'mlflow' in sys.modules, sorted(dir(rbptrack))[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["False", "False"]
    with pytest.raises(AttributeError):
        rbptrack.nonsense  # noqa: B018
    for name in rbptrack.__all__:
        assert getattr(rbptrack, name) is not None


def test_its_numbers_are_those_of_the_definition(nano: Nano) -> None:
    model, tokenizer = nano
    model.train()
    found = rbptrack.measure(model, tokenizer, TEXTS, seq_len=32, sequence="truncate")
    assert model.training
    model.eval()
    ranks = []
    nats = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :32]
        with torch.inference_mode():
            logits = model(ids).logits[0].double()
        for t in range(1, ids.shape[1]):
            ranks.append(int((logits[t - 1] >= logits[t - 1, ids[0, t]]).sum()))
            nats.append(-float(torch.log_softmax(logits[t - 1], 0)[ids[0, t]]))
    assert found.num_tokens == len(ranks)
    assert np.abs(found.ranks.rank - ranks).max() <= 1
    assert found.ce == pytest.approx(np.mean(nats), abs=1e-5)
    assert found.metrics()["rbp_10"] == found.rbp(10) == pytest.approx(np.mean(np.array(ranks) <= 10), abs=0.02)
    assert found.non_embedding_params == 5676
    assert found.model == "gpt_neox-5.68k"
    assert "ce_se" not in found.metrics()  # two documents know no error
    assert repr(found).startswith("gpt_neox-5.68k / texts")
    assert found.plot().to_dict()["$schema"]


def test_errors_are_known_from_20_documents_on(nano: Nano) -> None:
    found = rbptrack.measure(*nano, [text[i : i + 80] for text in TEXTS * 2 for i in range(10)], seq_len=64, k=[2, 7])
    assert {"ce", "ce_se", "rbp_2", "rbp_2_se", "rbp_7", "rbp_7_se"} == set(found.metrics())
    assert found._repr_html_().count("<tr") == 4


def test_k_above_the_vocabulary_is_left_out(nano: Nano) -> None:
    assert rbptrack.measure(*nano, TEXTS, seq_len=64, k=[2, 10**6]).counts.ks == (2,)
    assert rbptrack.measure(*nano, TEXTS, seq_len=64, k=np.int64(3)).counts.ks == (3,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dataset": ""},
        {"family": "a\nb"},
        {"family": "a" * 300},
        {"family": 3},
        {"context": 8.5},
        {"context": 64},
        {"seq_len": "64"},
        {"seq_len": 100_000},
        {"k": 1.5},
        {"k": []},
        {"k": "10"},
        {"batch_tokens": -5},
        {"sequence": ["slide"]},
    ],
)
def test_what_the_command_line_refuses_is_refused(wrong: dict[str, Any], nano: Nano) -> None:
    with pytest.raises(BadInput) as caught:
        rbptrack.measure(*nano, TEXTS, **{"seq_len": 64, **wrong})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("texts", ["one text", b"x", 3, [], [""], [1], ["a", None], ["\ud83d"]])
def test_texts_are_texts(texts: Any, nano: Nano) -> None:
    with pytest.raises(BadInput):
        rbptrack.measure(*nano, texts)


def test_models_are_models_of_transformers(nano: Nano) -> None:
    model, tokenizer = nano
    for wrong in (torch.nn.Linear(2, 2), torch.nn.DataParallel(model), "gpt2"):
        with pytest.raises(BadInput):
            rbptrack.measure(wrong, tokenizer, TEXTS, seq_len=64)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="fast"):
        rbptrack.measure(model, object(), TEXTS, seq_len=64)  # type: ignore[arg-type]


def test_threads_that_measure_one_model_wait_for_each_other(nano: Nano) -> None:
    """Else the first to end would turn the dropout of the others on."""
    model = toy("gpt_neox", num_attention_heads=4, intermediate_size=64, hidden_dropout=0.5)
    frozen = next(part for part in model.modules() if isinstance(part, torch.nn.Dropout)).eval()

    def measured(repeats: int) -> float:
        return rbptrack.measure(model, nano[1], TEXTS * repeats, seq_len=40, batch_tokens=64).ce

    alone = [measured(repeats) for repeats in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(measured, (1, 2, 3))) == pytest.approx(alone, abs=1e-5)
    model.get_output_embeddings().weight.data[0] = float("nan")
    with pytest.raises((MeasurementError, BadInput)):
        measured(1)
    assert model.training
    assert not frozen.training


@pytest.mark.parametrize("training", [True, False])
def test_a_model_is_given_back_as_it_was(training: bool, nano: Nano) -> None:
    """RWKV divides weights in place where it is to predict, and a user may go on to train or to save it."""
    model = toy("rwkv", rescale_every=1, context_length=64, attention_hidden_size=32).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules())
    with torch.autocast("cpu", torch.bfloat16):
        found = rbptrack.measure(model, nano[1], TEXTS, seq_len=40)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training == training for part in model.modules())
    assert sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()) == hooks
    assert found.ce == rbptrack.measure(model, nano[1], TEXTS, seq_len=40).ce


def test_a_measurement_is_logged_once(nano: Nano, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(lambda _: found.log(sweep="notebook"), range(4)))
    assert len(ids) == 1
    again = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    assert {again.log()} == ids
    other = rbptrack.measure(*nano, TEXTS, seq_len=64, family="other", dataset="two")
    assert other.log(sweep="notebook") not in ids  # the names are part of a measurement's identity
    runs = rbptrack.runs(dataset="two")
    assert len(runs) == 2
    assert len(rbptrack.runs(family=["mine", "nobody"])) == 1
    row = runs["mine-5.68k/two"]
    assert row["run_id"] in ids
    assert row["ce"] == found.ce
    assert row["sweep"] == "notebook"
    assert pd.isna(row.get("ce_se"))
    assert np.array_equal(runs.ranks("mine-5.68k/two").rank, found.ranks.rank)
    assert len(rbptrack.runs("ce > 0 and family == 'mine'")) == 1
    with pytest.raises(BadInput, match="two"):
        rbptrack.runs(dataset="wiki")
    with pytest.raises(BadInput):
        rbptrack.analyze(runs, "power_laws")
    with pytest.raises(BadInput):
        rbptrack.analyze(runs, "power_law", nonsense=3)
    assert rbptrack.analyze(runs, "power_law", ks=[1, 10]).notes


@pytest.mark.parametrize("wrong", [{"sweep": "a\nb"}, {"sweep": 3}, {"experiment": "a\nb"}, {"tracking_uri": 3}])
def test_what_log_is_given_is_checked(wrong: dict[str, Any], nano: Nano, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    found = rbptrack.measure(*nano, TEXTS, seq_len=64)
    with pytest.raises(BadInput):
        found.log(**wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong", [{"family": 3}, {"size": [3]}, {"model": None}, {"experiment": 3}, {"tracking_uri": 3}]
)
def test_what_runs_is_given_is_checked(wrong: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput):
        rbptrack.runs(**wrong)
    with pytest.raises(BadInput):
        rbptrack.analyze(wrong, "power_law")  # type: ignore[arg-type]


def test_a_condition_is_a_text() -> None:
    with pytest.raises(BadInput, match="where"):
        rbptrack.runs(where=["ce > 3"])
