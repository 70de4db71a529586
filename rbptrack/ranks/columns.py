"""The columns of a rank table: type, meaning, and the metric of the run that each column gives.

To add a column, add a row to `COLUMNS` and compute it where `rbptrack.scoring` computes scores. A metric also needs a
field in the description of a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rbptrack.base.errors import RbptrackError
from rbptrack.base.formatting import listed

if TYPE_CHECKING:
    from rbptrack.ranks.table import RankTable


@dataclass(frozen=True)
class Column:
    """One column of a rank table.

    Attributes:
        dtype: the type of its values.
        meaning: what its values are, with their unit.
        compared: whether only a measurement with `reference=` has the column.
        metric: the name of the metric that the column gives to the run; empty if it gives none. The metric is a mean
            over all scored tokens.
        total: the sum over all tokens of a rank table, which the number of tokens divides to give the metric. The
            table has the column.

    """

    dtype: pa.DataType
    meaning: str
    compared: bool = False
    metric: str = ""
    total: Callable[[RankTable], float] | None = None


def _sum(name: str) -> Callable[[RankTable], float]:
    """Return a function that sums a column over all tokens, in float64."""
    return lambda table: float(table.column(name).sum(dtype=np.float64))


def _count_tied(table: RankTable) -> float:
    """Return the number of tokens with a logit that another entry has too."""
    return float(np.count_nonzero(table.column("ties")))


def _count_same_top(table: RankTable) -> float:
    """Return the number of tokens at which model and reference rank the same entry first."""
    return float(np.count_nonzero(table.column("top") == table.column("reference_top")))


COLUMNS = {
    "document": Column(pa.int32(), "the document's number in the selection, from 0"),
    "position": Column(pa.int32(), "the token's index in its tokenised document, from 0"),
    "field": Column(pa.int8(), "number of the dataset's field that holds the token, from 0"),
    "token": Column(pa.int32(), "the target's id in the vocabulary"),
    "greater": Column(pa.int32(), "number of entries with a logit strictly above the target's"),
    "ties": Column(
        pa.int32(), "number of other entries with a logit equal to the target's", metric="tie_rate", total=_count_tied
    ),
    "logprob": Column(pa.float32(), "ln p(target), nats"),
    "entropy": Column(pa.float32(), "entropy of the model's distribution, nats"),
    "top": Column(pa.int32(), "the id that the model ranks first (of tied entries, the smallest id)"),
    "top_logprob": Column(pa.float32(), "ln p(top), nats"),
    "kl": Column(pa.float32(), "KL(reference || model), nats", compared=True, metric="kl", total=_sum("kl")),
    "accept": Column(
        pa.float32(),
        "sum over v of min(p, q), the probability that the reference accepts this model's draft",
        compared=True,
        metric="acceptance",
        total=_sum("accept"),
    ),
    "reference_top": Column(
        pa.int32(),
        "the id that the reference ranks first (of tied entries, the smallest id)",
        compared=True,
        metric="same_top",
        total=_count_same_top,
    ),
    "reference_rank": Column(pa.int32(), "rank of `reference_top` in this model, ties included", compared=True),
}
"""All columns of a rank table by name, in their order.

A table that was measured without a reference does not have the columns that are `compared`. An imported table, or a
table from an engine that does not compute all scores, may lack other columns. If the number of ties is unknown, the
table has no column `ties`, and `greater` is the number of other entries with a logit at least as large as the target's.

Cross-entropy is not the metric of a column here. It is computed from the histogram of ranks.
"""

SCHEMA = pa.schema([(name, column.dtype) for name, column in COLUMNS.items()])
"""The Arrow schema of a rank table with all columns."""

COMPARED = tuple(name for name, column in COLUMNS.items() if column.compared)
"""The columns that only a measurement with `reference=` has.

They compare the distributions of the two models over the entries up to the tokenizer's largest id.
"""


COUNTED_COLUMNS = ("document", "greater", "ties", "logprob")
"""The columns from which CE and RBP_k are computed."""


class MissingColumn(RbptrackError):
    """A rank table does not have the requested column."""


def check_columns(columns: Sequence[str] | None) -> None:
    """Raise MissingColumn if no rank table can have one of the columns. Each has `rank`, which is computed."""
    known_columns = [*COLUMNS, "rank"]
    for name in columns or ():
        if name not in known_columns:
            raise MissingColumn(f"a rank table has no column {name}; its columns are {listed(known_columns)}")


def token_totals(table: RankTable) -> dict[str, float]:
    """Return the sum over all tokens for each metric that is a mean of a column of this table, by metric.

    The sums of several pieces of a table can be added. Divided by the number of tokens, they are the metrics.
    """
    present = set(table.table.column_names)
    return {
        column.metric: column.total(table)
        for name, column in COLUMNS.items()
        if column.total is not None and name in present
    }
