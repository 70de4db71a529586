"""Compare two measurements of the same tokens, token by token.

Examples are a quantised or pruned checkpoint and its base, a fine-tune and its start, or bfloat16 and float32. Paired
tokens show smaller differences than two separate measurements do.
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

_BEFORE = 8  # tokens of context that are kept for each of the worst tokens


class OtherTokens(BadInput):
    """Two measurements cannot be paired because they did not score the same tokens."""


@dataclass(frozen=True)
class Change:
    """The change of one metric between two measurements.

    Attributes:
        metric: `ce`, or `rbp_<k>` such as `rbp_10`.
        a: the metric's value in the first measurement, in nats for CE and as a share of tokens for RBP_k.
        b: the metric's value in the second measurement.
        difference: b - a, with its error over documents.

    """

    metric: str
    a: float
    b: float
    difference: Estimate

    @property
    def worsening(self) -> Estimate:
        """How much worse the second measurement is: the rise of CE, or the fall of RBP_k."""
        if self.metric == CE:
            return self.difference
        return replace(self.difference, value=-self.difference.value)


@dataclass(frozen=True)
class ChangedToken:
    """A token with a lower probability in the second measurement than in the first.

    Attributes:
        document: number of the token's document.
        position: the token's index in the document.
        token: the token's id; -1 if the measurement was imported without ids.
        before: ids of the scored tokens directly before this one in the document, at most 8.
        rank_a: the token's rank in the first measurement.
        rank_b: the token's rank in the second measurement.
        instead: id of the token that the second measurement ranks first; -1 if unknown.
        nats: the rise of -ln p from the first measurement to the second.

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
    """Counts of changed tokens in each document of two measurements of the same tokens, (documents,) each.

    Attributes:
        moved: the number of tokens with different ranks in the two measurements.
        same_top: the number of tokens at which both measurements rank the same token first; NaN if a measurement does
            not hold the token that it ranks first.
        lost: the number of tokens with rank 1 in the first measurement and another rank in the second.
        gained: the number of tokens with rank 1 in the second measurement and another rank in the first.

    """

    SUMMED = ("moved", "same_top", "lost", "gained")

    moved: FloatArray
    same_top: FloatArray
    lost: FloatArray
    gained: FloatArray

    @classmethod
    def of(cls, a: RankTable, b: RankTable) -> PairCounts:
        """Count the changed tokens of one piece of whole documents. Both tables must hold the same tokens."""
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
    """The comparison of two measurements of the same tokens.

    A row of all counts is a document, or a group if groups are known. Rows are the units of intervals.

    Attributes:
        a: counts of tokens, nats and hits in the first measurement.
        b: counts of tokens, nats and hits in the second measurement.
        pairs: counts of the tokens that changed between the measurements.
        worst: the tokens with the largest fall in ln p, the largest fall first.

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
        """Share of tokens with different ranks in the two measurements."""
        return float(self.pairs.moved.sum() / self.tokens)

    @property
    def lost(self) -> float:
        """Share of tokens with rank 1 in the first measurement and another rank in the second."""
        return float(self.pairs.lost.sum() / self.tokens)

    @property
    def gained(self) -> float:
        """Share of tokens with rank 1 in the second measurement and another rank in the first."""
        return float(self.pairs.gained.sum() / self.tokens)

    @property
    def units(self) -> int:
        """The number of documents, or of groups if groups are known."""
        return len(self.a.tokens)

    @property
    def rises(self) -> FloatArray:
        """The rise of CE in each document or group, in nats per token, (units,)."""
        return (self.b.nats - self.a.nats) / self.a.tokens

    @property
    def same_top(self) -> Estimate:
        """Share of tokens at which both measurements rank the same token first, with its error.

        It is NaN if a measurement does not hold the token that it ranks first.
        """
        return estimate(np.column_stack([self.a.tokens, self.pairs.same_top]), _per_token)

    @property
    def flips(self) -> Estimate:
        """The share of gained tokens minus the share of lost tokens, with its error. It is the change of RBP_1."""
        return estimate(np.column_stack([self.a.tokens, self.pairs.gained - self.pairs.lost]), _per_token)

    @property
    def mcnemar(self) -> Estimate:
        """McNemar's test of `flips` for clustered data, with documents as clusters: `mcnemar.p()`.

        The variance is that under the hypothesis that as many tokens are gained as lost. If they differ, the interval
        of this estimate is too wide; use that of `flips`. Source: Obuchowski, Statistics in Medicine 17, 1998. This
        implementation replaces the normal distribution by Student's t.
        """
        net = self.pairs.gained - self.pairs.lost
        value = float(net.sum() / self.tokens)
        if len(net) < MIN_UNITS:
            return Estimate(value, df=nan)
        variance = float((net**2).sum() / self.tokens**2)
        sampling_df = float(degrees_of_freedom(net, self.a.tokens / self.tokens))
        return Estimate(value, variance, sampling_df=sampling_df, deciding=float(deciding(net)))

    def change(self, metric: str) -> Change:
        """Return the change of one metric.

        Args:
            metric: `ce`, or `rbp_<k>` for a k that was counted.

        Raises:
            ValueError: the k of the metric was not counted.

        """
        if metric == CE:
            a = self.a.nats
            b = self.b.nats
        else:
            column = [rbp_name(k) for k in self.a.ks].index(metric)
            a = self.a.hits[:, column]
            b = self.b.hits[:, column]
        difference = estimate(np.column_stack([self.a.tokens, b - a]), _per_token)
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
        a: rank tables of the first measurement, each of whole documents, such as `runs.rank_pieces(run)` yields.
        b: rank tables of the second measurement. They may be cut at other documents than those of `a`.
        ks: the k of RBP_k. Values above |V| are left out. If empty, only CE is compared.
        groups: the group of each document that has scored tokens, in the order of the documents. If empty, documents
            are the units of intervals.
        worst: the number of tokens to keep in `Changes.worst`.

    Raises:
        OtherTokens: the measurements did not score the same tokens, or ranked them among different candidates.
        BadInput: a k is below 1, or every k is above |V|.

    """
    counts_a: list[DocumentCounts] = []
    counts_b: list[DocumentCounts] = []
    pairs: list[PairCounts] = []
    tokens: list[ChangedToken] = []
    for left, right in _in_step(a, b):
        if not _same_tokens(left, right):
            raise OtherTokens("they did not score the same tokens. Compare measurements of one text and one tokenizer")
        if left.vocab_size != right.vocab_size:
            raise OtherTokens(f"one ranks among {left.vocab_size:,} candidates, the other among {right.vocab_size:,}")
        counted = [check_k(k, left.vocab_size) for k in sorted(set(ks)) if k <= left.vocab_size]
        if len(ks) and not counted:
            raise BadInput(f"k={min(ks):,}: k must be at most {left.vocab_size:,}, the number of candidates")
        counts_a.append(left.document_counts(counted))
        counts_b.append(right.document_counts(counted))
        pairs.append(PairCounts.of(left, right))
        tokens = sorted([*tokens, *_worst_tokens(left, right, worst)], key=lambda token: -token.nats)[:worst]
    if not pairs:
        raise OtherTokens("one of them has no scored tokens")
    return Changes(_joined(counts_a, groups), _joined(counts_b, groups), _joined(pairs, groups), tokens)


