"""Compare two measurements of the same tokens, token by token.

Examples are a quantised or pruned checkpoint and its base, a fine-tuned model and its start, or bfloat16 and float32. A
comparison of each token with itself can show smaller differences than a comparison of two averages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Literal, TypeVar

import numpy as np

from rbptrack.base.errors import BadInput
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, DocumentSums, FloatArray, RankTable, rbp_name
from rbptrack.ranks.names import check_k
from rbptrack.stats.documents import MIN_UNITS, deciding_documents, degrees_of_freedom, estimate
from rbptrack.stats.estimate import LEVEL, Estimate

SumsT = TypeVar("SumsT", bound=DocumentSums)

RULE_OF_THREE = 3
"""The numerator of the rule of three.

If none of n sampled documents is damaged, the 95% upper limit of the damaged share of all documents is 3/n (Hanley and
Lippman-Hand, JAMA 249, 1983).
"""

MIN_WITHIN = 100
"""The fewest documents that can rule out rare damage.

If 3% of all documents are damaged, a sample of 100 documents holds none of them in .97^100 = 4.8% of cases. Smaller
samples miss the damage in more than 5% of cases.
"""

CE_ROUNDING = 3e-5
"""The largest difference of CE, in nats per token, that the rounding of log-probabilities in float32 can make.

