"""Rank tables with given ranks, rank tables whose ranks follow a known law in size, and a store that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rbptrack.analysis.rank_store import RankTables
from rbptrack.ranks import RankTable


def rank_table(rank: npt.ArrayLike, *, documents: int = 1, vocab_size: int = 64, **columns: Any) -> RankTable:
    """Make a rank table with given ranks.

    Args:
        rank: the ranks of all tokens, document after document, in an array of any shape.
        documents: the number of documents. All have the same length.
        vocab_size: |V|.
        **columns: columns of the table, (tokens,), that replace the defaults. By default there are no ties, ln p is -1,
            and every token has id 0.
    """
    ranks = np.ravel(np.asarray(rank))
    length = len(ranks) // documents
    defaults: dict[str, Any] = {name: np.zeros(len(ranks)) for name in ("field", "token", "ties")}
    defaults["document"] = np.repeat(np.arange(documents), length)
    defaults["position"] = np.tile(np.arange(length), documents)
    defaults["greater"] = ranks - 1
    defaults["logprob"] = np.full(len(ranks), -1.0)
    return RankTable.from_arrays(vocab_size=vocab_size, **defaults | columns)


class MemoryRankStore(RankTables):
    """A store in memory: rank tables by run ID, the group of each document by run ID, and the texts of tokens by id."""

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
    """Make the rank table of a simulated model of size s, for which -ln RBP_1 is about factor * s^-alpha.

    Every token has a random difficulty, uniform in [0, 1), which depends on the seed and not on s. Tables of one seed
    therefore stand for models of several sizes on the same texts. A token is ranked first if its difficulty is below
    RBP_1. The frequency of the other ranks falls as 1 / rank.

    Args:
        s: the number of parameters without embeddings.
        documents: the number of documents.
        tokens: the number of tokens in each document.
        vocab_size: |V|.
        alpha: the exponent of the law.
        factor: the factor of the law.
        seed: the seed of the difficulties.
    """
    rng = np.random.default_rng(seed)
    difficulty = rng.random(documents * tokens)
    rbp_1 = np.exp(-factor * s**-alpha)
    rescaled = np.maximum(difficulty - rbp_1, 0) / (1 - rbp_1)  # uniform in [0, 1) if the token is not ranked first
    rank = np.where(difficulty < rbp_1, 1, 2 + np.floor((vocab_size - 1) ** rescaled - 1)).astype(np.int64)
    logprob = -np.log(rank) - 0.5 * factor * s**-alpha
    return rank_table(np.minimum(rank, vocab_size), documents=documents, vocab_size=vocab_size, logprob=logprob)
