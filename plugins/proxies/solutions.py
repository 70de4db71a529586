"""Statistics of a model's tokens in known answers, and how well they order models by a task's scores.

In the manner of arXiv 2605.18607: token-level statistics over expert-written solutions order models by downstream
accuracy. The definitions here are ours. A statistic is averaged within a solution by a weighting, then over solutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import FloatArray, IntArray, RankTable, rbp_name

STATISTICS = ("p", "ce", "entropy", "rbp", "log_rank", "inverse_rank", "margin", "share_first")
"""Per token: p(target), -ln p(target), the entropy, R <= k, ln R, 1/R, ln p(top) - ln p(target), R = 1."""

WEIGHTINGS = ("uniform", "entropy", "rarity", "position")
"""Of a solution's tokens: all alike; by the model's entropy there; by -ln of the token's frequency in the corpus; by
their place in the solution, 1 for the first, 2 for the second, ..."""

LOWER_IS_BETTER = frozenset({"ce", "entropy", "log_rank", "margin"})


@dataclass(frozen=True)
class Proxy:
    """A statistic and a weighting."""

    statistic: str
    weighting: str

    @property
    def sign(self) -> int:
        """1 where a higher value should go with a higher score, -1 where a lower one should."""
        return -1 if self.statistic in LOWER_IS_BETTER else 1


PROXIES = tuple(Proxy(statistic, weighting) for statistic in STATISTICS for weighting in WEIGHTINGS)


def rarity(occurrences: IntArray) -> FloatArray:
    """Return -ln of every token's frequency in a corpus, from how often each id is a target, (|V|,); at least once."""
    seen = np.maximum(occurrences, 1).astype(np.float64)
    return np.asarray(np.log(seen.sum()) - np.log(seen))


@dataclass(frozen=True)
class Solutions:
    """The proxies of one model, solution by solution.

    Attributes:
        document: numbers of the documents that have a solution, ascending, (solutions,).
        values: of each proxy in the order of `PROXIES`, (solutions, proxies); NaN where the table lacks a column.
        first: whether every token of the solution is ranked first, (solutions,).
        tokens: of each solution, (solutions,).

    """

    document: IntArray
    values: FloatArray
    first: npt.NDArray[np.bool_]
    tokens: IntArray

    @classmethod
    def of(cls, table: RankTable, field: int, rare: FloatArray, *, k: int) -> Solutions:
        """Count a piece of whole documents.

        Args:
            table: the ranks.
            field: the number of the dataset's field that holds solutions.
            rare: `rarity` of every token.
            k: of RBP_k.

        """
        inside = table.column("field") == field
        document, place, size = np.unique(table.column("document")[inside], return_inverse=True, return_counts=True)
        rank = table.rank[inside].astype(np.float64)
        logprob = table.column("logprob")[inside].astype(np.float64)
        unknown = np.full(len(rank), np.nan)
        late = table.version > 1
        entropy = table.column("entropy")[inside].astype(np.float64) if late else unknown
        margin = table.column("top_logprob")[inside].astype(np.float64) - logprob if late else unknown
        value: Mapping[str, FloatArray] = {
            "p": np.exp(logprob), "ce": -logprob, "entropy": entropy, "rbp": rank <= k, "log_rank": np.log(rank),
            "inverse_rank": 1 / rank, "margin": margin, "share_first": rank == 1,
        }  # fmt: skip
        starts = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)
        weight: Mapping[str, FloatArray] = {
            "uniform": np.ones(len(rank)),
            "entropy": entropy,
            "rarity": rare[table.column("token")[inside]],
            "position": np.arange(len(rank)) - starts[place] + 1.0,
        }

        def mean(proxy: Proxy) -> FloatArray:
            w = weight[proxy.weighting]
            total = np.bincount(place, weights=w, minlength=len(document))
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.asarray(
                    np.bincount(place, weights=w * value[proxy.statistic], minlength=len(document)) / total
                )

        values = np.column_stack([mean(proxy) for proxy in PROXIES]) if len(rank) else np.empty((0, len(PROXIES)))
        first = np.bincount(place, weights=rank > 1, minlength=len(document)) == 0
        return cls(document.astype(np.int64), values, first, size)

    @classmethod
    def concatenate(cls, parts: Sequence[Solutions]) -> Solutions:
        """Join the solutions of disjoint documents."""
        names = ("document", "values", "first", "tokens")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def means(self) -> FloatArray:
        """Each proxy averaged over solutions, (proxies,)."""
        return np.asarray(self.values.mean(axis=0))


def label(proxy: Proxy, k: int) -> str:
    """Return the name in tables: `rbp_10`, `ce by rarity`."""
    statistic = rbp_name(k) if proxy.statistic == "rbp" else proxy.statistic
    return statistic if proxy.weighting == "uniform" else f"{statistic} by {proxy.weighting}"
