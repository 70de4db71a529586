"""RankCallback in a real Trainer: its numbers reach every logger and choose the best model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

from rbptrack import RankCallback, measure
from rbptrack.callback import _shared
from tests.conftest import EMBEDDED

TEXTS = ["import os\n\n\ndef walk(path):\n    return os.listdir(path)\n", "for name in names:\n    print(name)\n"]


class Recorder(TrainerCallback):
    """What W&B, TensorBoard and the like do: log what `on_log` is given."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.logged.append(dict(logs))


class Later(Recorder):
    """One more: a Trainer warns of two of a class."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Recorder, Later]:
    """In mixed precision, where autocast is no business of a measurement's."""
    folder = EMBEDDED / "models/6k"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    data = [{"input_ids": ids, "labels": ids} for ids in (tokenizer(text)["input_ids"][:16] for text in TEXTS * 4)]
    before, after = Recorder(), Later()
    arguments = TrainingArguments(
        str(tmp_path_factory.mktemp("out")),
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
    rank = RankCallback(TEXTS, tokenizer, ks=(1, 10), seq_len=64, log=False)
    trainer = Trainer(
        model=model, args=arguments, train_dataset=data, eval_dataset=data[:1], callbacks=[before, rank, after]
    )
    trainer.train()
    return trainer, before, after


def test_every_logger_sees_the_numbers(trained: tuple[Trainer, Recorder, Later]) -> None:
    trainer, before, after = trained
    for recorder in (before, after):
        evaluations = [logs for logs in recorder.logged if "eval_loss" in logs]
        assert len(evaluations) == 3
        assert all({"eval_rbp_1", "eval_rbp_10", "eval_rank_ce"} <= set(logs) for logs in evaluations)
        assert not any("eval_rbp_10" in logs for logs in recorder.logged if "eval_loss" not in logs)
    history = [entry for entry in trainer.state.log_history if "eval_rbp_10" in entry]
    assert [entry["step"] for entry in history] == [1, 2, 3]
    assert all("eval_loss" in entry for entry in history)


def test_they_choose_the_best_model(trained: tuple[Trainer, Recorder, Later]) -> None:
    trainer, before, _ = trained
    measured = {e["step"]: e["eval_rbp_10"] for e in trainer.state.log_history if "eval_rbp_10" in e}
    best = max(measured.values())
    assert len(set(measured.values())) > 1  # or any step would do
    assert trainer.state.best_metric == best
    assert trainer.state.best_model_checkpoint is not None
    assert measured[int(Path(trainer.state.best_model_checkpoint).name.removeprefix("checkpoint-"))] == best
    later = AutoModelForCausalLM.from_pretrained(trainer.state.best_model_checkpoint, dtype=torch.float32)
    assert measure(later, AutoTokenizer.from_pretrained(EMBEDDED / "models/6k"), TEXTS, seq_len=64).rbp(10) == best
    again = trainer.evaluate()  # of the model that was loaded at the end, not of the last step
    assert again["eval_rbp_10"] == best
    assert trainer.evaluate(metric_key_prefix="test")["test_rbp_10"] == best
    assert before.logged[-1]["test_rbp_10"] == best


def _in_a_process(number: int, address: str, folder: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=address, rank=number, world_size=2)
    found = _shared({"rbp_10": 0.5} if number == 0 else {})
    (folder / f"{number}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # spawned processes would import torch again
def test_every_process_has_the_main_ones_numbers(tmp_path: Path) -> None:
    """Each process of a distributed training looks for the metric that chooses the best model."""
    address = f"file://{tmp_path / 'meet'}"
    mp.start_processes(_in_a_process, (address, tmp_path), nprocs=2, start_method="fork")
    assert [json.loads((tmp_path / f"{n}.json").read_text()) for n in (0, 1)] == [{"rbp_10": 0.5}] * 2
