"""Tests of RankCallback in a Trainer of transformers: its metrics are logged and can choose the best model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from mlflow import MlflowClient
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerControl, TrainerState, TrainingArguments

import rbptrack
from rbptrack import RankCallback
from rbptrack.base.errors import BadInput
from rbptrack.config.paths import embedded
from rbptrack.tracking import Outbox, Store

TEXTS = ["import os\n\n\ndef walk(path):\n    return os.listdir(path)\n", "for name in names:\n    print(name)\n"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Any, str]:
    """Train nano-6k for three steps in mixed precision, with an evaluation at each step.

    Returns:
        the trainer, the tokenizer, and the tracking URI to which the callback logs.

    """
    folder = tmp_path_factory.mktemp("out")
    model = AutoModelForCausalLM.from_pretrained(embedded("models/6k"), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(embedded("tokenizer"))
    examples = [{"input_ids": ids, "labels": ids} for ids in (tokenizer(text)["input_ids"][:16] for text in TEXTS * 4)]
    arguments = TrainingArguments(
        str(folder / "out"),
        max_steps=3,
        learning_rate=0.05,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        metric_for_best_model="eval_rbp_10",
        load_best_model_at_end=True,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        use_cpu=True,
        bf16=True,
        report_to="none",
        disable_tqdm=True,
    )
    uri = f"sqlite:///{folder}/mlflow.db"
    rank = RankCallback(TEXTS, tokenizer, k=(1, 10, 10**6), seq_len=64, log=True, tracking_uri=uri, family="mine")
    trainer = Trainer(model=model, args=arguments, train_dataset=examples, eval_dataset=examples[:1], callbacks=[rank])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trainer.train()
    return trainer, tokenizer, uri


def test_callback_adds_its_metrics_to_each_evaluation(trained: tuple[Trainer, Any, str]) -> None:
    history = [entry for entry in trained[0].state.log_history if "eval_rbp_10" in entry]
    assert [entry["step"] for entry in history] == [1, 2, 3]
    assert all({"eval_loss", "eval_rbp_1", "eval_rank_ce"} <= set(entry) for entry in history)
    assert not any("eval_rbp_1000000" in entry for entry in history)


def test_callback_metrics_can_choose_the_best_model(trained: tuple[Trainer, Any, str]) -> None:
    trainer, tokenizer, _ = trained
    rbp_10 = {entry["step"]: entry["eval_rbp_10"] for entry in trainer.state.log_history if "eval_rbp_10" in entry}
    best = max(rbp_10.values())
    assert len(set(rbp_10.values())) > 1  # otherwise every step would be the best
    assert trainer.state.best_metric == best
    checkpoint = trainer.state.best_model_checkpoint
    assert checkpoint is not None
    assert rbp_10[int(Path(checkpoint).name.removeprefix("checkpoint-"))] == best
    best_model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    assert rbptrack.measure(best_model, tokenizer, TEXTS, seq_len=64).rbp(10) == best


def test_callback_logs_evaluations_as_checkpoints_of_one_family(trained: tuple[Trainer, Any, str]) -> None:
    trainer, _, tracking_uri = trained
    runs = rbptrack.runs(family="mine", tracking_uri=tracking_uri)
    assert sorted(runs["checkpoint"]) == ["step1", "step2", "step3"]
    history = trainer.state.log_history
    cross_entropy = {entry["step"]: entry["eval_rank_ce"] for entry in history if "eval_rank_ce" in entry}
    for row in runs:
        assert row["ce"] == cross_entropy[int(row["checkpoint"].removeprefix("step"))]


@pytest.mark.parametrize("damaged", [False, True])
def test_callback_does_not_end_training_without_a_store_or_with_nan(
    damaged: bool, trained: tuple[Trainer, Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    model = AutoModelForCausalLM.from_pretrained(embedded("models/6k"), dtype=torch.float32)
    if damaged:
        model.get_output_embeddings().weight.data.fill_(math.nan)
    trainer, tokenizer, _ = trained
    unreachable = "http://127.0.0.1:9"  # no server listens at this port
    callback = RankCallback(TEXTS, tokenizer, seq_len=64, log=True, tracking_uri=unreachable, family="mine")
    metrics = {"eval_runtime": 1.0}
    callback.on_evaluate(trainer.args, TrainerState(), TrainerControl(), metrics=metrics, model=model)
    assert math.isnan(metrics["eval_rbp_10"]) == math.isnan(metrics["eval_rank_ce"]) == damaged
    assert len(Outbox(Store(unreachable)).waiting_folders()) == (0 if damaged else 1)


@pytest.fixture(scope="module")
def two_sizes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Train two sizes with three evaluations each and Trainers that log to MLflow. Returns the tracking URI."""
    folder = tmp_path_factory.mktemp("sizes")
    uri = f"sqlite:///{folder}/mlflow.db"
    tokenizer = AutoTokenizer.from_pretrained(embedded("tokenizer"))
    examples = [{"input_ids": ids, "labels": ids} for ids in (tokenizer(text)["input_ids"][:10] for text in TEXTS * 4)]
    texts = [f"{text}# {number}\n" for number in range(12) for text in TEXTS]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "training")
        patch.setenv("MLFLOW_EXPERIMENT_ID", "")  # MLflow sets it; it is restored at the end
        patch.delenv("MLFLOW_EXPERIMENT_ID")
        for size in ("6k", "15k"):
            arguments = TrainingArguments(
                str(folder / size),
                max_steps=3,
                learning_rate=0.02,
                eval_strategy="steps",
                eval_steps=1,
                logging_steps=1,
                save_strategy="no",
                per_device_train_batch_size=2,
                per_device_eval_batch_size=1,
                use_cpu=True,
                report_to="mlflow",
                disable_tqdm=True,
            )
            model = AutoModelForCausalLM.from_pretrained(embedded(f"models/{size}"), dtype=torch.float32)
            trainer = Trainer(model=model, args=arguments, train_dataset=examples, eval_dataset=examples[:1])
            rank = RankCallback(texts, tokenizer, seq_len=64, log=True, experiment="rbptrack", family="mine", size=size)
            rank.attach(trainer)
            trainer.train()
            mlflow.end_run()
    return uri


