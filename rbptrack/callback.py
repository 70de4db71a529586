"""RBP_k and CE of texts at each evaluation of a transformers Trainer."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rbptrack.api import measure
from rbptrack.base.errors import first_line
from rbptrack.models.tokenizer import check_given
from rbptrack.ranks.names import HEADLINE_KS, rbp_name

log = logging.getLogger(__name__)


class RankCallback(TrainerCallback):
    """Measures texts whenever a Trainer evaluates, and adds `eval_rbp_10`, `eval_rank_ce` to what it evaluated.

    They are in `state.log_history`, in the metrics that `evaluate()` returns, and `metric_for_best_model` can name
    them. The main process measures, and the others wait; the model must be whole there (not sharded by FSDP or
    DeepSpeed ZeRO-3). What cannot be measured is NaN and what cannot be logged a warning: the training goes on. A
    measurement whose store is away waits in mlruns/cells for the next command.

    Args:
        texts: one document each.
        tokenizer: the model's.
        ks: the k of RBP_k; above |V| they are left out.
        log: log each evaluation as a measurement of its own, too, a checkpoint `step<n>` of its family.
        tracking_uri: where; else MLFLOW_TRACKING_URI, else MLflow's own store in the working folder.
        experiment: MLflow's.
        **measuring: more arguments of `rbptrack.measure`: dataset, family, size, seq_len, context, sequence.

    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        ks: Sequence[int] = HEADLINE_KS,
        log: bool = False,
        tracking_uri: str = "",
        experiment: str = "rbptrack",
        **measuring: Any,
    ) -> None:
        check_given(tokenizer)
        self._texts = list(texts)
        self._tokenizer = tokenizer
        self._ks = list(ks)
        self._log = log
        self._store = {"tracking_uri": tracking_uri, "experiment": experiment}
        self._measuring = measuring

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the model as it is, and add the numbers to the evaluation's metrics and to the log's last entry."""
        metrics: dict[str, float] = kwargs["metrics"]
        prefix = next((name.removesuffix("_runtime") for name in metrics if name.endswith("_runtime")), "eval")
        if prefix.startswith("eval_"):  # one of several sets: `eval_code`
            prefix = "eval"
        numbers = self._numbers_or_nan(state, kwargs["model"]) if state.is_world_process_zero else {}
        named = {f"{prefix}_{name}": value for name, value in _of_main_process(numbers).items()}
        metrics.update(named)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(named)

    def _numbers_or_nan(self, state: TrainerState, model: Any) -> dict[str, float]:
        """The numbers; NaN after an error, for which the other processes must not wait in vain."""
        try:
            return self._numbers(state, model)
        except Exception as error:
            log.warning("step %d is not measured: %s: %s", state.global_step, type(error).__name__, first_line(error))
            # Not left out: metric_for_best_model would end the training.
            return dict.fromkeys(["rank_ce", *map(rbp_name, self._ks)], math.nan)

    def _numbers(self, state: TrainerState, model: Any) -> dict[str, float]:
        whole = getattr(model, "module", model)  # within DataParallel
        options: dict[str, Any] = {"revision": f"step{state.global_step}", "progress": False} | self._measuring
        measured = measure(whole, self._tokenizer, self._texts, k=self._ks, **options)
        if self._log:
            try:
                measured.log(**self._store)
            except Exception as error:
                log.warning("step %d is not logged: %s: %s", state.global_step, type(error).__name__, first_line(error))
        numbers = {name: value for name, value in measured.metrics().items() if not name.endswith("_se")}
        numbers["rank_ce"] = numbers.pop("ce")  # `eval_ce` may be a metric of the Trainer's user
        return numbers


def _of_main_process(numbers: dict[str, float]) -> dict[str, float]:
    """The main process's numbers, in each process of a distributed training."""
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return numbers
    box = [numbers]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]
