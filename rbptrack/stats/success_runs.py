"""Sequences of successes: how often N consecutive scored tokens all have R <= k, and what simpler processes predict.

A window is N consecutive scored tokens of one document; a masked token or the document's end breaks the run, which
positions tell. Everything is counted per document, the unit that bootstraps resample (arXiv 2510.20387, eqs. 6 to 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import special

from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats.bootstrap import Weights, drawn_sums


@dataclass(frozen=True)
class Segments:
    """Stretches of consecutive scored tokens.

    Attributes:
        begins: whether a token is the first of its segment, (tokens,).
        document: index of each token's document, 0-based over those that have scored tokens, (tokens,).
        documents: how many there are.

    """

    begins: npt.NDArray[np.bool_]
    document: IntArray
    documents: int

    @classmethod
    def of(cls, table: RankTable) -> Segments:
        """The segments of a rank table, whose rows are in text order."""
        document, position = table.column("document"), table.column("position")
        begins = np.ones(len(table), dtype=bool)
        begins[1:] = (document[1:] != document[:-1]) | (position[1:] != position[:-1] + 1)
        present, index = table.documents
        return cls(begins, index, len(present))

    @property
    def left(self) -> IntArray:
        """How many tokens there are from each to its segment's end, itself included, (tokens,)."""
        first = np.append(np.flatnonzero(self.begins), len(self.begins))
        return np.repeat(first[1:], np.diff(first)) - np.arange(len(self.begins))


@dataclass(frozen=True)
class PositionBins:
    """Where in their documents tokens and windows stand, in bins of positions: the same for all models of a text.

    Source: the null beside arXiv 2510.20387, eqs. 6 to 8.

    Attributes:
        edges: the first position of each bin, (bins,).
        tokens: scored tokens by document and bin, (documents, bins).
        starts: windows of each N by the bin that they start in, (documents, lengths, bins).
        inside: tokens in each bin of a window of N that starts in a bin, the mean over windows, (lengths, bins, bins).

    """

    edges: IntArray
    tokens: IntArray
    starts: IntArray
    inside: FloatArray
    _kept: list[tuple[Weights, list[tuple[FloatArray, FloatArray]]]] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, pieces: Callable[[], Iterable[RankTable]], lengths: Sequence[int]) -> PositionBins:
        """Bins that begin at 0, 1, 2, 4, 8 and 16 tokens, and where every sixteenth of the tokens is passed.

        Args:
            pieces: begins to read a rank table anew, in pieces of whole documents; it is read twice.
            lengths: the N of windows.

        """
        at_position = _sum_of_counts([np.bincount(piece.column("position"))] for piece in pieces())[0]
        passed = _quantiles(at_position, np.arange(1, 16) / 16).astype(np.int64) + 1
        edges = np.unique(np.concatenate([[0, 1, 2, 4, 8, 16], passed]))
        tokens, starts, windows = [], [], []
        for piece in pieces():
            segments = Segments.of(piece)
            position, left, shape = piece.column("position"), segments.left, (segments.documents, len(edges))
            cell = segments.document * shape[1] + _bin_of(position, edges)
            begins = [left >= n for n in lengths]
            tokens.append(np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape))
            each = [np.bincount(cell[begin], minlength=shape[0] * shape[1]).reshape(shape) for begin in begins]
            starts.append(np.stack(each, axis=1))
            windows.append([np.bincount(position[begin], minlength=int(position.max()) + 1) for begin in begins])
        inside = [_tokens_inside(begun, n, edges) for n, begun in zip(lengths, _sum_of_counts(windows), strict=True)]
        return cls(edges, np.concatenate(tokens), np.concatenate(starts), np.stack(inside))

    def log_shares(self, weights: Weights, hits: FloatArray, tokens: FloatArray) -> FloatArray:
        """Ln p_N if tokens hit independently, as often as tokens of their bin do, (replicates, lengths).

        Args:
            weights: of the documents, (replicates, documents).
            hits: by document and bin, (documents, bins).
            tokens: likewise.

        """
        tiny = np.finfo(np.float64).tiny
        rate = np.log(
            np.maximum(drawn_sums(weights, hits), tiny) / np.maximum(drawn_sums(weights, tokens), tiny)
        )  # (replicates, bins)
        found = []
        for (windows, every), inside in zip(self._windows(weights), self.inside, strict=True):
            found.append(np.log((windows * np.exp(rate @ inside.T)).sum(axis=1) / every))
        return np.stack(found, axis=1)

    def _windows(self, weights: Weights) -> list[tuple[FloatArray, FloatArray]]:
        """Windows of each N by bin, (replicates, bins), and all of them, (replicates,); kept for the next k and model.

        The same weights are asked for again and again (`document_weights` keeps them).
        """
        if self._kept and self._kept[0][0] is weights:
            return self._kept[0][1]
        each = [drawn_sums(weights, starts) for starts in np.moveaxis(self.starts, 1, 0)]
        found = [(windows, windows.sum(axis=1)) for windows in each]
        if len(weights) > 1:
            self._kept[:] = [(weights, found)]
        return found


