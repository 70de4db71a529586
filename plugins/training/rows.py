"""Tables of the law in size and training tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd

from rbptrack.analysis.rows import R2, Column, NonEmbedding, OfMetric
from rbptrack.ranks import FloatArray, metric_label
from rbptrack.stats.intervals import Interval

from .training_law import TrainingLaw, design_condition

_LOW = "lower end of its interval (checkpoints of a model move together)"
Tokens = Annotated[float, Column("training tokens", title="D", form="short")]
Flops = Annotated[float, Column("compute, FLOPs (6 S D)", title="C", form=".3g")]
Ratio = Annotated[float, Column("tokens per parameter, D / S", title="D / S", form=".3g")]


@dataclass(kw_only=True)
class TrainingRow(OfMetric):
    """The law of one metric."""

    alpha: Annotated[Interval, Column("exponent of size S", title="α", form=".3f", low=_LOW)]
    beta: Annotated[Interval, Column("exponent of training tokens D", title="β", form=".3f")]
    E: Annotated[float, Column("irreducible term, in y's unit; 0: none is needed")]
    optimum: Annotated[
        Interval, Column("a of S*(C) ~ C^a, the best size at compute C = 6 S D: beta / (alpha + beta)", form=".2f")
    ]
    r2: R2
    between: Annotated[float, Column("scatter between models, in ln y", form=".4f")]
    within: Annotated[float, Column("scatter between checkpoints of a model, in ln y", form=".4f")]
    models: Annotated[int, Column("sizes")]
    checkpoints: Annotated[int, Column("points fitted")]
    starts_agree: Annotated[bool, Column("whether fits from several starts ended at the same exponents")]
    condition: Annotated[float, Column("of (ln S, ln D): 1 if unrelated; where D goes with S no law is fitted")]
    least_tokens_per_parameter: Annotated[float, Column("smallest D / S", title="D / S from", form=".3g")]
    most_tokens_per_parameter: Annotated[float, Column("largest D / S", title="to", form=".3g")]


@dataclass(kw_only=True)
class OptimalRow(OfMetric):
    """The best size at one compute."""

    C: Flops
    S: Annotated[float, Column("best size at it", title="S", form="short")]
    D: Tokens
    tokens_per_parameter: Ratio


@dataclass(kw_only=True)
class CheckpointRow(OfMetric):
    """One checkpoint under the law."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding
    D: Tokens
    C: Flops
    y: Annotated[float, Column("CE in nats, or -ln RBP_k")]
    residual: Annotated[float, Column("ln y - ln of the law")]


@dataclass(frozen=True)
class Fitted:
    """The law of one metric over the checkpoints of one family on one dataset."""

    keys: dict[str, Any]
    metric: str
    rows: pd.DataFrame
    s: FloatArray
    d: FloatArray
    y: FloatArray
    law: TrainingLaw

    @property
    def row_keys(self) -> dict[str, Any]:
        """Dataset, family and metric as a table has them."""
        return self.keys | {"metric": metric_label(self.metric)}

    @property
    def budgets(self) -> FloatArray:
        """Compute budgets within the measured range, (4,)."""
        low, high = np.quantile(6 * self.s * self.d, [0.25, 0.9])
        return np.geomspace(low, high, 4)


def law_row(fitted: Fitted) -> TrainingRow:
    """Return the law of one metric."""
    law = fitted.law
    per_parameter = fitted.d / fitted.s
    return TrainingRow(
        **fitted.row_keys,
        alpha=law.alpha,
        beta=law.beta,
        E=law.e,
        optimum=law.optimal,
        r2=law.r2,
        between=law.between,
        within=law.within,
        models=law.models,
        checkpoints=law.points,
        starts_agree=law.agreed,
        condition=design_condition(fitted.s, fitted.d),
        least_tokens_per_parameter=float(per_parameter.min()),
        most_tokens_per_parameter=float(per_parameter.max()),
    )


def optimal_rows(fitted: Fitted) -> Iterator[OptimalRow]:
    """Yield the best size at each compute budget."""
    for c, s in zip(fitted.budgets, fitted.law.optimal_size(fitted.budgets), strict=True):
        d = c / 6 / s
        yield OptimalRow(**fitted.row_keys, C=float(c), S=float(s), D=float(d), tokens_per_parameter=float(d / s))


def checkpoint_rows(fitted: Fitted) -> Iterator[CheckpointRow]:
    """Yield each checkpoint under the law."""
    residual = np.log(fitted.y) - np.log(fitted.law.predict(fitted.s, fitted.d))
    for i, size in enumerate(fitted.rows["size"]):
        s = float(fitted.s[i])
        d = float(fitted.d[i])
        yield CheckpointRow(
            **fitted.row_keys, size=str(size), S=s, D=d, C=6 * s * d, y=float(fitted.y[i]), residual=float(residual[i])
        )
