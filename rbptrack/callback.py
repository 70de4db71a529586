"""A callback that measures RBP_k and CE of texts at each evaluation of a transformers Trainer."""

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

from rbptrack.api import check_texts, measure
from rbptrack.base.errors import first_line
from rbptrack.models.tokenizer import check_tokenizer
from rbptrack.ranks.names import HEADLINE_KS, rbp_name

log = logging.getLogger(__name__)

_EXAMPLES = 100  # training examples whose lengths are compared


class RankCallback(TrainerCallback):  # type: ignore[misc]
    """Measures texts whenever a Trainer evaluates, and adds `eval_rbp_10` and `eval_rank_ce` to the evaluation.

    Attach it to a Trainer. Its metrics then also reach the Trainer's loggers (MLflow, W&B, TensorBoard):

        RankCallback(texts, tokenizer).attach(trainer)

    If it is passed as `Trainer(callbacks=[RankCallback(...)])`, its metrics reach `state.log_history` and
    `metric_for_best_model`, but no logger: a Trainer logs its evaluation before it calls its callbacks.

    The main process measures, and the others wait. The model must be whole in that process (not sharded by FSDP or
    DeepSpeed ZeRO-3). If a measurement fails, its metrics are NaN and a warning is logged; the training goes on. If the
    tracking store is away, the measurement waits in mlruns/cells for the next command.

    Args:
        texts: the documents.
        tokenizer: the tokenizer of the model.
        ks: the k of RBP_k. Values of k above |V| are left out.
        log: whether to log each evaluation as a measurement, the checkpoint `step<n>` of its family. Its number of
            training tokens is the Trainer's count if `include_num_input_tokens_seen` is set. Otherwise it is computed
            from the batch size if all training examples have the same length, and else unknown.
        tracking_uri: the store for these measurements. By default it is MLFLOW_TRACKING_URI or, if that is not set,
            MLflow's own store in the working folder.
        experiment: the experiment in that store.
        **measuring: further arguments of `rbptrack.measure`: dataset, family, size, seq_len, context, sequence.

    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        ks: Sequence[int] = HEADLINE_KS,
        log: bool = False,
        tracking_uri: str = "",
        experiment: str = "",
        **measuring: Any,
    ) -> None:
        check_tokenizer(tokenizer)
        self._texts = check_texts(texts)
        self._tokenizer = tokenizer
        self._ks = list(ks)
        self._log = log
        self._store = {"tracking_uri": tracking_uri, "experiment": experiment}
        self._measuring = measuring
        self._trainer: Trainer | None = None

    def attach(self, trainer: Trainer) -> None:
        """Add this callback to a Trainer and send its metrics to the Trainer's loggers."""
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self._trainer = trainer

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the model, add the numbers to the evaluation's metrics, and log them."""
        metrics: dict[str, float] = kwargs["metrics"]
        prefix = next((name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime")), "eval")
        if prefix.startswith("eval_"):  # the Trainer has several evaluation sets, such as `eval_code`
            prefix = "eval"
        numbers = {}
        if state.is_world_process_zero:
            tokens = _training_tokens(args, state, kwargs.get("train_dataloader"))
            numbers = self._numbers_or_nan(state, kwargs["model"], tokens)
        named = {f"{prefix}_{name}": value for name, value in _from_main_process(numbers).items()}
        metrics.update(named)
        if self._trainer is not None:
            self._trainer.log(dict(named))
        elif state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(named)

    def _numbers_or_nan(self, state: TrainerState, model: Any, training_tokens: float) -> dict[str, float]:
        """Measure the model. If that fails, log a warning and return NaN, because the other processes are waiting."""
        try:
            return self._numbers(state, model, training_tokens)
        except Exception as error:
            log.warning("step %d is not measured: %s: %s", state.global_step, type(error).__name__, first_line(error))
            # The metrics must exist: without them, metric_for_best_model would end the training.
            return dict.fromkeys(["rank_ce", *map(rbp_name, self._ks)], math.nan)

    def _numbers(self, state: TrainerState, model: Any, training_tokens: float) -> dict[str, float]:
        whole = getattr(model, "module", model)  # DataParallel wraps the model
        checkpoint = {"revision": f"step{state.global_step}", "training_tokens": training_tokens}
        options: dict[str, Any] = {**checkpoint, "progress": False, **self._measuring}
        measured = measure(whole, self._tokenizer, self._texts, k=self._ks, **options)
        if self._log:
            try:
                measured.log(**self._store)
            except Exception as error:
                log.warning("step %d is not logged: %s: %s", state.global_step, type(error).__name__, first_line(error))
        numbers = {name: value for name, value in measured.metrics().items() if not name.endswith("_se")}
        numbers["rank_ce"] = numbers.pop("ce")  # the user's own metric may be called `eval_ce`
        return numbers


def _training_tokens(args: TrainingArguments, state: TrainerState, train_dataloader: Any) -> float:
    """Return the number of tokens that the model was trained on so far, in all processes. Return 0 if it is unknown."""
    if state.num_input_tokens_seen:
        return float(state.num_input_tokens_seen)
    try:
        examples = train_dataloader.dataset
        step = max(1, len(examples) // _EXAMPLES)
        lengths = {len(examples[number]["input_ids"]) for number in range(0, len(examples), step)}
    except (AttributeError, IndexError, KeyError, TypeError):  # no training set, a stream, or another form of examples
        return 0.0
    if len(lengths) != 1:
        return 0.0
    sequences = (
        state.global_step
        * (state.train_batch_size or args.train_batch_size)
        * args.gradient_accumulation_steps
        * args.world_size
    )
    return float(sequences * lengths.pop())


def _from_main_process(numbers: dict[str, float]) -> dict[str, float]:
    """Send the main process's numbers to all processes of a distributed training, and return them."""
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return numbers
    box = [numbers]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]
