"""Stretches of consecutive scored tokens, and where in their documents tokens and windows stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import FloatArray, IntArray, RankTable, sum_by
from rbptrack.stats.bootstrap import Weights, drawn_sums


@dataclass(frozen=True)
class Segments:
    """Stretches of consecutive scored tokens.

    Attributes:
        begins: whether a token is the first of its segment, (tokens,).
        document: index of each token's document, 0-based over those that have scored tokens, (tokens,).
        documents: their number.

    """

    begins: npt.NDArray[np.bool_]
    document: IntArray
    documents: int

    @classmethod
    def of(cls, table: RankTable) -> Segments:
        """Return the segments of a rank table, whose rows are in text order."""
        document = table.column("document")
        position = table.column("position")
        begins = np.ones(len(table), dtype=bool)
        begins[1:] = (document[1:] != document[:-1]) | (position[1:] != position[:-1] + 1)
        present, index = table.documents
        return cls(begins, index, len(present))

    @property
    def left(self) -> IntArray:
        """The number of tokens from each to its segment's end, itself included, (tokens,)."""
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
    _grouped: list[PositionBins] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, pieces: Callable[[], Iterable[RankTable]], lengths: Sequence[int]) -> PositionBins:
        """Return bins that begin at 0, 1, 2, 4, 8 and 16 tokens, and where every sixteenth of the tokens is passed.

        Args:
            pieces: begins to read a rank table anew, in pieces of whole documents; it is read twice.
            lengths: the N of windows.

        """
        at_position = added(np.bincount(piece.column("position")) for piece in pieces())
        passed = _quantiles(at_position, np.arange(1, 16) / 16).astype(np.int64) + 1
        edges = np.unique(np.concatenate([[0, 1, 2, 4, 8, 16], passed]))
        tokens = []
        starts = []
        windows = []
        for piece in pieces():
            segments = Segments.of(piece)
            position = piece.column("position")
            left = segments.left
            shape = (segments.documents, len(edges))
            cell = segments.document * shape[1] + bin_of(position, edges)
            begins = [left >= n for n in lengths]
            tokens.append(np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape))
            counts = [np.bincount(cell[begin], minlength=shape[0] * shape[1]).reshape(shape) for begin in begins]
            starts.append(np.stack(counts, axis=1))
            windows.append([np.bincount(position[begin], minlength=int(position.max()) + 1) for begin in begins])
        inside = [
            _tokens_inside(begun, n, edges)
            for n, begun in zip(lengths, map(added, zip(*windows, strict=True)), strict=True)
        ]
        return cls(edges, np.concatenate(tokens), np.concatenate(starts), np.stack(inside))

    def in_groups(self, groups: Sequence[str]) -> PositionBins:
        """Sum by source instead of by document; return the same object for every model of the text."""
        if not self._grouped:
            self._grouped.append(
                PositionBins(self.edges, sum_by(groups, self.tokens), sum_by(groups, self.starts), self.inside)
            )
        return self._grouped[0]

    def log_shares(self, weights: Weights, hits: FloatArray, tokens: FloatArray) -> FloatArray:
        """Return ln p_N if tokens hit independently, as often as tokens of their bin do, (replicates, lengths).

        Args:
            weights: of the documents, (replicates, documents).
            hits: by document and bin, (documents, bins).
            tokens: for each length, as `starts`.

        """
        tiny = np.finfo(np.float64).tiny
        rate = np.log(
            np.maximum(drawn_sums(weights, hits), tiny) / np.maximum(drawn_sums(weights, tokens), tiny)
        )  # (replicates, bins)
        shares = []
        for (windows, every), inside in zip(self._windows(weights), self.inside, strict=True):
            shares.append(np.log((windows * np.exp(rate @ inside.T)).sum(axis=1) / every))
        return np.stack(shares, axis=1)

    def _windows(self, weights: Weights) -> list[tuple[FloatArray, FloatArray]]:
        """Return windows of each N by bin, (replicates, bins), and all of them, (replicates,); kept for the next k and
        model.

        The same weights are asked for again and again (`document_weights` keeps them).
        """
        if self._kept and self._kept[0][0] is weights:
            return self._kept[0][1]
        counts = [drawn_sums(weights, starts) for starts in np.moveaxis(self.starts, 1, 0)]
        sums = [(windows, windows.sum(axis=1)) for windows in counts]
        if len(weights) > 1:
            self._kept[:] = [(weights, sums)]
        return sums


def added(parts: Iterable[IntArray]) -> IntArray:
    """Return counts of 0, 1, ... of several pieces, each as long as its largest value asks, added up. Source:
    addition.
    """
    total = np.zeros(0, dtype=np.int64)
    for counts in parts:
        total = np.pad(total, (0, max(len(counts) - len(total), 0)))
        total[: len(counts)] += counts
    return total


def _quantiles(counts: IntArray, levels: FloatArray) -> FloatArray:
    """Return `np.quantile` of whole numbers, from the counts of 0, 1, ..."""
    passed = np.cumsum(counts)
    place = levels * (counts.sum() - 1)
    share = place - np.floor(place)
    low, high = (np.searchsorted(passed, np.floor(place) + i, side="right") for i in (0, 1))
    return np.asarray(np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share)))


def bin_of(position: IntArray, edges: IntArray) -> IntArray:
    """Return the bin of each position, (tokens,): looked up, which is faster than searching. Source: as
    `PositionBins`.
    """
    every = np.arange(int(position.max(initial=0)) + 1)
    return np.asarray((np.searchsorted(edges, every, side="right") - 1)[position])


def _tokens_inside(windows: IntArray, n: int, edges: IntArray) -> FloatArray:
    """Return tokens in each bin of a window of N that starts in a bin, the mean over windows, (bins, bins)."""
    start = np.arange(len(windows))
    last = np.append(edges[1:], np.iinfo(np.int64).max)
    begin = np.minimum(edges, len(start) - 1)
    overlap = np.minimum(start[:, None] + n, last) - np.maximum(start[:, None], edges)
    total = np.add.reduceat(windows[:, None] * np.clip(overlap, 0, None), begin)
    return np.asarray(total / np.maximum(np.add.reduceat(windows, begin), 1)[:, None])
