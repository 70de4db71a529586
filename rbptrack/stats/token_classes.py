"""Laws by class of token, and what makes the exponent of RBP_k grow with k: other tokens, or other exponents.

With y = -ln RBP_k and classes c that hold shares w_c of the tokens, alpha = -d ln y / d ln S is a weighted sum over
classes,

    alpha(k) = sum_c v_c(k) alpha_c(k),    v_c(k) = w_c RBP_c y_c / (RBP y),

because RBP = sum_c w_c exp(-y_c). The weights say in which classes the misses of R <= k lie.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats.bootstrap import Weights, drawn_sums

KINDS = ("word", "identifier", "number", "punctuation", "white space", "other")
"""Kinds of token by their text, in the order of `kind_of`'s places."""

_WORD = re.compile(r"[^\W\d_]+(['’][^\W\d_]+)?")
_IDENTIFIER = re.compile(r"\w*[^\W\d_]\w*")  # letters with digits, underscores or inner capitals
_FREQUENCIES = (1e-2, 1e-3, 1e-4, 1e-5)


def kind_of(text: str) -> int:
    """The kind of a token by its text, a place in `KINDS`; white space before it does not count.

    Source: Unicode's classes of characters, as Python's regular expressions know them.
    """
    stripped = text.strip()
    if not stripped:
        return 4 if text else 5
    if "\ufffd" in stripped:  # part of a character
        return 5
    if _WORD.fullmatch(stripped):
        inner = any(a.islower() and b.isupper() for a, b in pairwise(stripped))
        return 1 if inner else 0
    if _IDENTIFIER.fullmatch(stripped):
        return 1
    if stripped.replace(".", "").replace(",", "").isdigit():
        return 2
    return 3 if not any(c.isalnum() for c in stripped) else 5


def starts_word(text: str) -> bool:
    """Whether a token begins with white space, and so begins a word (or is white space). Source: as `kind_of`."""
    return bool(text) and text[0].isspace()


def frequency_bins(occurrences: IntArray) -> tuple[IntArray, list[str]]:
    """The class of every id 0..max by its share of the corpus: per decade, the most frequent first; and their names.

    Source: Zipf's ordering of types by frequency.

    Args:
        occurrences: how many scored tokens of the corpus have each id, (ids,).

    """
    share = occurrences / occurrences.sum()
    place = np.digitize(-np.log10(np.maximum(share, 1e-12)), [-np.log10(f) for f in _FREQUENCIES])
    names = ["1e-2 and more", "1e-3 to 1e-2", "1e-4 to 1e-3", "1e-5 to 1e-4", "below 1e-5"]
    return place, names


@dataclass(frozen=True)
class ClassCounts:
    """Sums by document and class of token.

    Attributes:
        names: of the classes.
        ks: the k that `hits` counts.
        tokens: scored tokens, (documents, classes).
        nats: sum of -ln p, (documents, classes).
        hits: tokens with R <= k, (documents, classes, ks).

    """

    names: tuple[str, ...]
    ks: tuple[int, ...]
    tokens: IntArray
    nats: FloatArray
    hits: IntArray

    @classmethod
    def of(cls, table: RankTable, member: IntArray, names: Sequence[str], ks: Sequence[int]) -> ClassCounts:
        """Count a rank table or a piece of whole documents; its tokens are of classes `member`, (tokens,)."""
        documents, document = table.documents
        shape = (len(documents), len(names))
        cell, size = document * shape[1] + member, shape[0] * shape[1]
        ordered, place = np.unique(np.asarray(ks, dtype=np.int64), return_inverse=True)
        smallest = np.searchsorted(ordered, np.arange(table.vocab_size + 1))[table.rank]  # the first k that R passes
        width = len(ordered) + 1
        counts = np.bincount(cell * width + smallest, minlength=size * width).reshape(*shape, width)
        hits = np.cumsum(counts[..., :-1], axis=2)[..., place]
        nats = np.bincount(cell, weights=-table.column("logprob").astype(np.float64), minlength=size)
        return cls(tuple(names), tuple(ks), counts.sum(axis=2), nats.reshape(shape), hits)

    @classmethod
    def concatenate(cls, parts: Sequence[ClassCounts]) -> ClassCounts:
        """Join the counts of disjoint documents, given in their order."""
        tokens, nats, hits = (np.concatenate([getattr(p, name) for p in parts]) for name in ("tokens", "nats", "hits"))
        return replace(parts[0], tokens=tokens, nats=nats, hits=hits)

    def __add__(self, other: ClassCounts) -> ClassCounts:
        """Two runs over the same documents, pooled."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("tokens", "nats", "hits")}
        return replace(self, **sums)

    def values(self, weights: Weights) -> FloatArray:
        """CE, then -ln RBP_k of each k, of every class, (replicates, classes, 1 + ks).

        Source: arXiv 2510.20387; weights (replicates, documents) as those of `document_weights`.
        """
        tokens = drawn_sums(weights, self.tokens)
        with np.errstate(divide="ignore", invalid="ignore"):
            ce = drawn_sums(weights, self.nats) / tokens
            rbp = drawn_sums(weights, self.hits) / tokens[:, :, None]
            return np.concatenate([ce[:, :, None], -np.log(rbp)], axis=2)


def class_weights(share: FloatArray, y: FloatArray) -> FloatArray:
    """v_c = w_c RBP_c y_c / (RBP y), from shares w_c and y_c = -ln RBP_c, both (classes,) or (replicates, classes).

    Source: the derivative of ln(-ln RBP) with RBP = sum_c w_c exp(-y_c); y as in arXiv 2510.20387.
    """
    rbp = np.exp(-y)
    total = (share * rbp).sum(axis=-1, keepdims=True)
    return np.asarray(share * rbp * y / (total * -np.log(total)))


def mix_and_within(
    first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """The difference of two weighted sums of exponents, by class: from weights (mix), from exponents (within).

    Source: Kitagawa, Journal of the American Statistical Association 50, 1955.

    Args:
        first: weights and exponents of the classes at one k, arrays (..., classes).
        second: at another.

    """
    (v, a), (u, b) = first, second
    return (u - v) * (a + b) / 2, (u + v) / 2 * (b - a)