def test_attach_passes_metrics_to_the_loggers_of_the_trainer(two_sizes: str) -> None:
    client = MlflowClient(two_sizes)
    experiment = client.get_experiment_by_name("training")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "eval_rbp_10")
        assert [metric.step for metric in history] == [1, 2, 3]


def test_callback_logs_training_tokens(two_sizes: str) -> None:
    runs = rbptrack.runs(family="mine", tracking_uri=two_sizes)
    tokens = dict(zip(runs.frame["checkpoint"], runs.frame["training_tokens"], strict=True))
    assert tokens == {"step1": 20, "step2": 40, "step3": 60}  # two examples of 10 tokens a step
    assert len(runs.analyze("training").results)


def test_tags_link_the_run_of_the_trainer_with_its_measurements(two_sizes: str) -> None:
    client = MlflowClient(two_sizes)
    runs = rbptrack.runs(family="mine", tracking_uri=two_sizes).frame
    linked = set()
    for run_id in runs["run_id"]:
        training_run = client.get_run(client.get_run(run_id).data.tags["rbptrack.training_run"])
        assert run_id in training_run.data.tags["rbptrack.measurements"].split(",")
        linked.add(training_run.info.run_id)
    assert len(linked) == 2
    assert not list(Store(two_sizes, "rbptrack").verify())


