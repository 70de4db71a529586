"""Where in a text one model needs more nats than another, whatever their tokenizers.

A token's nats are spread evenly over the bytes of its text, so that any stretch of bytes has nats. Words (runs of other
characters, with the white space before them) begin and end at the same bytes in every tokenization; they are what two
tokenizations are aligned by, and segments are so many words.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankTable
from rbptrack.stats.token_kinds import KINDS, kind_of

_BLANK = " \t\n\r\f\v"  # bytes that no tokenizer splits
_WORDS = re.compile(rf"[{_BLANK}]*[^{_BLANK}]+|[{_BLANK}]+$")
_SHIFTS = (0, 1, -1, 2, -2)  # words by which the first scored token of one model comes later
_ALIKE = 0.9  # share of words that must be the same
_UNKNOWN = "\ufffd"  # part of a character, in the texts of tokens


@dataclass(frozen=True)
class Words:
    """The words of one document's scored tokens, and what they cost one model.

    Attributes:
        texts: of the words; together the text.
        nats: of each, (words,).

    """

    texts: list[str]
    nats: FloatArray

    @classmethod
    def of(cls, tokens: Sequence[str], nats: FloatArray) -> Words:
        """Cut the text of consecutive tokens into words; nats (tokens,).

        Source: linear interpolation of the nats up to a byte, so that all words together have all nats.
        """
        text = "".join(tokens)
        texts = _WORDS.findall(text)
        ends, edges = (
            np.cumsum([len(piece.encode()) for piece in pieces], dtype=np.int64) for pieces in (tokens, texts)
        )
        last = np.append(np.diff(ends) > 0, True) & (ends > 0)  # tokens without a text count with the next
        upto = np.interp(np.append(0, edges), np.append(0, ends[last]), np.append(0.0, np.cumsum(nats)[last]))
        return cls(texts, np.diff(upto))

    def __getitem__(self, part: slice) -> Words:
        return Words(self.texts[part], self.nats[part])


def aligned(a: Words, b: Words) -> tuple[Words, Words] | None:
    """Return the words that both have scored whole; None where the texts do not match.

    A word holds part of a character where a token ends inside one: it then matches any word.

    Source: the same words in both, where one side begins or ends some words later.
    """
    for shift in dict.fromkeys((len(a.texts) - len(b.texts), *_SHIFTS)):  # both at the end, or else at the beginning
        first = a[max(shift, 0) :]
        second = b[max(-shift, 0) :]
        size = min(len(first.texts), len(second.texts))
        same = [_same(x, y) for x, y in zip(first.texts, second.texts, strict=False)]
        inner = same[1 : size - 1]
        if sum(same) >= max(1.0, _ALIKE * len(inner)):
            part = slice(0 if same[0] else 1, size if same[-1] else size - 1)
            return first[part], second[part]
    return None


def _same(x: str, y: str) -> bool:
    return x == y or _UNKNOWN in x or _UNKNOWN in y


@dataclass(frozen=True)
class Segment:
    """So many words of a document.

    Attributes:
        document: its number.
        text: of the words.
        num_bytes: of the text.
        nats_a: what it costs the one model.
        nats_b: the other.

    """

    document: int
    text: str
    num_bytes: int
    nats_a: float
    nats_b: float

    @property
    def gap(self) -> float:
        """Nats of b less those of a: above 0, a is better."""
        return self.nats_b - self.nats_a


@dataclass(frozen=True)
class GapSums(DocumentSums):
    """What a text costs two models, by document and by kind of word (`KINDS`; punctuation around it left away).

    Attributes:
        document: numbers of the documents, ascending, (documents,).
        num_bytes: UTF-8 bytes of the words that both have scored, (documents, kinds).
        nats_a: nats of the one model, (documents, kinds).
        nats_b: of the other.

    """

    LABELS = ("document",)
    SUMMED = ("num_bytes", "nats_a", "nats_b")

    document: IntArray
    num_bytes: FloatArray
    nats_a: FloatArray
    nats_b: FloatArray


@dataclass(frozen=True)
class Gaps:
    """Two models on the same text.

    Attributes:
        sums: by document and kind of word.
        worst: the segments that cost b most more than a, the worst first.
        best: those that cost a most more.
        unlike: how many documents do not match.

    """

    sums: GapSums
    worst: list[Segment]
    best: list[Segment]
    unlike: int


def text_gaps(
    pieces: Iterable[tuple[RankTable, RankTable]],
    texts: tuple[Mapping[int, str], Mapping[int, str]],
    *,
    words: int,
    most: int,
) -> Gaps | None:
    """Align two models' tokens word by word; None where no document matches.

    Source: bits per byte of segments, as raw-text gap reports have them (marin-community/marin #4934).

    Args:
        pieces: both rank tables, in pieces of the same whole documents (`in_step`).
        texts: the texts of tokens of each model, by id.
        words: of a segment.
        most: how many segments are kept of each direction.

    """
    numbers = list[int]()
    rows = list[FloatArray]()
    worst = list[Segment]()
    best = list[Segment]()
    unlike = 0
    for tables in pieces:
        sides = [dict(_documents(*side)) for side in zip(tables, texts, strict=True)]
        for document in (number for number in sides[0] if number in sides[1]):
            pair = aligned(sides[0][document], sides[1][document])
            if pair is None:
                unlike += 1
                continue
            size = np.array([len(text.encode()) for text in _clean(*pair)], dtype=np.float64)
            kind = np.array([_kind(text) for text in pair[0].texts], dtype=np.int64)
            parts = (size, pair[0].nats, pair[1].nats)
            numbers.append(document)
            rows.append(np.stack([np.bincount(kind, weights=part, minlength=len(KINDS)) for part in parts]))
            gaps = list(_segments(document, *pair, size, words))
            worst = sorted(chain(worst, gaps), key=lambda segment: -segment.gap)[:most]
            best = sorted(chain(best, gaps), key=lambda segment: segment.gap)[:most]
    if not rows:
        return None
    sums = GapSums(np.array(numbers), *np.moveaxis(np.stack(rows), 1, 0))
    return Gaps(
        sums,
        [segment for segment in worst if segment.gap > 0],
        [segment for segment in best if segment.gap < 0],
        unlike,
    )


def _documents(table: RankTable, texts: Mapping[int, str]) -> Iterator[tuple[int, Words]]:
    numbers, place = table.documents
    ends = np.append(np.flatnonzero(np.diff(place, prepend=-1)), len(place))
    tokens = table.column("token").tolist()
    nats = -table.column("logprob").astype(np.float64)
    for number, first, end in zip(numbers, ends[:-1], ends[1:], strict=True):
        yield int(number), Words.of([texts.get(token, "") for token in tokens[first:end]], nats[first:end])


def _clean(a: Words, b: Words) -> list[str]:
    """Return the words, from the side that has them in whole characters."""
    return [y if _UNKNOWN in x else x for x, y in zip(a.texts, b.texts, strict=True)]


def _segments(document: int, a: Words, b: Words, size: FloatArray, words: int) -> Iterator[Segment]:
    starts = np.arange(0, len(a.texts), words)
    sums = (np.add.reduceat(part, starts) for part in (size, a.nats, b.nats)) if len(starts) else ()
    for start, *numbers in zip(starts, *sums, strict=True):
        text = "".join(_clean(a[start : start + words], b[start : start + words]))
        num_bytes, nats_a, nats_b = map(float, numbers)
        yield Segment(document, text, int(num_bytes), nats_a, nats_b)


@cache
def _kind(word: str) -> int:
    bare = word.strip()
    return kind_of(bare.strip(string.punctuation) or bare or word)