Two engines or two processors compute the same log-probability with different rounding errors, and these may have one
sign at most tokens.
"""

_CONTEXT_TOKENS = 8  # the most preceding tokens that are kept with each of the worst tokens


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

    @property
    def test(self) -> tuple[float, float]:
        """The null value and the margin of the test of the difference.

        A difference of CE of at most `CE_ROUNDING` is no difference. If the whole interval lies within it, the margin
        is `CE_ROUNDING`. Otherwise the null value is the nearest value that is no difference, and there is no margin.
        """
        if self.metric != CE:
            return 0.0, nan
        low, high = self.difference.interval()
        if -CE_ROUNDING <= low <= high <= CE_ROUNDING:
            return 0.0, CE_ROUNDING
        return min(max(self.difference.value, -CE_ROUNDING), CE_ROUNDING), nan


@dataclass(frozen=True)
class ChangedToken:
    """A token with a lower probability in the second measurement than in the first.

    Attributes:
        document: number of the token's document.
        position: the token's index in the document.
        token: the token's id; -1 if the measurement was imported without ids.
        before: ids of the scored tokens directly before this one in its document, at most 8.
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
    """Numbers of changed tokens in each document of two measurements of the same tokens.

    Every attribute is an array, (documents,).

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
    def from_tables(cls, a: RankTable, b: RankTable) -> PairCounts:
        """Count the changed tokens in two rank tables of the same tokens."""
        top_a = a.column_or("top", -1)
        top_b = b.column_or("top", -1)
        top_unknown = (top_a < 0) | (top_b < 0)
        first_in_a = a.rank == 1
        first_in_b = b.rank == 1
        return cls(
            moved=a.sum_by_document(a.rank != b.rank),
            same_top=a.sum_by_document(np.where(top_unknown, nan, top_a == top_b)),
            lost=a.sum_by_document(first_in_a & ~first_in_b),
            gained=a.sum_by_document(first_in_b & ~first_in_a),
        )


@dataclass(frozen=True)
class Changes:
    """The comparison of two measurements of the same tokens.

    Each row of the counts is a document, or a group of documents if groups are known. Intervals treat the rows as
    independent.

    Attributes:
        a: the numbers of tokens, nats and hits in the first measurement.
        b: the numbers of tokens, nats and hits in the second measurement.
        pairs: the numbers of tokens that changed between the measurements.
        worst_tokens: the tokens with the largest fall in ln p, the largest fall first.

    """

    a: DocumentCounts
    b: DocumentCounts
    pairs: PairCounts
    worst_tokens: list[ChangedToken]

    @property
    def num_tokens(self) -> int:
        """The number of scored tokens."""
        return int(self.a.tokens.sum())

    def share(self, name: str) -> float:
        """Return the share of tokens that one attribute of `PairCounts` counts: `moved`, `lost` or `gained`."""
        return float(getattr(self.pairs, name).sum() / self.num_tokens)

    @property
    def num_units(self) -> int:
        """The number of documents, or of groups if groups are known."""
        return len(self.a.tokens)

    @property
    def ce_rises(self) -> FloatArray:
        """The rise of CE in each document or group, in nats per token, (units,)."""
        return (self.b.nats - self.a.nats) / self.a.tokens

    @property
    def same_top(self) -> Estimate:
        """The share of tokens at which both measurements rank the same token first, with its error.

        It is NaN if a measurement does not hold the token that it ranks first. If it is 0 or 1, it has no error: no
        document then shows how much other documents may differ.
        """
        share = estimate(np.column_stack([self.a.tokens, self.pairs.same_top]), _per_token)
        return share if 0 < share.value < 1 else share.without_error()

    @property
    def flips(self) -> Estimate:
        """The share of gained tokens minus the share of lost tokens, with its error. It is the change of RBP_1."""
        return estimate(np.column_stack([self.a.tokens, self.pairs.gained - self.pairs.lost]), _per_token)

    @property
    def mcnemar(self) -> Estimate:
        """McNemar's test of `flips` for clustered data, with documents as clusters: `mcnemar.p()`.

        Its variance holds under the null hypothesis that as many tokens are gained as lost. If the hypothesis is wrong,
        the variance is too large: use this estimate only for its p-value, and take the interval from `flips`. Source:
        Obuchowski, Statistics in Medicine 17, 1998. This implementation uses Student's t instead of the normal
        distribution.
        """
        net = self.pairs.gained - self.pairs.lost
        value = float(net.sum() / self.num_tokens)
        if len(net) < MIN_UNITS:
            return Estimate(value, df=nan)
        variance = float((net**2).sum() / self.num_tokens**2)
        sampling_df = float(degrees_of_freedom(net, self.a.tokens / self.num_tokens))
        return Estimate(value, variance, sampling_df=sampling_df, deciding_documents=float(deciding_documents(net)))

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
        return Change(
            metric, a=float(a.sum() / self.num_tokens), b=float(b.sum() / self.num_tokens), difference=difference
        )

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
        a: the rank tables of the first measurement, each with whole documents, such as `Runs.rank_pieces` yields.
        b: the rank tables of the second measurement. They may be cut at other documents than the tables of `a`.
        ks: the k of RBP_k. Values above |V| are left out. If empty, only CE is compared.
        groups: the group of each document that has scored tokens, in the order of the documents. If empty, each
            document is a unit of the intervals.
        worst: the number of tokens to keep in `Changes.worst_tokens`.

    Raises:
        OtherTokens: the measurements did not score the same tokens, or their vocabularies differ in size.
        BadInput: a k is below 1, or every k is above |V|.

    """
    counts_a: list[DocumentCounts] = []
    counts_b: list[DocumentCounts] = []
    pairs: list[PairCounts] = []
    worst_tokens: list[ChangedToken] = []
    for piece_a, piece_b in _aligned_pieces(a, b):
        vocab_size = piece_a.vocab_size
        if not _hold_same_tokens(piece_a, piece_b):
            raise OtherTokens(
                "the measurements did not score the same tokens. Compare measurements of one text and one tokenizer"
            )
        if vocab_size != piece_b.vocab_size:
            sizes = f"{vocab_size:,} tokens in the first measurement and {piece_b.vocab_size:,} in the second"
            raise OtherTokens(f"the vocabulary has {sizes}")
        valid_ks = [check_k(k, vocab_size) for k in sorted(set(ks)) if k <= vocab_size]
        if len(ks) and not valid_ks:
            raise BadInput(f"k={min(ks):,}: k must be at most {vocab_size:,}, the size of the vocabulary")
        counts_a.append(piece_a.document_counts(valid_ks))
        counts_b.append(piece_b.document_counts(valid_ks))
        pairs.append(PairCounts.from_tables(piece_a, piece_b))
        worst_tokens.extend(_worst_tokens(piece_a, piece_b, worst))
        worst_tokens = sorted(worst_tokens, key=lambda token: -token.nats)[:worst]
    if not pairs:
        raise OtherTokens("at least one of the measurements has no scored tokens")
    return Changes(
        _concatenate(counts_a, groups), _concatenate(counts_b, groups), _concatenate(pairs, groups), worst_tokens
    )


def _concatenate(pieces: Sequence[SumsT], groups: Sequence[str]) -> SumsT:
    """Concatenate the sums of all pieces, and add them by group if groups are given."""
    sums = pieces[0].concatenate(pieces)
    return sums.in_groups(groups) if len(groups) else sums


def _per_token(sums: FloatArray) -> FloatArray:
    """Divide a sum, the second column, by the number of tokens, the first. sums: (..., 2). Returns (...)."""
    return np.asarray(sums[..., 1] / sums[..., 0])