def _joined(parts: Sequence[T], groups: Sequence[str]) -> T:
    """Concatenate the counts of all pieces, and sum them by group if groups are given."""
    whole = parts[0].concatenate(parts)
    return whole.in_groups(groups) if len(groups) else whole


def _per_token(sums: FloatArray) -> FloatArray:
    """Divide a sum by the number of tokens. sums: the tokens and the sum, (..., 2). Returns (...)."""
    return np.asarray(sums[..., 1] / sums[..., 0])


RULE_OF_THREE = 3
"""The numerator of the rule of three. If no document of a sample of n is damaged, the 95% upper limit of the damaged
share of all documents is 3/n (Hanley and Lippman-Hand, JAMA 249, 1983).
"""

MIN_WITHIN = 100
"""The fewest documents that can rule out rare damage.

If 3% of all documents are damaged, a sample of 100 documents holds none of them in .97^100 = 4.8% of cases. Smaller
samples miss the damage in more than 5% of cases.
"""

Answer = Literal["worse", "within", "rare", "undecided"]


def judge(changes: Sequence[Change], tolerance: float, documents: int) -> Answer:
    """Judge whether the second measurement is worse than the first by more than a tolerance.

    Args:
        changes: the changes of the metrics that are tested together.
        tolerance: the tolerated change, in nats for CE and as a share of tokens for RBP_k; at least 0.
        documents: the number of compared documents, or of groups if groups are known.

    Returns:
        - `worse`: at least one metric is worse by more than the tolerance. The test is one-sided, at the 5% level, with
          Bonferroni's correction. (Holm's correction would give the same answer, because one rejection is enough.)
        - `within`: the 95% interval of every metric's worsening ends at or below the tolerance, and there are at least
          `MIN_WITHIN` documents. Metrics that improved are included.
        - `rare`: the intervals are as for `within`, but there are fewer than `MIN_WITHIN` documents. Damage to a few
          documents may have been missed.
        - `undecided`: none of these, for example because too few documents decide a change.

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
    if not within:
        return "undecided"
    return "within" if documents >= MIN_WITHIN else "rare"


def _worst_tokens(a: RankTable, b: RankTable, most: int) -> Iterator[ChangedToken]:
    """Yield at most `most` tokens of a piece: those with the largest fall in ln p, the largest fall first."""
    rise = _nats(b) - _nats(a)
    document = a.column("document")
    position = a.column("position")
    token = a.column_or("token", -1)
    instead = b.column_or("top", -1)
    for i in np.argsort(-rise, kind="stable")[:most]:
        if rise[i] <= 0:
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
            nats=float(rise[i]),
        )


def _nats(table: RankTable) -> FloatArray:
    """Return -ln p of every token, (tokens,)."""
    return -table.column("logprob").astype(np.float64)


def _same_tokens(a: RankTable, b: RankTable) -> bool:
    """Return whether both tables hold the same tokens. An unknown id (-1), as in some imports, counts as equal."""
    if len(a) != len(b):
        return False
    for name in ("document", "position"):
        if not np.array_equal(a.column(name), b.column(name)):
            return False
    token_a = a.column_or("token", -1)
    token_b = b.column_or("token", -1)
    return bool(((token_a == token_b) | (token_a < 0) | (token_b < 0)).all())


def _in_step(a: Iterable[RankTable], b: Iterable[RankTable]) -> Iterator[tuple[RankTable, RankTable]]:
    """Yield pairs of pieces that end at the same document. Pieces that end at different documents are cut.

    Raises OtherTokens if one measurement has documents after the last document of the other.
    """
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
        raise OtherTokens("one of them scored more documents than the other. Compare measurements of one text")


def _cut(table: RankTable, last: int) -> tuple[RankTable, RankTable | None]:
    """Split a table into the documents with numbers up to `last` and the later documents; None if there are none."""
    end = int(np.count_nonzero(table.column("document") <= last))
    rest = replace(table, table=table.table.slice(end))
    return replace(table, table=table.table.slice(0, end)), rest if len(rest) else None
