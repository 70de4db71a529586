"""A task's scores beside the statistics of a dataset's answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from rbptrack.ranks import FloatArray

from .ordering import Arrangement, Association, LeftOut
from .rows import ModelRow
from .solutions import PROXIES

CE = next(i for i, proxy in enumerate(PROXIES) if (proxy.statistic, proxy.weighting) == ("ce", "uniform"))
SIGNS = np.array([proxy.sign for proxy in PROXIES])


@dataclass(frozen=True)
class Answered:
    """The solutions of all models of a dataset that could be read."""

    dataset: str
    rows: pd.DataFrame  # of Runs.frame, one per model
    means: FloatArray  # (models, proxies), turned so that higher is better
    known: FloatArray  # share of long solutions ranked first throughout, (models,)


@dataclass(frozen=True)
class Task:
    """A task's scores of the models of a dataset, of every checkpoint."""

    name: str
    on: Answered
    rows: pd.DataFrame
    means: FloatArray
    scores: FloatArray
    last: npt.NDArray[np.bool_]  # whether a row is its model's last checkpoint: models, not checkpoints, are compared
    arrangement: Arrangement
    associations: list[Association]
    left_out: LeftOut | None

    @property
    def case(self) -> dict[str, str]:
        """What every row begins with."""
        return {"dataset": self.on.dataset, "task": self.name}

    @property
    def best(self) -> int:
        """The proxy of largest rank correlation."""
        return int(np.nanargmax([association.spearman for association in self.associations]))


def model_rows(task: Task) -> Iterator[ModelRow]:
    """Yield each model's score, its best proxy and its cross-entropy."""
    first = dict(zip(task.on.rows.index, task.on.known, strict=True))
    for i, (index, row) in enumerate(task.rows.iterrows()):
        yield ModelRow(
            **task.case,
            family=row["family"],
            model=row["model"],
            revision=row["revision"],
            score=task.scores[i],
            best=SIGNS[task.best] * task.means[i, task.best],
            ce=-task.means[i, CE],
            first=first[index],
        )
