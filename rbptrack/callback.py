"""RBP_k and CE of an evaluation set while a transformers Trainer trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rbptrack import api
from rbptrack.config.schema import TrackingConfig
from rbptrack.ranks import rbp_name
from rbptrack.tracking import Connection, Writer
from rbptrack.tracking.schema import Metric, software_versions, training_tags


class RankCallback(TrainerCallback):
    """Measures texts at each evaluation of a Trainer, and once before the first step.

    The numbers go three ways: into the metrics of the evaluation (`eval_rbp_10`, `eval_rank_ce`), so that they are
    there for `metric_for_best_model` and in `state.log_history`; and into an MLflow run of their own, tag
    `rbptrack.kind` = `training`, as curves rbp_<k> and ce whose step is the Trainer's.

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
        ks: Sequence[int] = (1, 10, 100),
        name: str = "",
        dataset: str = "texts",
        log: bool = True,
        tracking_uri: str = "",
        experiment: str = "rbptrack",
        **measuring: Any,
    ) -> None:
        self._texts, self._tokenizer, self._ks, self._dataset = list(texts), tokenizer, list(ks), dataset
        self._name, self._measuring = name, measuring
        tracking = TrackingConfig(uri=tracking_uri, experiment=experiment)
        self._writer = Writer(Connection(tracking)) if log else None
        self._run_id = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin the run, and measure the model as it is before training."""
        if state.is_world_process_zero:
            self._measure(state, kwargs["model"])

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure, and add the numbers to those of the evaluation."""
        if state.is_world_process_zero:
            measured = self._measure(state, kwargs["model"])
            measured["rank_ce"] = measured.pop(Metric.CE)  # `eval_ce` may be a metric of the Trainer's user
            evaluation = {f"eval_{name}": value for name, value in measured.items()}
            kwargs.get("metrics", {}).update(evaluation)
            state.log_history.append({"step": state.global_step, **evaluation})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End the run."""
        if self._writer and self._run_id:
            self._writer.end(self._run_id)
            self._run_id = ""

    def _measure(self, state: TrainerState, model: Any) -> dict[str, float]:
        whole = getattr(model, "module", model)  # within DataParallel
        found = api.measure(whole, self._tokenizer, self._texts, dataset=self._dataset, **self._measuring)
        ks = [k for k in self._ks if k <= found.histogram.vocab_size]
        metrics = {Metric.CE: found.ce} | {rbp_name(k): found.rbp(k) for k in ks}
        if self._writer:
            if not self._run_id:
                self._run_id = self._writer.begin(
                    self._name or f"training {found.family} / {self._dataset}",
                    training_tags(found.family, self._dataset),
                )
                self._writer.log(self._run_id, params=found.params.params() | software_versions())
            self._writer.log(self._run_id, metrics=metrics, step=state.global_step)
        return metrics
