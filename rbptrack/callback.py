"""RBP_k and CE of an evaluation set while a transformers Trainer trains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from rbptrack import api
from rbptrack.config.schema import TrackingConfig
from rbptrack.ranks import HEADLINE_KS, rbp_name
from rbptrack.tracking.params import software_versions
from rbptrack.tracking.schema import Metric, training_tags
from rbptrack.tracking.store import Store

_RUNTIME = "_runtime"  # ends the name of a metric that every evaluation logs


class RankCallback(TrainerCallback):
    """Measures texts at each evaluation of a Trainer, and once before the first step.

    The numbers go two ways. They are metrics of the evaluation (`eval_rbp_10`, `eval_rank_ce`): every logger of the
    Trainer has them (W&B, TensorBoard, `state.log_history`), and `metric_for_best_model` can name them. And they go
    into an MLflow run of their own, tag `rbptrack.kind` = `training`, as curves rbp_<k> and ce whose step is the
    Trainer's.

    The main process measures; the model must be whole there (not sharded by FSDP or DeepSpeed ZeRO-3).

    Args:
        texts: the evaluation set, one document each.
        tokenizer: the model's.
        ks: the k of RBP_k.
        name: the MLflow run's name; by default of architecture and dataset.
        dataset: a name for the texts.
        log: whether to log to MLflow at all.
        tracking_uri: where; by default MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.
        experiment: MLflow's experiment.
        **measuring: more arguments of `rbptrack.measure` (seq_len, context, sequence, batch_tokens).

    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        ks: Sequence[int] = HEADLINE_KS,
        name: str = "",
        dataset: str = "texts",
        log: bool = True,
        tracking_uri: str = "",
        experiment: str = "rbptrack",
        **measuring: Any,
    ) -> None:
        self._texts = list(texts)
        self._tokenizer = tokenizer
        self._ks = list(ks)
        self._dataset = dataset
        self._name = name
        self._measuring = measuring
        tracking = TrackingConfig(uri=tracking_uri, experiment=experiment)
        self._writer = Store(tracking).writer if log else None
        self._run_id = ""
        self._training, self._measured = False, dict[int, dict[str, float]]()  # the last one, by the Trainer's step

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move this callback before the Trainer's other callbacks."""
        self._step_forward(sys._getframe(1))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin the run, and measure the model as it is before training."""
        self._step_forward(sys._getframe(1))
        self._training = True
        self._measured.clear()
        self._numbers(state, kwargs["model"])

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure where an evaluation is logged, and add the numbers to it."""
        logs: dict[str, float] = kwargs.get("logs") or {}
        evaluations = [name.removesuffix(_RUNTIME) for name in logs if name.endswith(_RUNTIME)]
        for prefix in (name for name in evaluations if name != "train"):
            named = _named(self._numbers(state, kwargs["model"]), prefix)
            logs.update(named)
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1].update(named)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the numbers where a Trainer of its own kind logged a copy of the evaluation's metrics."""
        metrics: dict[str, float] = kwargs.get("metrics") or {}
        for prefix in [name.removesuffix(_RUNTIME) for name in metrics if name.endswith(_RUNTIME)]:
            for measured in self._measured.values():
                metrics.update({k: v for k, v in _named(measured, prefix).items() if k not in metrics})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End the run."""
        self._training = False
        if self._writer and self._run_id:
            self._writer.end(self._run_id)
            self._run_id = ""

    def _step_forward(self, caller: FrameType) -> None:
        """Become the first of the Trainer's callbacks, so that its loggers find the numbers in what they are to log.

        A Trainer puts its loggers before the callbacks that it is given, and tells a callback nothing of the others;
        who calls it is all that it can know.
        """
        handler = caller.f_locals.get("self")
        if isinstance(handler, CallbackHandler) and self in handler.callbacks:
            handler.callbacks.remove(self)
            handler.callbacks.insert(0, self)

    def _numbers(self, state: TrainerState, model: Any) -> dict[str, float]:
        """Measure the model now, in every process; during training at most once a step."""
        if not self._training or state.global_step not in self._measured:
            measured = self._measure(state, model) if state.is_world_process_zero else {}
            self._measured = {state.global_step: _shared(measured)}
        return self._measured[state.global_step]

    def _measure(self, state: TrainerState, model: Any) -> dict[str, float]:
        whole = getattr(model, "module", model)  # within DataParallel
        options: dict[str, Any] = {"dataset": self._dataset, "progress": False} | self._measuring
        measured = api.measure(whole, self._tokenizer, self._texts, **options)
        ks = [k for k in self._ks if k <= measured.histogram.vocab_size]
        metrics = {Metric.CE: measured.ce} | {rbp_name(k): measured.rbp(k) for k in ks}
        if self._writer and self._training:
            if not self._run_id:
                self._run_id = self._writer.begin(
                    self._name or f"training {measured.family} / {self._dataset}",
                    training_tags(measured.family, self._dataset),
                )
                self._writer.log(self._run_id, params=measured.params.params() | software_versions())
            self._writer.log(self._run_id, metrics=metrics, step=state.global_step)
        return metrics


def _named(measured: dict[str, float], prefix: str) -> dict[str, float]:
    """Return the numbers as metrics of an evaluation; the one of several that a Trainer logs may be called
    `eval_code`.
    """
    prefix = "eval" if prefix.startswith("eval_") else prefix
    names = {Metric.CE: "rank_ce"}  # `eval_ce` may be a metric of the Trainer's user
    return {f"{prefix}_{names.get(name, name)}": value for name, value in measured.items()}


def _shared(measured: dict[str, float]) -> dict[str, float]:
    """Return the main process's numbers, in each process of a distributed training."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        box = [measured]
        torch.distributed.broadcast_object_list(box, src=0)
        return box[0]
    return measured
