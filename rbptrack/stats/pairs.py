"""Two models on the same tokens, paired token by token: what they share, what changes, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from scipy import special

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import CE, DocumentSums, FloatArray, IntArray, RankTable, rbp_name
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval
from rbptrack.stats.shares import Share, decade_of, in_step, num_decades, share_of

ENTROPY = "entropy"
KL = "kl"
RANK = "ce_rank"
REST = "ce_rest"
PAIR_LABELS = {ENTROPY: ENTROPY, KL: "KL", RANK: "rank part of CE", REST: "rest of CE"}
"""What metrics of a pair are called, beside CE and RBP_k."""

NEAR = 0.1
"""Mean margin, nats, up to which a token that is lost or gained was nearly a tie: p of the two differ by 10%."""


class OtherTokens(RbptrackError):
    """Two measurements did not score the same tokens, so that they cannot be paired."""


@dataclass(frozen=True)
class TokenPairs:
    """A piece of text as two models scored it, the tokens in the same order.

    Attributes:
        a: the ranks of the one.
        b: of the other.

    """

    a: RankTable
    b: RankTable

    @property
    def worse_by(self) -> FloatArray:
        """-ln p(target) of b minus that of a, nats, (tokens,)."""
        return np.asarray(self.a.column("logprob").astype(np.float64) - self.b.column("logprob"))

    @property
    def margin(self) -> FloatArray:
        """Ln p(top) - ln p(target), the mean of both models, nats, (tokens,); NaN where a table does not say."""
        if min(self.a.version, self.b.version) == 1:
            return np.full(len(self.a), np.nan)
        margins = [
            table.column("top_logprob").astype(np.float64) - table.column("logprob") for table in (self.a, self.b)
        ]
        return np.asarray((margins[0] + margins[1]) / 2)

    @property
    def right(self) -> tuple[IntArray, IntArray]:
        """Whether the target has rank 1 in a, and in b, each (tokens,)."""
        return self.a.rank == 1, self.b.rank == 1


def paired(a: Iterable[RankTable], b: Iterable[RankTable]) -> Iterator[TokenPairs]:
    """Yield pieces of the same text as two models scored it.

    Raises:
        OtherTokens: they scored other tokens: another text, tokenizer or rule for sequences.

    """
    for left, right in in_step(a, b):
        if not _same_tokens(left, right):
            raise OtherTokens("they did not score the same tokens")
        yield TokenPairs(left, right)


def _same_tokens(a: RankTable, b: RankTable) -> bool:
    """Return whether both hold the same tokens, as far as their tables say: exports leave token ids out (-1)."""
    hidden = min(int(table.column("token").min(initial=0)) for table in (a, b)) < 0
    names = ("document", "position") if hidden else ("document", "position", "token")
    return len(a) == len(b) and all(np.array_equal(a.column(name), b.column(name)) for name in names)


@dataclass(frozen=True)
class PairSums(DocumentSums):
    """Counts of two models, by document.

    Attributes:
        ks: the k of `hits_a` and `hits_b`.
        document: numbers of the documents, ascending, (documents,).
        tokens: scored tokens, (documents,).
        moved: tokens whose ranks differ, (documents,).
        same_top: tokens at which both rank the same token first, (documents,); NaN where a table does not say.
        lost: tokens that a ranks first and b does not, (documents,).
        gained: tokens that b ranks first and a does not, (documents,).
        nats_a: sums of -ln p(target), (documents,).
        nats_b: that of b.
        rank_a: sums of ln R, the part of the loss that ranks fix, nats, (documents,).
        rank_b: sums of ln R of b.
        rest_a: sums of -ln(p R), the rest of the loss, (documents,).
        rest_b: sums of -ln(p R) of b.
        decided: tokens gained minus tokens lost, each by the mean of both models' margins, nats, (documents,); NaN if
            a table does not say. A margin is ln p(top) - ln p(target). One model's alone would regress to the mean.
        near: tokens lost or gained at a tie or nearly one: the mean margin is at most `NEAR`, (documents,).
        entropy_a: sums of the distribution's entropy, nats, (documents,); NaN where a table does not say.
        entropy_b: that of b.
        kl_a: sums of KL to the reference, nats, (documents,); NaN without a reference.
        kl_b: that of b; comparable where the reference is the same.
        hits_a: tokens with rank <= k, (documents, len(ks)).
        hits_b: that of b.
        moves: tokens by the decade of their rank in a and in b: 1, 2 to 10, 11 to 100, ..., (decades, decades).

    """

    LABELS: ClassVar = ("document",)
    SUMMED: ClassVar = ("rank_a", "rank_b", "rest_a", "rest_b", "decided", "near",
                        "tokens", "moved", "same_top", "lost", "gained", "nats_a", "nats_b", "entropy_a", "entropy_b",
                        "kl_a", "kl_b", "hits_a", "hits_b")  # fmt: skip
    TOTALS: ClassVar = ("moves",)

    ks: tuple[int, ...]
    document: IntArray
    rank_a: FloatArray
    rank_b: FloatArray
    rest_a: FloatArray
    rest_b: FloatArray
    decided: FloatArray
    near: FloatArray
    tokens: FloatArray
    moved: FloatArray
    same_top: FloatArray
    lost: FloatArray
    gained: FloatArray
    nats_a: FloatArray
    nats_b: FloatArray
    entropy_a: FloatArray
    entropy_b: FloatArray
    kl_a: FloatArray
    kl_b: FloatArray
    hits_a: FloatArray
    hits_b: FloatArray
    moves: IntArray

    @classmethod
    def of(cls, pair: TokenPairs, ks: Sequence[int]) -> PairSums:
        """Count one piece."""
        present, place = pair.a.documents
        size = len(present)
        unknown = np.full(len(pair.a), np.nan)

        def by_document(values: FloatArray | IntArray) -> FloatArray:
            return np.bincount(place, weights=values, minlength=size)

        def known(table: RankTable, name: str) -> FloatArray:
            return table.column(name).astype(np.float64) if name in table.table.column_names else unknown

        tops = known(pair.a, "top"), known(pair.b, "top")
        unnamed = np.isnan(tops[0] + tops[1]) | (np.minimum(*tops) < 0)
        same = np.where(unnamed, np.nan, tops[0] == tops[1])
        right_a, right_b = pair.right
        gained = (right_b & ~right_a).astype(np.float64) - (right_a & ~right_b)
        margin = pair.margin
        decades = [decade_of(table.rank) for table in (pair.a, pair.b)]
        count = num_decades(pair.a.vocab_size)
        moves = np.bincount(decades[0] * count + decades[1], minlength=count**2).reshape(count, count)
        hits = [np.column_stack([by_document(table.rank <= k) for k in ks]) for table in (pair.a, pair.b)]
        return cls(
            ks=tuple(ks),
            document=present.astype(np.int64),
            rank_a=by_document(np.log(pair.a.rank)),
            rank_b=by_document(np.log(pair.b.rank)),
            rest_a=by_document(-pair.a.column("logprob").astype(np.float64) - np.log(pair.a.rank)),
            rest_b=by_document(-pair.b.column("logprob").astype(np.float64) - np.log(pair.b.rank)),
            decided=by_document(gained * margin),
            near=by_document(np.where(np.isnan(margin), np.nan, (gained != 0) & (margin <= NEAR))),
            tokens=by_document(np.ones(len(pair.a))),
            moved=by_document(pair.a.rank != pair.b.rank),
            same_top=by_document(same),
            lost=by_document(right_a & ~right_b),
            gained=by_document(right_b & ~right_a),
            nats_a=by_document(-pair.a.column("logprob").astype(np.float64)),
            nats_b=by_document(-pair.b.column("logprob").astype(np.float64)),
            entropy_a=by_document(known(pair.a, ENTROPY)),
            entropy_b=by_document(known(pair.b, ENTROPY)),
            kl_a=by_document(known(pair.a, KL)),
            kl_b=by_document(known(pair.b, KL)),
            hits_a=hits[0],
            hits_b=hits[1],
            moves=moves,
        )

    @property
    def agreement(self) -> Share:
        """The share of tokens at which both rank the same token first."""
        return share_of(self.same_top, self.tokens)

    def changes(self) -> dict[str, Change]:
        """Return metric -> its value in a and in b, and the difference: CE and its parts, entropy and KL where known,
        every RBP_k.
        """
        sums = {CE: (self.nats_a, self.nats_b), ENTROPY: (self.entropy_a, self.entropy_b), KL: (self.kl_a, self.kl_b)}
        sums |= {RANK: (self.rank_a, self.rank_b), REST: (self.rest_a, self.rest_b)}
        sums |= {rbp_name(k): (self.hits_a[:, i], self.hits_b[:, i]) for i, k in enumerate(self.ks)}
        total = self.tokens.sum()
        return {
            metric: Change(a.sum() / total, b.sum() / total, share_of(b - a, self.tokens))
            for metric, (a, b) in sums.items()
            if np.isfinite(a.sum() + b.sum())
        }

    def rank_share(self, level: float) -> Interval:
        """Return the share of the change of CE that is its rank part's; NaN where CE does not change significantly.

        Source: Fieller, Journal of the Royal Statistical Society B 16, 1954, for a ratio of means over documents; the
        ends are finite because the change is significant at this level.
        """
        change = share_of(self.nats_b - self.nats_a, self.tokens)
        rank = share_of(self.rank_b - self.rank_a, self.tokens)
        if not change.p < 1 - level or change.spread is None:
            return Interval(np.nan)
        t2 = (change.spread.half(level) / change.spread.se) ** 2 if change.spread.se else 0.0
        a = change.value**2 - t2 * (change.influence**2).sum()
        b = change.value * rank.value - t2 * (change.influence * rank.influence).sum()
        c = rank.value**2 - t2 * (rank.influence**2).sum()
        half = np.sqrt(max(b**2 - a * c, 0.0))
        return Interval(rank.value / change.value, float((b - half) / a), float((b + half) / a))

    def p_flips(self) -> float:
        """Return P of as many tokens lost as gained: McNemar's test for tokens that come in documents.

        Source: the clustered statistic of Obuchowski, Statistics in Medicine 17, 1998, for pairs whose variance is that
        of the null hypothesis; here with a t distribution. NaN with fewer than 10 documents, or without a flip.
        """
        net = self.gained - self.lost
        if len(net) < LEAST_DOCUMENTS or not net.any():
            return float("nan")
        return float(2 * special.stdtr(len(net) - 1, -abs(net.sum()) / np.sqrt((net**2).sum())))


@dataclass(frozen=True)
class Change:
    """A metric in both models, and b's less a's."""

    a: float
    b: float
    difference: Share


def decade_names(count: int) -> list[str]:
    """Return `1`, `2 to 10`, `11 to 100`, ..."""
    ends = [10**i for i in range(count)]
    return ["1", *(f"{low + 1:,} to {high:,}" for low, high in pairwise(ends))]