Answer = Literal["worse", "within", "rare", "undecided"]


def judge(changes: Sequence[Change], tolerance: float, documents: int) -> Answer:
    """Judge whether the second measurement is worse than the first by more than a tolerance.

    Args:
        changes: the changes of all metrics that are tested together.
        tolerance: the largest worsening that is acceptable, in nats for CE and as a share of tokens for RBP_k; at
            least 0.
        documents: the number of compared documents, or of groups if groups are known.

    Returns:
        - `worse`: at least one metric is worse by more than the tolerance. The test is one-sided, at the 5% level, with
          Bonferroni's correction. (Holm's correction would give the same answer, because one rejection is enough.)
        - `within`: for every metric, also for those that improved, the 95% interval of the worsening ends at or below
          the tolerance. There are at least `MIN_WITHIN` documents.
        - `rare`: every interval ends at or below the tolerance, but there are fewer than `MIN_WITHIN` documents. The
          sample may miss rare damage.
        - `undecided`: no other answer applies, for example because too few documents decide a change.

    """
    within = True
    for change in changes:
        worse_by = change.worsening
        p = worse_by.p(tolerance)
        one_sided = p / 2 if worse_by.value > tolerance else 1 - p / 2
        if one_sided * len(changes) < 1 - LEVEL:
            return "worse"
        _, high = worse_by.interval()
        within = within and high <= tolerance
    if not within:
        return "undecided"
    return "within" if documents >= MIN_WITHIN else "rare"


def _worst_tokens(a: RankTable, b: RankTable, limit: int) -> Iterator[ChangedToken]:
    """Yield the tokens of two pieces with the largest fall in ln p, the largest fall first, at most `limit` of them."""
    rises = _nats(b) - _nats(a)
    documents = a.column("document")
    positions = a.column("position")
    tokens = a.column_or("token", -1)
    tops_b = b.column_or("top", -1)
    for i in np.argsort(-rises, kind="stable")[:limit]:
        if rises[i] <= 0:
            return
        start = max(0, i - _CONTEXT_TOKENS)
        before = tokens[start:i][documents[start:i] == documents[i]]
        yield ChangedToken(
            document=int(documents[i]),
            position=int(positions[i]),
            token=int(tokens[i]),
            before=tuple(before.tolist()),
            rank_a=int(a.rank[i]),
            rank_b=int(b.rank[i]),
            instead=int(tops_b[i]),
            nats=float(rises[i]),
        )


def _nats(table: RankTable) -> FloatArray:
    """Return -ln p of every token, (tokens,)."""
    return -table.column("logprob").astype(np.float64)


def _hold_same_tokens(a: RankTable, b: RankTable) -> bool:
    """Return whether both tables hold the same tokens. An unknown id (-1) counts as equal to any id."""
    if len(a) != len(b):
        return False
    for name in ("document", "position"):
        if not np.array_equal(a.column(name), b.column(name)):
            return False
    token_a = a.column_or("token", -1)
    token_b = b.column_or("token", -1)
    return bool(((token_a == token_b) | (token_a < 0) | (token_b < 0)).all())


def _aligned_pieces(a: Iterable[RankTable], b: Iterable[RankTable]) -> Iterator[tuple[RankTable, RankTable]]:
    """Yield pairs of pieces that end at the same document. Pieces that end at different documents are split.

    Raises OtherTokens if one measurement has documents after the last document of the other.
    """
    # A measurement without scored tokens is one piece without rows.
    pieces_a = filter(len, a)
    pieces_b = filter(len, b)
    piece_a = next(pieces_a, None)
    piece_b = next(pieces_b, None)
    while piece_a is not None and piece_b is not None:
        last_document = min(int(piece_a.documents[0][-1]), int(piece_b.documents[0][-1]))
        head_a, piece_a = _split_after(piece_a, last_document)
        head_b, piece_b = _split_after(piece_b, last_document)
        yield head_a, head_b
        piece_a = piece_a or next(pieces_a, None)
        piece_b = piece_b or next(pieces_b, None)
    if piece_a is not None or piece_b is not None:
        raise OtherTokens("one measurement scored more documents than the other. Compare measurements of one text")


def _split_after(table: RankTable, document: int) -> tuple[RankTable, RankTable | None]:
    """Split a table after the document with a number. The second part is None if there are no later documents."""
    end = int(np.count_nonzero(table.column("document") <= document))
    later = replace(table, table=table.table.slice(end))
    return replace(table, table=table.table.slice(0, end)), later if len(later) else None