@dataclass(frozen=True)
class WindowCounts:
    """Counts per document for one k.

    Attributes:
        lengths: the N.
        windows: windows of each N, (documents, len(lengths)).
        successes: windows whose tokens all have R <= k, (documents, len(lengths)).
        tokens: scored tokens, (documents,).
        hits: tokens with R <= k, (documents,).
        followed: hits that another scored token follows, (documents,).
        both: hits that another hit follows, (documents,).
        runs: distinct runs of hits of length >= N, (documents, len(lengths)).
        position_hits: hits by document and bin of positions, (documents, bins).
        position_tokens: tokens likewise.
        positions: the bins.

    """

    lengths: tuple[int, ...]
    windows: IntArray
    successes: IntArray
    tokens: IntArray
    hits: IntArray
    followed: IntArray
    both: IntArray
    runs: IntArray
    position_hits: IntArray
    position_tokens: IntArray
    positions: PositionBins

    def __add__(self, other: WindowCounts) -> WindowCounts:
        """Counts of two runs over the same documents, pooled."""
        names = [f.name for f in fields(self) if f.name not in ("lengths", "positions")]
        sums = {n: getattr(self, n) + getattr(other, n) for n in names}
        return WindowCounts(self.lengths, positions=self.positions, **sums)

    @classmethod
    def concatenate(cls, parts: Sequence[WindowCounts]) -> WindowCounts:
        """Join the counts of disjoint documents, given in their order."""
        names = [f.name for f in fields(cls) if f.name not in ("lengths", "positions")]
        joined = {n: np.concatenate([getattr(part, n) for part in parts]) for n in names}
        return cls(parts[0].lengths, positions=parts[0].positions, **joined)

    @cached_property
    def shuffled(self) -> FloatArray:
        """Successes if each document's hits fell anywhere in it, C(h_d, N)/C(n_d, N) a window: (documents, lengths)."""
        n, h, length = self.tokens[:, None], self.hits[:, None], np.asarray(self.lengths)
        possible = (length <= h) & (length <= n)
        h, n = np.where(possible, h, length), np.where(possible, n, length)
        log_share = _log_choose(h, length) - _log_choose(n, length)
        return np.asarray(np.where(possible, np.exp(log_share), 0.0) * self.windows)


@dataclass(frozen=True)
class RunCounts:
    """Runs of hits of one k, and the windows inside them.

    Attributes:
        windows: windows of each N, (documents, lengths).
        successes: windows whose tokens all have R <= k, (documents, lengths).
        runs: distinct runs of hits of length >= N, (documents, lengths).
        both: hits that another hit follows, (documents,).

    """

    windows: IntArray
    successes: IntArray
    runs: IntArray
    both: IntArray


def count_runs(table: RankTable, segments: Segments, *, k: int, lengths: Sequence[int]) -> RunCounts:
    """Count windows of each N in `lengths` per document, from run lengths L: sum of max(L - N + 1, 0).

    Source: arXiv 2510.20387, eqs. 6 to 8.
    """
    begins, document, size = segments.begins, segments.document, segments.documents
    hit = table.rank <= k
    turns = begins.copy()  # where a stretch of hits or of misses begins; segments are never joined
    turns[1:] |= hit[1:] != hit[:-1]
    start = np.flatnonzero(turns)
    of_hits = hit[start]
    run_length = np.diff(start, append=len(hit))[of_hits]
    segment_start = np.flatnonzero(begins)
    segment_length = np.diff(segment_start, append=len(hit))
    run_document = document[start[of_hits]]
    successes, runs = _per_document(run_document, run_length, lengths, size)
    return RunCounts(
        windows=_per_document(document[segment_start], segment_length, lengths, size)[0],
        successes=successes,
        runs=runs,
        both=np.bincount(run_document, weights=run_length - 1, minlength=size),
    )


def count_windows(
    table: RankTable, positions: PositionBins, *, ks: Sequence[int], lengths: Sequence[int]
) -> list[WindowCounts]:
    """`count_runs` for each k, and what the nulls of `ladder` need.

    Source: arXiv 2510.20387, eqs. 6 to 8.

    Args:
        table: a rank table or a piece of whole documents, rows in text order.
        positions: of the whole text.
        ks: the k.
        lengths: the N of windows.

    """
    segments = Segments.of(table)
    document, size = segments.document, segments.documents
    tokens = np.bincount(document, minlength=size)
    last = np.flatnonzero(np.append(segments.begins[1:], True))  # of each segment
    shape = (size, len(positions.edges))
    cell = document * shape[1] + _bin_of(table.column("position"), positions.edges)
    position_tokens = np.bincount(cell, minlength=size * shape[1]).reshape(shape)
    found = []
    for k in ks:
        hit, counted = table.rank <= k, count_runs(table, segments, k=k, lengths=lengths)
        position_hits = np.bincount(cell[hit], minlength=size * shape[1]).reshape(shape).astype(np.float64)
        hits = position_hits.sum(axis=1)
        found.append(
            WindowCounts(
                lengths=tuple(lengths),
                windows=counted.windows,
                successes=counted.successes,
                tokens=tokens,
                hits=hits,
                followed=hits - np.bincount(document[last[hit[last]]], minlength=size),
                both=counted.both,
                runs=counted.runs,
                position_hits=position_hits,
                position_tokens=position_tokens,
                positions=positions,
            )
        )
    return found


