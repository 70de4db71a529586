"""Tests of `measure`: its numbers, its checks of arguments, and what it leaves unchanged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

import rbptrack
from rbptrack.api import LoggableMeasurement
from rbptrack.base.errors import BadInput, MeasurementError
from tests.api.conftest import TEXTS, Nano


def random_model(kind: str, **settings: object) -> Any:
    """Return a model with random weights in training mode. `kind` is its model type in transformers."""
    torch.manual_seed(0)
    shape = {"vocab_size": 4096, "hidden_size": 32, "num_hidden_layers": 2, **settings}
    config = transformers.CONFIG_MAPPING[kind](**shape)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()


def test_measure_gives_the_ranks_and_the_cross_entropy_of_the_definitions(
    nano: Nano, measurement: LoggableMeasurement
) -> None:
    model, tokenizer = nano
    ranks = []
    nats = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :32]
        with torch.inference_mode():
            logits = model(ids).logits[0].double()  # (tokens, vocabulary)
        for t in range(1, ids.shape[1]):
            target = ids[0, t]
            ranks.append(int((logits[t - 1] >= logits[t - 1, target]).sum()))
            nats.append(-float(torch.log_softmax(logits[t - 1], 0)[target]))
    assert measurement.measurement.num_tokens == len(ranks)
    assert np.abs(measurement.ranks.rank - ranks).max() <= 1  # float32 may swap two nearly equal logits
    assert measurement.ce == pytest.approx(np.mean(nats), abs=1e-5)
    assert measurement.rbp(10) == pytest.approx(np.mean(np.array(ranks) <= 10), abs=0.02)
    assert measurement.metrics()["rbp_10"] == measurement.rbp(10)


def test_measure_names_a_model_by_its_type_and_its_number_of_parameters(
    nano: Nano, measurement: LoggableMeasurement
) -> None:
    (embedding,) = [parameter for name, parameter in nano[0].named_parameters() if "embed_in" in name]
    total = sum(parameter.numel() for parameter in nano[0].parameters())
    assert measurement.measurement.non_embedding_params == total - embedding.numel() == 5676
    assert measurement.measurement.model == "gpt_neox-5.68k"
    assert repr(measurement).startswith("gpt_neox-5.68k / texts")


@pytest.mark.parametrize(("k", "ks"), [([2, 10**6], (2,)), (np.int64(3), (3,))])
def test_measure_accepts_a_number_as_k_and_leaves_out_k_above_the_vocabulary(
    k: Any, ks: tuple[int, ...], nano: Nano
) -> None:
    assert rbptrack.measure(*nano, TEXTS, seq_len=64, k=k).counts.ks == ks


@pytest.mark.parametrize(
    "arguments",
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
def test_measure_refuses_a_wrong_argument_in_one_line(arguments: dict[str, Any], nano: Nano) -> None:
    with pytest.raises(BadInput) as caught:
        rbptrack.measure(*nano, TEXTS, **{"seq_len": 64, **arguments})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("texts", ["one text", b"x", 3, [], [""], [1], ["a", None], ["\ud83d"]])
def test_measure_refuses_texts_that_are_not_a_list_of_texts(texts: Any, nano: Nano) -> None:
    with pytest.raises(BadInput):
        rbptrack.measure(*nano, texts)


@pytest.mark.parametrize("kind", ["a layer", "DataParallel", "a name"])
def test_measure_refuses_what_is_not_a_model_of_transformers(kind: str, nano: Nano) -> None:
    model, tokenizer = nano
    models: dict[str, Any] = {
        "a layer": torch.nn.Linear(2, 2),
        "DataParallel": torch.nn.DataParallel(model),
        "a name": "gpt2",
    }
    with pytest.raises(BadInput):
        rbptrack.measure(models[kind], tokenizer, TEXTS, seq_len=64)


def test_measure_asks_for_a_fast_tokenizer(nano: Nano) -> None:
    with pytest.raises(BadInput, match="fast"):
        rbptrack.measure(nano[0], object(), TEXTS, seq_len=64)  # type: ignore[arg-type]


DROPOUT_MODEL: dict[str, Any] = {"num_attention_heads": 4, "intermediate_size": 64, "hidden_dropout": 0.5}


def test_measure_in_three_threads_gives_the_numbers_of_one_thread(nano: Nano) -> None:
    """Threads that measure one model must wait for each other.

    Otherwise the first thread to finish would turn on dropout for the others.
    """
    model = random_model("gpt_neox", **DROPOUT_MODEL)

    def cross_entropy(repeats: int) -> float:
        return rbptrack.measure(model, nano[1], TEXTS * repeats, seq_len=40, batch_tokens=64).ce

    expected = [cross_entropy(repeats) for repeats in (1, 2, 3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(cross_entropy, (1, 2, 3))) == pytest.approx(expected, abs=1e-5)


def test_measure_restores_training_modes_after_an_error(nano: Nano) -> None:
    model = random_model("gpt_neox", **DROPOUT_MODEL)
    frozen = next(part for part in model.modules() if isinstance(part, torch.nn.Dropout)).eval()
    model.get_output_embeddings().weight.data[0] = float("nan")
    with pytest.raises((MeasurementError, BadInput)):
        rbptrack.measure(model, nano[1], TEXTS, seq_len=40, batch_tokens=64)
    assert model.training
    assert not frozen.training


@pytest.mark.parametrize("training", [True, False])
def test_measure_leaves_weights_modes_and_hooks_of_the_model_unchanged(training: bool, nano: Nano) -> None:
    """RWKV divides its weights in place when it leaves training mode. A user may train or save the model afterwards."""
    model = random_model("rwkv", rescale_every=1, context_length=64, attention_hidden_size=32).train(training)

    def num_hooks() -> int:
        return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules())

    weights = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = num_hooks()
    rbptrack.measure(model, nano[1], TEXTS, seq_len=40)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(part.training == training for part in model.modules())
    assert num_hooks() == hooks


@pytest.mark.parametrize("training", [True, False])
def test_measure_ignores_autocast(training: bool, nano: Nano) -> None:
    model = random_model("rwkv", rescale_every=1, context_length=64, attention_hidden_size=32).train(training)
    with torch.autocast("cpu", torch.bfloat16):
        measurement = rbptrack.measure(model, nano[1], TEXTS, seq_len=40)
    assert measurement.ce == rbptrack.measure(model, nano[1], TEXTS, seq_len=40).ce


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("device", "model.to"),
        ("batch_size", "batch_tokens"),
        ("max_length", "seq_len"),
        ("ks", "k"),
        ("famly", "family"),
    ],
)
def test_measure_names_the_right_keyword(wrong: str, right: str, nano: Nano) -> None:
    with pytest.raises(BadInput, match=rf"{wrong}\b.*{right}"):
        rbptrack.measure(*nano, TEXTS, **{wrong: 8})