@pytest.mark.parametrize(
    "options",
    [{"seqlen": 64}, {"every": 10}, {"seq_len": 0}, {"sequence": "x"}, {"k": 0}, {"family": "a\nb"}, {"n": 1}],
)
def test_callback_refuses_a_wrong_option_when_it_is_made(options: dict[str, Any]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(embedded("tokenizer"))
    with pytest.raises(BadInput):
        RankCallback(TEXTS, tokenizer, **options)


@pytest.mark.parametrize("options", [{"seq_len": 10**6}, {"log": True}])
def test_callback_refuses_before_the_training_what_the_trainer_does_not_allow(
    options: dict[str, Any], trained: tuple[Trainer, Any, str], tmp_path: Path
) -> None:
    """nano has 512 positions, and the Trainer has no run_name from which logged measurements could take a family."""
    trainer, tokenizer, _ = trained
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    with pytest.raises(BadInput):
        RankCallback(TEXTS, tokenizer, **options).attach(trainer)
    with pytest.raises(BadInput):
        Trainer(model=trainer.model, args=arguments, callbacks=[RankCallback(TEXTS, tokenizer, **options)])


def test_callback_names_the_family_after_the_run_of_the_trainer(
    trained: tuple[Trainer, Any, str], tmp_path: Path
) -> None:
    """One callback may serve several Trainers. Each has its own name."""
    trainer, tokenizer, _ = trained
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    callback = RankCallback(TEXTS, tokenizer, seq_len=64, log=True, tracking_uri=uri)
    for name, size in {"own": "6k", "second": "15k"}.items():
        model = AutoModelForCausalLM.from_pretrained(embedded(f"models/{size}"), dtype=torch.float32)
        arguments = TrainingArguments(str(tmp_path), run_name=name, use_cpu=True, report_to="none")
        Trainer(model=model, args=arguments, eval_dataset=trainer.eval_dataset, callbacks=[callback]).evaluate()
        assert name in rbptrack.runs(tracking_uri=uri)["family"].tolist()


def evaluate(callback: RankCallback, trainer: Trainer, model: Any, prefix: str, step: int) -> float:
    """Let a callback take part in an evaluation. Returns the cross-entropy that it adds to the metrics."""
    metrics = {f"{prefix}_runtime": 1.0}
    state = TrainerState(global_step=step)
    callback.on_evaluate(trainer.args, state, TrainerControl(), metrics=metrics, model=model)
    return metrics["eval_rank_ce"]


def test_evaluation_sets_of_one_step_share_a_measurement_and_later_evaluations_measure_anew(
    trained: tuple[Trainer, Any, str],
) -> None:
    trainer, tokenizer, _ = trained
    first, second = (
        AutoModelForCausalLM.from_pretrained(embedded(f"models/{size}"), dtype=torch.float32) for size in ("6k", "15k")
    )
    callback = RankCallback(TEXTS, tokenizer, seq_len=64)
    ce_of_first = evaluate(callback, trainer, first, "eval_code", 1)
    assert evaluate(callback, trainer, second, "eval_text", 1) == ce_of_first  # not measured
    ce_of_second = evaluate(callback, trainer, second, "eval_code", 1)  # the set was evaluated before
    assert ce_of_second != ce_of_first
    assert evaluate(callback, trainer, first, "eval_text", 2) == ce_of_first  # another step
    assert evaluate(callback, trainer, second, "eval", 2) == ce_of_second  # the only evaluation set
    assert evaluate(callback, trainer, first, "eval_test", 2) == ce_of_first
    callback.on_train_end(trainer.args, TrainerState(), TrainerControl())
    assert evaluate(callback, trainer, second, "eval_text", 2) == ce_of_second


def test_callback_takes_the_prefix_of_the_evaluation_and_not_that_of_a_metric_of_the_user(
    trained: tuple[Trainer, Any, str],
) -> None:
    trainer, tokenizer, _ = trained
    metrics = {"test_model_runtime": 2.0, "test_runtime": 1.0}
    callback = RankCallback(TEXTS, tokenizer, seq_len=64)
    callback.on_evaluate(trainer.args, TrainerState(), TrainerControl(), metrics=metrics, model=trainer.model)
    assert "test_rank_ce" in metrics


@pytest.mark.parametrize("texts", [None, "one text", ["", ""], [3]])
def test_callback_refuses_texts_that_cannot_be_measured(texts: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(embedded("tokenizer"))
    with pytest.raises(BadInput, match=r"text|nothing"):
        RankCallback(texts, tokenizer)
