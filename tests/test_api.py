"""Tests of the Python API: its numbers, its checks of arguments, and what it leaves unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.api import LoggableMeasurement
from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.paths import embedded

TEXTS = [
    "import os\n\n\ndef walk(path):\n    return os.listdir(path)\n" * 3,
    "The function returns a list of names. " * 5,
]

Nano = tuple[Any, Any]


@pytest.fixture(scope="module")
def nano() -> Nano:
    """Return the built-in model nano-6k and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(embedded("models/6k"), dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(embedded("tokenizer"))


def random_model(kind: str, **settings: object) -> Any:
    """Return a model with random weights in training mode. `kind` is its model type in transformers."""
    torch.manual_seed(0)
    shape = {"vocab_size": 4096, "hidden_size": 32, "num_hidden_layers": 2, **settings}
    config = transformers.CONFIG_MAPPING[kind](**shape)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()


def test_import_rbptrack_does_not_import_torch_or_mlflow() -> None:
    code = "import rbptrack, sys; print('torch' in sys.modules, 'mlflow' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]


def test_rbptrack_has_its_public_names_and_refuses_an_unknown_one() -> None:
    for name in rbptrack.__all__:
        assert getattr(rbptrack, name) is not None
    with pytest.raises(AttributeError):
        rbptrack.nonsense  # noqa: B018


@pytest.fixture(scope="module")
def measurement(nano: Nano) -> LoggableMeasurement:
    """Measure nano-6k, in training mode, on the first 32 tokens of each of the two TEXTS."""
    model, tokenizer = nano
    model.train()
    measurement = rbptrack.measure(model, tokenizer, TEXTS, seq_len=32, sequence="truncate")
    assert model.training
    model.eval()
    return measurement


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


def test_words_of_a_measurement_hold_its_texts_and_nats(measurement: LoggableMeasurement) -> None:
    words = measurement.words()
    assert set(words["document"]) == {0, 1}
    complete = words.dropna()
    assert (complete["surprisal"] > 0).all()
    assert (complete["worst_rank"] >= 1).all()
    nats = -measurement.ranks.column("logprob").sum()
    assert 0 < complete["surprisal"].sum() <= nats + 1e-6


def test_plot_of_a_measurement_is_shown_without_a_network(measurement: LoggableMeasurement) -> None:
    chart = measurement.plot()
    with alt.renderers.enable("rbptrack"):
        html = dict(chart._repr_mimebundle_())["text/html"]
    assert "vegaEmbed(" in html
    assert not re.findall(r"<script[^>]*src=|import\(|https?://cdn", html)


def test_metrics_of_two_documents_have_no_standard_error(measurement: LoggableMeasurement) -> None:
    assert "ce_se" not in measurement.metrics()


def test_metrics_of_40_documents_have_standard_errors(nano: Nano) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcdefgh "), size=80)) for _ in range(40)]
    measurement = rbptrack.measure(*nano, texts, seq_len=64, k=[2, 7])
    assert set(measurement.metrics()) == {"ce", "ce_se", "rbp_2", "rbp_2_se", "rbp_7", "rbp_7_se"}
    assert measurement._repr_html_().count("<tr") == 4


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


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, and return its path."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("empty_folder")
def test_log_adds_a_measurement_once(nano: Nano) -> None:
    first = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    with ThreadPoolExecutor(4) as pool:
        run_ids = set(pool.map(lambda _: first.log(sweep="notebook"), range(4)))
    assert len(run_ids) == 1
    second = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    assert {second.log()} == run_ids
    assert len(rbptrack.runs(dataset="two")) == 1


@pytest.mark.usefixtures("empty_folder")
def test_log_of_the_same_ranks_under_another_name_makes_no_second_run(nano: Nano) -> None:
    """Names are labels: they are no part of the fingerprint."""
    run_ids = set()
    for family in ("mine", "other"):
        measurement = rbptrack.measure(*nano, TEXTS, seq_len=64, family=family, dataset="two")
        run_ids.add(measurement.log(sweep="notebook"))
    assert len(run_ids) == 1
    assert len(rbptrack.runs(family=["mine", "nobody"])) == 1
    assert len(rbptrack.runs("ce > 0 and family == 'mine'")) == 1


@pytest.mark.usefixtures("empty_folder")
def test_runs_returns_the_facts_and_ranks_of_a_logged_measurement(nano: Nano) -> None:
    measurement = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    run_id = measurement.log(sweep="notebook")
    runs = rbptrack.runs(dataset="two")
    row = runs["mine-5.68k/two"]
    assert row["run_id"] == run_id
    assert row["ce"] == measurement.ce
    assert row["sweep"] == "notebook"
    assert pd.isna(row.get("ce_se"))
    assert np.array_equal(runs.ranks("mine-5.68k/two").rank, measurement.ranks.rank)


@pytest.mark.usefixtures("empty_folder")
def test_runs_that_select_nothing_name_the_datasets_of_the_store(nano: Nano) -> None:
    rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two").log()
    with pytest.raises(BadInput, match="two"):
        rbptrack.runs(dataset="wiki")


@pytest.mark.usefixtures("empty_folder")
def test_analyze_runs_an_analyzer_by_its_name_and_checks_its_options(nano: Nano) -> None:
    rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two").log()
    runs = rbptrack.runs(dataset="two")
    assert runs.analyze("power_law", k=[1, 10]).notes
    assert runs[runs["ce"] > 0].analyze("power_law").notes
    with pytest.raises(BadInput, match="power_laws"):
        runs.analyze("power_laws")
    with pytest.raises(BadInput, match="nonsense"):
        runs.analyze("power_law", nonsense=3)


@pytest.mark.usefixtures("empty_folder")
def test_report_returns_the_reports_of_analyzers_and_writes_the_page(nano: Nano, tmp_path: Path) -> None:
    rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two").log()
    runs = rbptrack.runs(dataset="two")
    reports = rbptrack.report(runs, tmp_path / "page.html", analyzers="k_law")
    assert list(reports) == ["k_law"]
    assert len(reports["k_law"].results)
    assert "mine on two" in (tmp_path / "page.html").read_text()
    with pytest.raises(BadInput):
        rbptrack.report(runs, "page.txt")


@pytest.mark.usefixtures("empty_folder")
def test_compare_of_measurements_in_memory_equals_that_of_logged_ones(nano: Nano) -> None:
    other = AutoModelForCausalLM.from_pretrained(embedded("models/15k"), dtype=torch.float32)
    first = rbptrack.measure(*nano, TEXTS, seq_len=64, family="a")
    second = rbptrack.measure(other, nano[1], TEXTS, seq_len=64, family="b")
    report = rbptrack.compare(first, second, k=[1, 7])
    changes = report.frame("change").set_index("metric")["change"]
    assert changes["ce"] == pytest.approx(second.ce - first.ce)
    assert changes["rbp_7"] == pytest.approx(second.rbp(7) - first.rbp(7))
    names = [each.name.replace(" ", "") for each in (first, second) if each.log()]
    pd.testing.assert_frame_equal(rbptrack.compare(*names, k=[1, 7]).results, report.results)
    assert set(report.figures) == {"changes", "curves"}
    with pytest.raises(BadInput):
        rbptrack.compare(first, "b")
    with pytest.raises(BadInput):
        rbptrack.compare(first, first)


@pytest.mark.usefixtures("empty_folder")
def test_compare_in_memory_counts_copies_of_a_document_as_one(nano: Nano) -> None:
    texts = [" ".join(str(number * 7919**power % 99991) for power in range(20)) for number in range(1, 31)] * 2
    other = AutoModelForCausalLM.from_pretrained(embedded("models/15k"), dtype=torch.float32)
    first = rbptrack.measure(*nano, texts, seq_len=64, family="a")
    second = rbptrack.measure(other, nano[1], texts, seq_len=64, family="b")
    assert first.measurement.groups == 30
    report = rbptrack.compare(second, first)  # CE rises, so the report has documents
    names = [each.name.replace(" ", "") for each in (second, first) if each.log()]
    logged = rbptrack.compare(*names)
    pd.testing.assert_frame_equal(report.results, logged.results)
    pd.testing.assert_frame_equal(report.tables["worst_documents"], logged.tables["worst_documents"])
    assert report.notes == logged.notes


@pytest.mark.usefixtures("empty_folder")
def test_words_of_a_logged_measurement_are_those_of_the_measurement(nano: Nano) -> None:
    measured = rbptrack.measure(*nano, TEXTS, seq_len=64, family="mine", dataset="two")
    measured.log()
    pd.testing.assert_frame_equal(rbptrack.runs().words("mine-5.68k/two"), measured.words())


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


@pytest.mark.parametrize("arguments", [{"sweep": "a\nb"}, {"sweep": 3}, {"experiment": "a\nb"}, {"tracking_uri": 3}])
def test_log_refuses_a_wrong_argument_and_writes_nothing(
    arguments: dict[str, Any], measurement: LoggableMeasurement, empty_folder: Path
) -> None:
    with pytest.raises(BadInput):
        measurement.log(**arguments)
    assert not list(empty_folder.iterdir())


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    "arguments", [{"family": 3}, {"size": [3]}, {"model": None}, {"experiment": 3}, {"tracking_uri": 3}]
)
def test_runs_refuses_a_filter_of_another_type(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        rbptrack.runs(**arguments)


@pytest.mark.usefixtures("empty_folder")
def test_report_refuses_a_dictionary_in_place_of_runs() -> None:
    with pytest.raises(BadInput):
        rbptrack.report({"family": 3})  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        rbptrack.laws({"family": 3})  # type: ignore[arg-type]


def test_runs_refuses_a_list_as_a_condition() -> None:
    with pytest.raises(BadInput, match="where"):
        rbptrack.runs(where=["ce > 3"])