@dataclass(frozen=True)
class Ladder:
    """ln p_N, measured and by each null, for each bootstrap replicate (or once): arrays (replicates, len(lengths)).

    Attributes:
        measured: share of windows that succeed.
        independent: RBP_k^N.
        position: independent hits whose share drifts with the position in the document.
        documents: hits anywhere in their document: a mixture over documents.
        markov: RBP_k q^(N-1), q the share of hits among tokens that follow a hit: a first-order chain.

    """

    measured: FloatArray
    independent: FloatArray
    position: FloatArray
    documents: FloatArray
    markov: FloatArray


def ladder(counts: WindowCounts, weights: Weights) -> Ladder:
    """Success probabilities of the documents as weighted, (replicates, documents): ones for the measurement itself.

    Source: arXiv 2510.20387, eq. 6, for independent tokens; hits within documents and a first-order Markov chain
    are this project's further nulls.
    """
    width = len(counts.lengths)
    columns = np.column_stack(
        [counts.windows, counts.successes, counts.shuffled, counts.tokens, counts.hits, counts.followed, counts.both]
    )
    total = drawn_sums(weights, columns)
    windows, successes, shuffled = total[:, :width], total[:, width : 2 * width], total[:, 2 * width : 3 * width]
    tokens, hits, followed, both = total[:, 3 * width :].T
    n = np.asarray(counts.lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(hits / tokens)[:, None]
        log_q = np.log(both / followed)[:, None]
        return Ladder(
            measured=np.log(successes / windows),
            independent=n * log_p,
            position=counts.positions.log_shares(weights, counts.position_hits, counts.position_tokens),
            documents=np.log(shuffled / windows),
            markov=log_p + np.where(n > 1, (n - 1) * log_q, 0.0),
        )


def _sum_of_counts(parts: Iterable[Sequence[IntArray]]) -> list[IntArray]:
    """Counts by value of several quantities, each array as long as its part needs, added up over the parts."""
    total: list[IntArray] = []
    for part in parts:
        if not total:
            total = list(part)
            continue
        for i, counts in enumerate(part):
            longer, shorter = sorted((total[i], counts), key=len, reverse=True)
            longer[: len(shorter)] += shorter
            total[i] = longer
    return total


def _quantiles(counts: IntArray, levels: FloatArray) -> FloatArray:
    """What `np.quantile` gives of whole numbers, from how often 0, 1, ... occur."""
    passed, place = np.cumsum(counts), levels * (counts.sum() - 1)
    share = place - np.floor(place)
    low, high = (np.searchsorted(passed, np.floor(place) + i, side="right") for i in (0, 1))
    return np.asarray(np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share)))


def _bin_of(position: IntArray, edges: IntArray) -> IntArray:
    """The bin of each position, (tokens,): looked up, which is faster than searching."""
    every = np.arange(int(position.max(initial=0)) + 1)
    return np.asarray((np.searchsorted(edges, every, side="right") - 1)[position])


def _tokens_inside(windows: IntArray, n: int, edges: IntArray) -> FloatArray:
    """Tokens in each bin of a window of N that starts in a bin, the mean over windows, (bins, bins).

    Args:
        windows: how many start at each position, (positions,).
        n: tokens of a window.
        edges: the first position of each bin, (bins,).

    """
    start = np.arange(len(windows))
    last, begin = np.append(edges[1:], np.iinfo(np.int64).max), np.minimum(edges, len(start) - 1)
    overlap = np.minimum(start[:, None] + n, last) - np.maximum(start[:, None], edges)
    total = np.add.reduceat(windows[:, None] * np.clip(overlap, 0, None), begin)
    return np.asarray(total / np.maximum(np.add.reduceat(windows, begin), 1)[:, None])


def _per_document(
    document: IntArray, length: IntArray, lengths: Sequence[int], size: int
) -> tuple[FloatArray, IntArray]:
    """Windows of each N inside stretches of so many tokens, and stretches of at least N, by document, (size, lengths).

    The stretches of at least N tokens are sought among those of at least the next smaller N: most are short.
    """
    windows, stretches = np.zeros((size, len(lengths))), np.zeros((size, len(lengths)), dtype=np.int64)
    for column in np.argsort(lengths):
        enough = length >= lengths[column]
        document, length = document[enough], length[enough]
        windows[:, column] = np.bincount(document, weights=length - lengths[column] + 1, minlength=size)
        stretches[:, column] = np.bincount(document, minlength=size)
    return windows, stretches


def _log_choose(n: IntArray, k: IntArray) -> FloatArray:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))
