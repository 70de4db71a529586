"""A callback that measures a model whenever a Trainer of transformers evaluates it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from transformers import (
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from rbptrack.api.arguments import check_keywords, list_texts
from rbptrack.api.measuring import make_config, measure
from rbptrack.base.errors import BadInput, first_line
from rbptrack.models.compatibility import check_compatible
from rbptrack.models.tokenizer_in_memory import check_tokenizer
from rbptrack.ranks.names import HEADLINE_KS, rbp_name

log = logging.getLogger(__name__)

_MEASURE_OPTIONS = ("dataset", "family", "size", "seq_len", "context", "sequence", "batch_tokens")
_NUM_COMPARED_EXAMPLES = 100  # the lengths of about this many training examples are compared


class RankCallback(TrainerCallback):  # type: ignore[misc]
    """Measures RBP_k and CE on texts whenever a Trainer evaluates, and adds them to the metrics of the evaluation.

    The metrics are named `eval_rbp_10` (for k = 10) and `eval_rank_ce`. If the callback is attached to a Trainer, they
    also reach the Trainer's loggers (MLflow, W&B, TensorBoard):

        RankCallback(texts, tokenizer).attach(trainer)

    With `Trainer(callbacks=[RankCallback(...)])`, they reach `state.log_history` and `metric_for_best_model`, but not
    the loggers, because a Trainer logs its evaluation before it calls its callbacks.

    With `log=True`, each evaluation is also logged as a measurement. While the model is trained, the commands `rbptrack
    read` and `rbptrack report` show its checkpoints. If the Trainer logs to MLflow, tags link its
    run with the measurements.

    The main process measures, and the other processes wait. The main process must hold the whole model (not sharded by
    FSDP or DeepSpeed ZeRO-3). If a measurement fails, its metrics are NaN, a warning is logged, and the training goes
    on. If the tracking store cannot be reached, the measurement waits in mlruns/cells, and the next command of rbptrack
    delivers it, without the tags that link it with the Trainer's run.

    Args:
        texts: the texts to measure; each is one document.
        tokenizer: the tokenizer of the model.
        k: one or several k of RBP_k. Values above the size of the vocabulary are left out.
        log: whether to log each measurement to a tracking store, with the checkpoint `step<n>`. The number of training
            tokens is the Trainer's count if `include_num_input_tokens_seen` is set. Otherwise it is computed from the
            batch size if all training examples have equal lengths, and is unknown if they have not.
        tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in the
            working folder.
        experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.
        **measure_options: further arguments of `rbptrack.measure`: dataset, family, size, seq_len, context, sequence,
            batch_tokens. With `log=True`, the default of family is the Trainer's `run_name`.

    Raises:
        BadInput: an option is unknown or its value is not allowed, the tokenizer cannot be used, `texts` is not a list
            of texts, or all texts are empty. When the Trainer is known: `seq_len` is larger than the model's maximum,
            the tokenizer belongs to another model, or the logged measurements have no family.

    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        k: int | Sequence[int] = HEADLINE_KS,
        log: bool = False,
        tracking_uri: str = "",
        experiment: str = "",
        **measure_options: Any,
    ) -> None:
        check_keywords("RankCallback", measure_options, [*_MEASURE_OPTIONS, "k", "log", "tracking_uri", "experiment"])
        check_tokenizer(tokenizer)
        config = make_config(**{"family": "model", **measure_options, "k": k})
        self._texts = list_texts(texts)
        self._tokenizer = tokenizer
        self._ks = list(config.k.values)
        self._logs_measurements = log
        self._store_options = {"tracking_uri": tracking_uri, "experiment": experiment}
        self._measure_options = measure_options
        self._trainer: Trainer | None = None
        self._forget()

    def _forget(self) -> None:
        """Let the next evaluation measure the model."""
        self._shared_step = -1  # the step at which evaluation sets share one measurement; -1: none
        self._sharing_sets: set[str] = set()
        self._shared_metrics: dict[str, float] = {}

    def attach(self, trainer: Trainer) -> None:
        """Add this callback to a Trainer and send its metrics to the Trainer's loggers."""
        self._check_trainer(trainer.args, trainer.model)
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self._trainer = trainer

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Check the options that depend on the model and the Trainer, before the training begins."""
        self._check_trainer(args, kwargs["model"])

    def _check_trainer(self, args: TrainingArguments, model: Any) -> None:
        """Raise BadInput if evaluations of this Trainer could not be measured or named."""
        if self._logs_measurements and not self._measure_options.get("family"):
            if not args.run_name:
                raise BadInput(
                    "log=True needs a name for the models: RankCallback(..., family=NAME), or run_name=NAME in "
                    "TrainingArguments"
                )
            make_config(family=args.run_name)  # checks the name
        if "seq_len" in self._measure_options:
            check_compatible(type(model).__name__, model.config, self._tokenizer, self._measure_options["seq_len"])

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the model, and add its RBP_k and CE to the metrics of the evaluation."""
        metrics: dict[str, float] = kwargs["metrics"]
        # Every evaluation has a metric such as `eval_runtime`, which shows the prefix of its metrics.
        # A metric of the user's may end in `_runtime`, too, but it begins with the prefix and is therefore longer.
        prefixes = [name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime")]
        prefix = min(prefixes, key=len, default="eval")
        # With several evaluation sets, the prefix is for example `eval_code`. RBP_k and CE do not depend on the set, so
        # the sets of one step share a measurement. A set that has it already begins another evaluation.
        set_name = prefix if prefix.startswith("eval_") else ""
        if not set_name or state.global_step != self._shared_step or set_name in self._sharing_sets:
            self._forget()
            if state.is_world_process_zero:
                training_tokens = _count_training_tokens(args, state, kwargs.get("train_dataloader"))
                self._shared_metrics = self._measure_or_nan(args, state, kwargs["model"], training_tokens)
            self._shared_metrics = _broadcast_from_main_process(self._shared_metrics)
        if set_name:
            prefix = "eval"
            self._shared_step = state.global_step
            self._sharing_sets.add(set_name)
        new_metrics = {f"{prefix}_{name}": value for name, value in self._shared_metrics.items()}
        metrics.update(new_metrics)
        if self._trainer is not None:
            self._trainer.log(dict(new_metrics))
        elif state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(new_metrics)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Let the next evaluation measure anew, because the Trainer may have loaded the weights of the best step."""
        self._forget()

    def _measure_or_nan(
        self, args: TrainingArguments, state: TrainerState, model: Any, training_tokens: float
    ) -> dict[str, float]:
        """Measure the model. If that fails, log a warning and return NaN. The other processes wait for the result."""
        try:
            return self._measure(args, state, model, training_tokens)
        except Exception as error:
            log.warning("step %d is not measured: %s: %s", state.global_step, type(error).__name__, first_line(error))
            # The metrics must exist: without them, metric_for_best_model would end the training.
            return dict.fromkeys(["rank_ce", *map(rbp_name, self._ks)], math.nan)

    def _measure(
        self, args: TrainingArguments, state: TrainerState, model: Any, training_tokens: float
    ) -> dict[str, float]:
        unwrapped_model = getattr(model, "module", model)  # DataParallel wraps the model
        checkpoint = {"checkpoint": f"step{state.global_step}", "training_tokens": training_tokens}
        options: dict[str, Any] = {**checkpoint, "progress": False, **self._measure_options}
        if self._logs_measurements:
            options["family"] = options.get("family") or args.run_name
        measurement = measure(unwrapped_model, self._tokenizer, self._texts, k=self._ks, **options)
        if self._logs_measurements:
            try:
                measurement.log(**self._store_options)
            except Exception as error:
                reason = f"{type(error).__name__}: {first_line(error)}"
                log.warning("logging of step %d failed: %s", state.global_step, reason)
        metrics = {name: value for name, value in measurement.metrics().items() if not name.endswith("_se")}
        metrics["rank_ce"] = metrics.pop("ce")  # the user's own metric may be called `eval_ce`
        return metrics


def _count_training_tokens(args: TrainingArguments, state: TrainerState, train_dataloader: Any) -> float:
    """Count the tokens that the model was trained on so far, over all processes. Returns 0 if the number is unknown."""
    if state.num_input_tokens_seen:
        return float(state.num_input_tokens_seen)
    try:
        examples = train_dataloader.dataset
        stride = max(1, len(examples) // _NUM_COMPARED_EXAMPLES)
        lengths = {len(examples[number]["input_ids"]) for number in range(0, len(examples), stride)}
    except (AttributeError, IndexError, KeyError, TypeError):  # no training set, a stream, or another form of examples
        return 0.0
    if len(lengths) != 1:
        return 0.0
    num_sequences = (
        state.global_step
        * (state.train_batch_size or args.train_batch_size)
        * args.gradient_accumulation_steps
        * args.world_size
    )
    return float(num_sequences * lengths.pop())


def _broadcast_from_main_process(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics of the main process in every process of a distributed training."""
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return metrics
    objects = [metrics]
    torch.distributed.broadcast_object_list(objects, src=0)
    return objects[0]
