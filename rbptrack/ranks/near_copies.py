"""Find documents that share a large part of their text: exact copies and near copies.

A near copy repeats what its original says about a model, so intervals must not count both as independent documents.

A document is described by the set of its shingles, which are all runs of `_SHINGLE_TOKENS` consecutive tokens. Two
documents are near copies if a quarter of all their shingles are common to both. Only a sample of each document's
shingles is compared: those with the smallest hashes (Broder 1997, "On the resemblance and containment of documents").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy

from rbptrack.ranks.names import IntArray
from rbptrack.ranks.table import RankTable

_SHINGLE_TOKENS = 3
_SHINGLE_BYTES = 8  # the length of a shingle if tokens are single bytes or characters
_MAX_BYTE_TOKENS = 1000  # a vocabulary with fewer tokens holds bytes or characters
_MIN_RESEMBLANCE = 0.25
"""The smallest share of common shingles among all shingles of two near copies.

If two documents have equally many shingles, 40% of them are then common. If a quarter of a copy's tokens are replaced
at random places, it is still found. Python files of 2 million characters that have nothing to do with each other reach
.12, and shorter ones less, even if they share a licence. Of the 1,762 files of Python's standard library, 1,463 groups
remain with the tokenizer of Llama 2. The largest group is that of 70 tables of characters.
"""
_MIN_COMMON = 12  # fewer common shingles show nothing: short questions often share their first words
_SAMPLE = 128  # the most shingles of a document that are compared; the standard error of a resemblance of .25 is .04
_CANDIDATE_SAMPLE = 24  # documents that share one of their so many smallest hashes are compared
_NEIGHBOURS = 8  # a document is compared with the next so many documents that have the same shingle
_PIECE_TOKENS = 2**17  # the number of tokens that are hashed at once
_PAIRS = 2**14  # the number of pairs that are compared at once
_UNUSED = np.uint32(2**32 - 1)  # fills the rows of documents with few shingles
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # an odd number whose bits look random

_Hashes = npt.NDArray[np.uint32]
_Number = TypeVar("_Number", bound=np.generic)
_Words = npt.NDArray[np.uint64]


def near_copy_names(token: IntArray, lengths: IntArray) -> list[str]:
    """Return the group of each document as a name, such as `document 7`, or no names if no document is a near copy.

    The arguments are those of `near_copy_groups`.
    """
    groups = near_copy_groups(token, lengths)
    if (groups == np.arange(len(groups))).all():
        return []
    return [f"document {group}" for group in groups.tolist()]


def near_copies_in(ranks: RankTable) -> list[str]:
    """Return the group of each document of a rank table, as `near_copy_names` does.

    The result is empty if the ids of tokens are unknown (negative or all equal), or if the documents are not numbered
    0, 1, 2, ...
    """
    documents, index = ranks.documents
    token = ranks.column_or("token", -1)
    if (token < 0).any() or (token == token[:1]).all() or not np.array_equal(documents, np.arange(len(documents))):
        return []
    return near_copy_names(token, np.bincount(index))


def near_copy_groups(token: IntArray, lengths: IntArray) -> IntArray:
    """Return the group of each document: the number of the first document of which it is a copy or near copy.

    A document without copies is a group of its own. If A is a near copy of B, and B of C, all three are one group. A
    beginning or an end that all documents share, such as the instructions of a chat, is ignored, because it does not
    make two documents more alike than others.

    Args:
        token: the token ids of all documents, one document after the other, (tokens,).
        lengths: the number of tokens of each document, (documents,).

    Returns:
        int64 (documents,).

    """
    documents = np.arange(len(lengths))
    if not len(token):
        return documents
    original = _first_with_same_tokens(token, lengths)
    sample = _sample_shingles(token, lengths, distinct=original == documents)
    similar = [pairs[sample.are_near_copies(pairs)] for pairs in _in_pieces(sample.candidates())]
    edges = np.concatenate([np.column_stack([documents, original]), *similar])
    graph = scipy.sparse.coo_matrix((np.ones(len(edges)), edges.T), shape=(len(lengths), len(lengths)))
    component = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    groups: IntArray = np.unique(component, return_index=True)[1][component]
    return groups


@dataclass(frozen=True)
class _Sample:
    """The smallest hashes of the shingles of each document.

    Attributes:
        hashes: the hashes of all documents, ascending within a document, (hashes,).
        starts: the index of each document's first hash, (documents,).
        counts: the number of hashes of each document, at most `_SAMPLE`, (documents,).

    """

    hashes: _Hashes
    starts: IntArray
    counts: IntArray

    def candidates(self) -> IntArray:
        """Return pairs of documents that share one of their smallest hashes, (pairs, 2).

        The smallest hash of two documents together is common to both with a probability that equals their resemblance.
        A pair of near copies is therefore missed with a probability of at most .75^24 = .001.
        """
        document = np.repeat(np.arange(len(self.counts)), self.counts)
        place = np.arange(len(self.hashes)) - self.starts[document]
        chosen = (place < _CANDIDATE_SAMPLE) & (self.counts[document] >= _MIN_COMMON)
        order = np.argsort(self.hashes[chosen], kind="stable")  # of equal hashes, documents stay in order
        hashes = self.hashes[chosen][order]
        document = document[chosen][order]
        keys = []
        for distance in range(1, _NEIGHBOURS + 1):
            same = hashes[distance:] == hashes[:-distance]
            keys.append(document[:-distance][same] * len(self.counts) + document[distance:][same])
        return np.column_stack(np.divmod(_sorted_distinct(np.concatenate(keys)), len(self.counts)))

    def are_near_copies(self, pairs: IntArray) -> npt.NDArray[np.bool_]:
        """Return whether the documents of each pair are near copies, (pairs,)."""
        rows = np.concatenate([self._rows(pairs[:, 0]), self._rows(pairs[:, 1])], axis=1)
        rows.sort(axis=1)
        # A full sample holds no hash above its largest one. Only smaller hashes are known of both documents.
        limit = np.minimum(self._limit(pairs[:, 0]), self._limit(pairs[:, 1]))[:, None]
        known = (rows <= limit) & (rows != _UNUSED)
        common = ((rows[:, 1:] == rows[:, :-1]) & known[:, 1:]).sum(axis=1)
        union = known.sum(axis=1) - common
        near: npt.NDArray[np.bool_] = (common >= _MIN_COMMON) & (common >= _MIN_RESEMBLANCE * union)
        return near

    def _rows(self, documents: IntArray) -> _Hashes:
        """Return the hashes of each document as a row, (documents, most hashes), filled with `_UNUSED`."""
        counts = self.counts[documents]
        place = np.arange(counts.max(initial=0))
        index = np.minimum(self.starts[documents][:, None] + place, len(self.hashes) - 1)
        return np.where(place < counts[:, None], self.hashes[index], _UNUSED)

    def _limit(self, documents: IntArray) -> _Hashes:
        """Return the largest hash up to which all hashes of each document are known, (documents,)."""
        counts = self.counts[documents]
        last = self.hashes[np.maximum(self.starts[documents] + counts - 1, 0)]
        return np.where(counts == _SAMPLE, last, _UNUSED)


def _first_with_same_tokens(token: IntArray, lengths: IntArray) -> IntArray:
    """Return the number of the first document with the same tokens, for each document, (documents,).

    Documents without tokens are different.
    """
    begins = np.cumsum(lengths) - lengths
    sums = np.arange(len(lengths), dtype=np.uint64)  # a document without tokens keeps its number
    sums[lengths > 0] = 0
    for start in range(0, len(token), _PIECE_TOKENS):
        piece = token[start : start + _PIECE_TOKENS]
        index = np.arange(start, start + len(piece))
        document = np.searchsorted(begins + lengths, index, side="right")
        position = (index - begins[document] + 1).astype(np.uint64)  # from 1, because the hash of 0 is 0
        mixed = _mix(piece.astype(np.uint64) + (position << np.uint64(32)))
        firsts = np.flatnonzero(np.diff(document, prepend=-1))
        sums[document[firsts]] += np.add.reduceat(mixed, firsts)
    first, number = np.unique(sums, return_index=True, return_inverse=True)[1:]
    original: IntArray = first[number]
    return original


def _sample_shingles(token: IntArray, lengths: IntArray, distinct: npt.NDArray[np.bool_]) -> _Sample:
    """Return the smallest hashes of the shingles of each document, or none for documents that are not `distinct`."""
    ends = np.cumsum(lengths)
    begins = ends - lengths
    size = _SHINGLE_TOKENS if token.max() >= _MAX_BYTE_TOKENS else _SHINGLE_BYTES
    long = lengths >= size + _MIN_COMMON - 1  # shorter documents cannot be near copies
    long &= 2 * long.sum() >= len(lengths)  # what only a few documents share makes them more alike than others
    shortest = int(lengths[long].min(initial=lengths.max()))
    prefix = _count_common_tokens(token, begins[long], 1, shortest)
    suffix = _count_common_tokens(token, ends[long] - 1, -1, shortest - prefix)
    parts = [np.zeros(0, np.uint64)]
    for start in range(0, len(token), _PIECE_TOKENS):
        piece = token[start : start + _PIECE_TOKENS + size - 1].astype(np.uint64)
        if len(piece) < size:
            break
        count = len(piece) - size + 1
        hashes = np.zeros(count, np.uint64)
        for offset in range(size):
            hashes = hashes * _MULTIPLIER + piece[offset : offset + count]
        index = np.arange(start, start + count)
        document = np.searchsorted(ends, index, side="right")
        whole = (index >= begins[document] + prefix) & (index + size <= ends[document] - suffix) & distinct[document]
        # The number of the document comes first, so sorted keys are sorted by document.
        keys = document[whole].astype(np.uint64) << np.uint64(32) | _mix(hashes[whole]) >> np.uint64(32)
        parts.append(_smallest(keys))
    keys = _smallest(np.concatenate(parts))
    counts = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=len(lengths))
    return _Sample(keys.astype(np.uint32), np.cumsum(counts) - counts, counts)


def _smallest(keys: _Words) -> _Words:
    """Return the `_SAMPLE` smallest distinct keys of each document, ascending."""
    keys = _sorted_distinct(keys)
    document = keys >> np.uint64(32)
    firsts = np.flatnonzero(np.diff(document, prepend=np.uint64(2**32)))
    counts = np.diff(firsts, append=len(keys))
    place = np.arange(len(keys)) - np.repeat(firsts, counts)
    return keys[place < _SAMPLE]


def _sorted_distinct(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the distinct values, ascending. `np.unique` takes 40 times as long."""
    values = np.sort(values)
    is_first = np.ones(len(values), bool)
    is_first[1:] = values[1:] != values[:-1]
    return values[is_first]


def _count_common_tokens(token: IntArray, at: IntArray, step: int, most: int) -> int:
    """Return with how many equal tokens all documents begin (`step` 1) or end (-1).

    `at` is the index of the first or last token of each document, (documents,). The result is at most `most`, and 0 if
    there are no documents.
    """
    count = 0
    while len(at) and count < most and (token[at + step * count] == token[at[0] + step * count]).all():
        count += 1
    return count


def _mix(words: _Words) -> _Words:
    """Return a hash of each word (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _in_pieces(pairs: IntArray) -> Iterator[IntArray]:
    for start in range(0, len(pairs), _PAIRS):
        yield pairs[start : start + _PAIRS]
