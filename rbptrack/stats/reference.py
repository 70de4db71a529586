"""A model beside its reference, by document: KL, acceptance as a draft of it, and its rank of what that ranks first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankTable
from rbptrack.stats.shares import Share, decade_of, num_decades, share_of


@dataclass(frozen=True)
class ReferenceSums(DocumentSums):
    """The counts of a measurement with a reference, by document.

    A draft of `longest` tokens begins at every scored token after which as many more are scored without a gap. It is
    accepted up to its first rejection: by sampling with probability sum of min(p, q) each, or by a tree of k branches
    where the reference's first token is among the model's first k.

    Attributes:
        ks: the k of `hits`, and of the ways 1, 2, ... of `accepted`; way 0 is sampling.
        document: numbers of the documents, ascending, (documents,).
        tokens: scored tokens, (documents,).
        kl: sums of KL(reference || model), nats, (documents,).
        accept: sums of sum over v of min(p, q), (documents,).
        same_top: tokens at which both rank the same first, (documents,).
        hits: tokens at which the reference's first has rank <= k in the model, (documents, len(ks)).
        starts: drafts, (documents,).
        accepted: sums over drafts of the probability that their first j tokens are accepted, j = 1..longest,
            (documents, 1 + len(ks), longest).
        choices: tokens at which the two rank different tokens first, by the decade of the rank in the model of what the
            reference ranks first, (decades,).

    """

    LABELS: ClassVar = ("document",)
    SUMMED: ClassVar = ("tokens", "kl", "accept", "same_top", "hits", "starts", "accepted")
    TOTALS: ClassVar = ("choices",)

    ks: tuple[int, ...]
    document: IntArray
    tokens: FloatArray
    kl: FloatArray
    accept: FloatArray
    same_top: FloatArray
    hits: FloatArray
    starts: FloatArray
    accepted: FloatArray
    choices: FloatArray

    @classmethod
    def of(cls, table: RankTable, ks: Sequence[int], *, longest: int = 1) -> ReferenceSums:
        """Count a table, or a piece of whole documents.

        Raises:
            LacksColumn: it was measured without a reference.

        """
        present, place = table.documents
        kl, accept, rank = (table.column(name) for name in ("kl", "accept", "reference_rank"))
        same = table.column("top") == table.column("reference_top")

        def by_document(values: FloatArray | IntArray, where: IntArray = place) -> FloatArray:
            return np.bincount(where, weights=values, minlength=len(present))

        begin = _starts(place, table.column("position"), longest)
        ways = [accept.astype(np.float64), *(rank <= k for k in ks)]
        accepted = np.zeros((len(present), len(ways), longest))
        for way, chance in enumerate(ways):
            together = np.ones(len(begin))
            for j in range(longest):
                together = together * chance[begin + j]
                accepted[:, way, j] = by_document(together, place[begin])
        return cls(
            ks=tuple(ks),
            document=present.astype(np.int64),
            tokens=by_document(np.ones(len(place))),
            kl=by_document(kl.astype(np.float64)),
            accept=by_document(ways[0]),
            same_top=by_document(same),
            hits=np.column_stack([by_document(rank <= k) for k in ks]),
            starts=by_document(np.ones(len(begin)), place[begin]),
            accepted=accepted,
            choices=np.bincount(decade_of(rank[~same]), minlength=num_decades(table.vocab_size)).astype(float),
        )

    def per_token(self, values: FloatArray) -> Share:
        """Return sums by document, (documents,), as a mean over tokens with its error over documents."""
        return share_of(values, self.tokens)

    def run(self, way: int, length: int) -> Share:
        """Return accepted tokens that a draft of so many is expected to give, with the error over documents."""
        if not self.starts.any():
            return Share(float("nan"), None, np.zeros(len(self.starts)))
        return share_of(self.accepted[:, way, :length].sum(axis=1), self.starts)


def _starts(document: IntArray, position: IntArray, length: int) -> IntArray:
    """Return places of the tokens after which length - 1 more follow in the same document without a gap."""
    last = np.arange(length - 1, len(position))
    first = last - (length - 1)
    whole = (document[first] == document[last]) & (position[last] - position[first] == length - 1)
    return np.asarray(first[whole])
