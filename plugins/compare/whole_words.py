"""Success of whole words and nats per byte: what models with different vocabularies can be compared by.

A word is a run of characters without white space, with the white space before it: words tile the text whatever the
tokenizer. It succeeds where every token that reaches into it has R <= k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankTable
from rbptrack.stats.bootstrap import Weights, drawn_sums
from rbptrack.stats.segments import Segments


@dataclass(frozen=True)
class TokenShapes:
    """What word boundaries need to know of every token id, arrays (ids,).

    Attributes:
        begins_blank: whether the token begins with white space.
        ends_blank: whether it ends with white space.
        inner: how often a word ends inside it: places where white space follows another character.
        num_bytes: UTF-8 bytes of its text.

    """

    begins_blank: IntArray
    ends_blank: IntArray
    inner: IntArray
    num_bytes: IntArray

    @classmethod
    def of(cls, texts: Mapping[int, str]) -> TokenShapes:
        """Count the words of the texts by id; ids without a text count as empty. Source: white space as Unicode has
        it.
        """
        size = max(texts, default=0) + 1
        arrays = np.zeros((4, size), dtype=np.int64)
        for i, text in texts.items():
            blank = [c.isspace() for c in text]
            if text:
                inner = sum(not a and b for a, b in pairwise(blank))
                arrays[:, i] = blank[0], blank[-1], inner, len(text.encode())
        return cls(*arrays)


@dataclass(frozen=True)
class WordCounts(DocumentSums):
    """Whole words of one model on one text, by document.

    Attributes:
        ks: the k.
        document: numbers of the documents, ascending, (documents,).
        words: words whose every token was scored, (documents,).
        whole: those whose every token has R <= k, (documents, ks).
        tokens: scored tokens, (documents,).
        nats: sum of -ln p over them, (documents,).
        num_bytes: bytes of their text, (documents,).

    """

    LABELS = ("document",)
    SUMMED = ("words", "whole", "tokens", "nats", "num_bytes")

    ks: tuple[int, ...]
    document: IntArray
    words: IntArray
    whole: IntArray
    tokens: IntArray
    nats: FloatArray
    num_bytes: IntArray

    @classmethod
    def of(cls, table: RankTable, shapes: TokenShapes, ks: Sequence[int]) -> WordCounts:
        """Count a rank table or a piece of whole documents, rows in text order.

        Words at the edge of a stretch of scored tokens are left out.

        Source: arXiv 2510.20387, eq. 6, with a whole word as the window.
        """
        token = table.column("token")
        present, document = table.documents
        begins = Segments.of(table).begins
        size = len(present)
        ended = np.append(False, ~shapes.ends_blank[token[:-1]].astype(bool)) & ~begins
        fresh = begins | (ended & shapes.begins_blank[token].astype(bool))  # a word begins with this token
        inner = shapes.inner[token]
        last = np.cumsum(fresh + inner) - 1  # the word that the token ends in, over the whole table
        first = last - inner
        count = int(last[-1]) + 1
        owner = np.zeros(count, dtype=np.int64)
        owner[first], owner[last] = document, document  # words inside a token get theirs below
        for extra in np.flatnonzero(inner > 1):
            owner[first[extra] : last[extra]] = document[extra]
        usable = np.ones(count, dtype=bool)
        usable[first[begins]] = False  # its beginning may lie before the first scored token
        usable[last[np.append(begins[1:], True)]] = False  # its end may lie after the last
        whole = []
        for k in ks:
            missed = table.rank > k
            steps = np.bincount(first[missed], minlength=count + 1) - np.bincount(last[missed] + 1, minlength=count + 1)
            good = usable & (np.cumsum(steps)[:-1] == 0)  # no missed token reaches into the word
            whole.append(np.bincount(owner[good], minlength=size))
        return cls(
            ks=tuple(ks),
            document=present.astype(np.int64),
            words=np.bincount(owner[usable], minlength=size),
            whole=np.stack(whole, axis=1),
            tokens=np.bincount(document, minlength=size),
            nats=np.bincount(document, weights=-table.column("logprob").astype(np.float64), minlength=size),
            num_bytes=np.bincount(document, weights=shapes.num_bytes[token], minlength=size).astype(np.int64),
        )

    def values(self, weights: Weights) -> FloatArray:
        """Return bits per byte, then -ln of the share of whole words for each k, (replicates, 1 + ks).

        Source: sums over documents, then divided; weights (replicates, documents) as those of `document_weights`.
        """
        with np.errstate(divide="ignore"):
            bits = drawn_sums(weights, self.nats) / drawn_sums(weights, self.num_bytes) / np.log(2)
            shares = drawn_sums(weights, self.whole) / drawn_sums(weights, self.words)[:, None]
            return np.concatenate([bits[:, None], -np.log(shares)], axis=1)
