"""What tests build by hand: rank tables and measurements with a known law, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rbptrack.analysis.rank_store import RankTables
from rbptrack.ranks import RankTable


def rank_table(rank: npt.ArrayLike, *, documents: int = 1, vocab_size: int = 64, **columns: Any) -> RankTable:
    """A table of these ranks, in documents of one length, without ties and with ln p = -1; or as columns say."""
    ranks = np.ravel(np.asarray(rank))
    length = len(ranks) // documents
    filled: dict[str, Any] = {name: np.zeros(len(ranks)) for name in ("field", "token", "ties")}
    filled["document"] = np.repeat(np.arange(documents), length)
    filled["position"] = np.tile(np.arange(length), documents)
    filled["greater"] = ranks - 1
    filled["logprob"] = np.full(len(ranks), -1.0)
    return RankTable.from_arrays(vocab_size=vocab_size, **filled | columns)


class MemoryRankStore(RankTables):
    """Rank tables in memory by run ID, with the source of each document and the texts of tokens."""

    def __init__(
        self,
        tables: Mapping[str, RankTable],
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        texts: Mapping[int, str] | None = None,
    ) -> None:
        self.tables = dict(tables)
        super().__init__(self.tables)
        self._groups = groups or {}
        self._texts = texts or {}

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        return self._texts

    def groups(self, run_id: str) -> Sequence[str]:
        return self._groups.get(run_id, ())


def power_law_rank_table(
    s: float,
    *,
    documents: int = 30,
    tokens: int = 200,
    vocab_size: int = 512,
    alpha: float = 0.1,
    factor: float = 3.0,
    seed: int = 0,
) -> RankTable:
    """Ranks of a model of size s with -ln RBP_1 = factor * s^-alpha in expectation; ranks above 1 fall off as 1/rank.

    The texts are the same for every size of one seed: a token's difficulty, uniform in [0, 1), decides its rank.
    """
    rng = np.random.default_rng(seed)
    difficulty = rng.random(documents * tokens)
    hit = np.exp(-factor * s**-alpha)
    rest = np.maximum(difficulty - hit, 0) / (1 - hit)
    rank = np.where(difficulty < hit, 1, 2 + np.floor((vocab_size - 1) ** rest - 1)).astype(np.int64)
    logprob = -np.log(rank) - 0.5 * factor * s**-alpha
    return rank_table(np.minimum(rank, vocab_size), documents=documents, vocab_size=vocab_size, logprob=logprob)
