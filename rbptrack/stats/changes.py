"""Two measurements of the same tokens, paired token by token: what changes from the first to the second.

For a quantised or pruned checkpoint against its base, a fine-tune against its start, bfloat16 against float32. Pairing
shows a difference that two separate measurements cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Literal, TypeVar

import numpy as np

from rbptrack.base.errors import BadInput
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, DocumentSums, FloatArray, RankTable, check_k, rbp_name
from rbptrack.stats.documents import MIN_UNITS, deciding, degrees_of_freedom, estimate
from rbptrack.stats.estimate import Estimate

T = TypeVar("T", bound=DocumentSums)

_BEFORE = 8  # tokens that are shown before one of the worst


class OtherTokens(BadInput):
    """Two measurements did not score the same tokens, so that they cannot be paired."""


@dataclass(frozen=True)
class Change:
    """A metric in both measurements.

    Attributes:
        metric: `ce` in nats, or `rbp_10`.
        a: its value in the first.
        b: in the second.
        difference: b - a, with its error over documents.

    """

    metric: str
    a: float
    b: float
    difference: Estimate

    @property
    def worsening(self) -> Estimate:
        """How much worse the second is: the rise of CE, or the fall of RBP_k."""
        if self.metric == CE:
            return self.difference
        return replace(self.difference, value=-self.difference.value)


@dataclass(frozen=True)
class ChangedToken:
    """A token whose probability fell.

    Attributes:
        document: number of its document.
        position: its index there.
        token: its id; -1 where an import does not say.
        before: ids of the scored tokens before it in its document, at most 8.
        rank_a: its rank in the first.
        rank_b: in the second.
        instead: id of what the second ranks first; -1 where its table does not say.
        nats: -ln p in the second less that in the first.

    """

    document: int
    position: int
    token: int
    before: tuple[int, ...]
    rank_a: int
    rank_b: int
    instead: int
    nats: float


@dataclass(frozen=True)
class PairCounts(DocumentSums):
    """Tokens of two measurements by document, (documents,) each.

    Attributes:
        moved: whose ranks differ.
        same_top: at which both rank the same first; NaN where a table does not say.
        lost: with rank 1 in a and not in b.
        gained: with rank 1 in b and not in a.

    """

    SUMMED = ("moved", "same_top", "lost", "gained")

    moved: FloatArray
    same_top: FloatArray
    lost: FloatArray
    gained: FloatArray

    @classmethod
    def of(cls, a: RankTable, b: RankTable) -> PairCounts:
        """Count a piece of whole documents; both tables hold the same tokens."""
        top_a = a.column_or("top", -1)
        top_b = b.column_or("top", -1)
        unknown = (top_a < 0) | (top_b < 0)
        right_a = a.rank == 1
        right_b = b.rank == 1
        return cls(
            moved=a.sum_by_document(a.rank != b.rank),
            same_top=a.sum_by_document(np.where(unknown, nan, top_a == top_b)),
            lost=a.sum_by_document(right_a & ~right_b),
            gained=a.sum_by_document(right_b & ~right_a),
        )


@dataclass(frozen=True)
class Changes:
    """What changes from one measurement to another of the same tokens.

    Attributes:
        a: counts of the first by document, or by group where groups are known: the unit of every interval.
        b: of the second.
        pairs: of both.
        worst: the tokens whose probability fell most.

    """

    a: DocumentCounts
    b: DocumentCounts
    pairs: PairCounts
    worst: list[ChangedToken]

    @property
    def tokens(self) -> int:
        """The number of scored tokens."""
        return int(self.a.tokens.sum())

    @property
    def moved(self) -> float:
        """Share of tokens whose ranks differ."""
        return float(self.pairs.moved.sum() / self.tokens)

    @property
    def lost(self) -> float:
        """Share of tokens with rank 1 in the first and not in the second."""
        return float(self.pairs.lost.sum() / self.tokens)

    @property
    def gained(self) -> float:
        """Share of tokens with rank 1 in the second and not in the first."""
        return float(self.pairs.gained.sum() / self.tokens)

    @property
    def same_top(self) -> Estimate:
        """Share of tokens at which both rank the same token first; NaN where a table does not say."""
        return estimate(np.column_stack([self.pairs.same_top, self.a.tokens]), _per_token)

    @property
    def flips(self) -> Estimate:
        """`gained` - `lost`, with the variance of as many gained as lost: its p of 0 is McNemar's test by documents.

        Source: Obuchowski, Statistics in Medicine 17, 1998, with t for the normal.
        """
        net = self.pairs.gained - self.pairs.lost
        value = float(net.sum() / self.tokens)
        if len(net) < MIN_UNITS:
            return Estimate(value, df=nan)
        variance = float((net**2).sum() / self.tokens**2)
        sampling_df = float(degrees_of_freedom(net))
        return Estimate(value, variance, sampling_df=sampling_df, deciding=float(deciding(net)))

    def change(self, metric: str) -> Change:
        """The change of `ce`, or of `rbp_<k>` for one of the ks."""
        if metric == CE:
            a = self.a.nats
            b = self.b.nats
        else:
            column = [rbp_name(k) for k in self.a.ks].index(metric)
            a = self.a.hits[:, column]
            b = self.b.hits[:, column]
        difference = estimate(np.column_stack([b - a, self.a.tokens]), _per_token)
        return Change(metric, a=float(a.sum() / self.tokens), b=float(b.sum() / self.tokens), difference=difference)

    @property
    def changes(self) -> list[Change]:
        """The changes of CE and of RBP_k at every k."""
        return [self.change(metric) for metric in (CE, *map(rbp_name, self.a.ks))]


def compare(
    a: Iterable[RankTable],
    b: Iterable[RankTable],
    *,
    ks: Sequence[int] = HEADLINE_KS,
    groups: Sequence[str] = (),
    worst: int = 10,
) -> Changes:
    """Compare two measurements of the same tokens.

    Args:
        a: the first, in pieces of whole documents, such as `runs.rank_pieces(run)`.
        b: the second; its pieces may end elsewhere.
        ks: the k of RBP_k; those above |V| are left out. Without any, CE alone is compared.
        groups: the group of each document with scored tokens, in their order; empty: documents are the unit.
        worst: how many of the tokens whose probability fell most are kept.

    Raises:
        OtherTokens: they did not score the same tokens among the same candidates.
        BadInput: a k is below 1, or every k above |V|.

    """
    counts_a: list[DocumentCounts] = []
    counts_b: list[DocumentCounts] = []
    pairs: list[PairCounts] = []
    tokens: list[ChangedToken] = []
    for left, right in _in_step(a, b):
        if not _same_tokens(left, right):
            raise OtherTokens("they did not score the same tokens: compare measurements of one text and one tokenizer")
        if left.vocab_size != right.vocab_size:
            raise OtherTokens(f"one ranks among {left.vocab_size:,} candidates, the other among {right.vocab_size:,}")
        counted = [check_k(k, left.vocab_size) for k in sorted(set(ks)) if k <= left.vocab_size]
        if len(ks) and not counted:
            raise BadInput(f"k must be at most {left.vocab_size:,}, the number of candidates; got {min(ks):,}")
        counts_a.append(left.document_counts(counted))
        counts_b.append(right.document_counts(counted))
        pairs.append(PairCounts.of(left, right))
        tokens = sorted([*tokens, *_fallen(left, right, worst)], key=lambda token: -token.nats)[:worst]
    if not pairs:
        raise OtherTokens("one of them holds no token")
    return Changes(_joined(counts_a, groups), _joined(counts_b, groups), _joined(pairs, groups), tokens)


def _joined(parts: Sequence[T], groups: Sequence[str]) -> T:
    """The counts of all pieces; by group, where the groups of the documents are given."""
    whole = parts[0].concatenate(parts)
    return whole.in_groups(groups) if len(groups) else whole


def _per_token(sums: FloatArray) -> FloatArray:
    """Of sums and tokens, (..., 2) -> (...)."""
    return np.asarray(sums[..., 0] / sums[..., 1])


Answer = Literal["worse", "within", "undecided"]


def judge(changes: Sequence[Change], tolerance: float) -> Answer:
    """Whether the second measurement is worse than the first by more than a tolerance.

    Args:
        changes: of the metrics that are tested together.
        tolerance: nats of CE, and share of the tokens of RBP_k; at least 0.

    Returns:
        `worse`: some metric is worse by more, one-sided, at the 5% level corrected by Bonferroni (which here is Holm's
        first step, the one that decides whether there is any). `within`: the 95% interval of every metric ends below
        the tolerance, as it does where the second is better. `undecided`: the documents, or those that decide a
        change, are too few to tell.

    """
    within = True
    for change in changes:
        worse_by = change.worsening
        p = worse_by.p(tolerance)
        one_sided = p / 2 if worse_by.value > tolerance else 1 - p / 2
        if one_sided * len(changes) < 0.05:
            return "worse"
        _, high = worse_by.interval()
        within = within and worse_by.testable and high <= tolerance
    return "within" if within else "undecided"


def _fallen(a: RankTable, b: RankTable, most: int) -> Iterator[ChangedToken]:
    """The tokens of a piece whose probability fell most, the largest fall first."""
    fall = _nats(b) - _nats(a)
    document = a.column("document")
    position = a.column("position")
    token = a.column_or("token", -1)
    instead = b.column_or("top", -1)
    for i in np.argsort(-fall, kind="stable")[:most]:
        if fall[i] <= 0:
            return
        start = max(0, i - _BEFORE)
        before = token[start:i][document[start:i] == document[i]]
        yield ChangedToken(
            document=int(document[i]),
            position=int(position[i]),
            token=int(token[i]),
            before=tuple(before.tolist()),
            rank_a=int(a.rank[i]),
            rank_b=int(b.rank[i]),
            instead=int(instead[i]),
            nats=float(fall[i]),
        )


def _nats(table: RankTable) -> FloatArray:
    return -table.column("logprob").astype(np.float64)


def _same_tokens(a: RankTable, b: RankTable) -> bool:
    """Whether both hold the same tokens, as far as they say: imports and exports may leave ids out (-1)."""
    if len(a) != len(b):
        return False
    for name in ("document", "position"):
        if not np.array_equal(a.column(name), b.column(name)):
            return False
    token_a = a.column_or("token", -1)
    token_b = b.column_or("token", -1)
    return bool(((token_a == token_b) | (token_a < 0) | (token_b < 0)).all())


def _in_step(a: Iterable[RankTable], b: Iterable[RankTable]) -> Iterator[tuple[RankTable, RankTable]]:
    """Yield both tables, given in pieces of whole documents, as pieces that end at the same documents."""
    pieces = filter(len, a), filter(len, b)  # a table without rows is one piece without documents
    left = next(pieces[0], None)
    right = next(pieces[1], None)
    while left is not None and right is not None:
        last = min(int(left.documents[0][-1]), int(right.documents[0][-1]))
        first_left, left = _cut(left, last)
        first_right, right = _cut(right, last)
        yield first_left, first_right
        left = left or next(pieces[0], None)
        right = right or next(pieces[1], None)
    if left is not None or right is not None:
        raise OtherTokens("one of them scored more documents than the other: compare measurements of one text")


def _cut(table: RankTable, last: int) -> tuple[RankTable, RankTable | None]:
    """The documents up to a number, and those after it."""
    end = int(np.count_nonzero(table.column("document") <= last))
    rest = replace(table, table=table.table.slice(end))
    return replace(table, table=table.table.slice(0, end)), rest if len(rest) else None
