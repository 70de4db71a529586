"""Laws by class of token, and what makes the exponent of RBP_k grow with k: other tokens, or other exponents.

With y = -ln RBP_k and classes c that hold shares w_c of the tokens, alpha = -d ln y / d ln S is a weighted sum over
classes,

    alpha(k) = sum_c v_c(k) alpha_c(k),    v_c(k) = w_c RBP_c y_c / (RBP y),

because RBP = sum_c w_c exp(-y_c). The weights say in which classes the misses of R <= k lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankTable
from rbptrack.stats.bootstrap import Weights, drawn_sums
from rbptrack.stats.contrasts import line_draws
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.segments import added
from rbptrack.stats.size_laws import law_metrics
from rbptrack.stats.token_kinds import KINDS, kind_of

BY = {
    "kind": "kind of token",
    "word": "place in the word",
    "frequency": "share of the corpus",
    "field": "field of the dataset",
}
"""Ways of classing tokens, and what they go by."""

_FREQUENCIES = (1e-2, 1e-3, 1e-4, 1e-5)


def starts_word(text: str) -> bool:
    """Return whether a token begins with white space, and so begins a word (or is white space). Source: as
    `kind_of`.
    """
    return bool(text) and text[0].isspace()


def frequency_bins(occurrences: IntArray) -> tuple[IntArray, list[str]]:
    """Return the class of every id 0..max by its share of the corpus: per decade, the most frequent first; and their
    names.

    Source: Zipf's ordering of types by frequency.

    Args:
        occurrences: how many scored tokens of the corpus have each id, (ids,).

    """
    share = occurrences / occurrences.sum()
    place = np.digitize(-np.log10(np.maximum(share, 1e-12)), [-np.log10(f) for f in _FREQUENCIES])
    names = ["1e-2 and more", "1e-3 to 1e-2", "1e-4 to 1e-3", "1e-5 to 1e-4", "below 1e-5"]
    return place, names


@dataclass(frozen=True)
class ClassCounts(DocumentSums):
    """Sums by document and class of token.

    Attributes:
        names: of the classes.
        ks: the k that `hits` counts.
        tokens: scored tokens, (documents, classes).
        nats: sum of -ln p, (documents, classes).
        hits: tokens with R <= k, (documents, classes, ks).

    """

    SUMMED = ("tokens", "nats", "hits")

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
        cell = document * shape[1] + member
        size = shape[0] * shape[1]
        ordered, place = np.unique(np.asarray(ks, dtype=np.int64), return_inverse=True)
        smallest = np.searchsorted(ordered, np.arange(table.vocab_size + 1))[table.rank]  # the first k that R passes
        width = len(ordered) + 1
        counts = np.bincount(cell * width + smallest, minlength=size * width).reshape(*shape, width)
        hits = np.cumsum(counts[..., :-1], axis=2)[..., place]
        nats = np.bincount(cell, weights=-table.column("logprob").astype(np.float64), minlength=size)
        return cls(tuple(names), tuple(ks), counts.sum(axis=2), nats.reshape(shape), hits)

    def values(self, weights: Weights) -> FloatArray:
        """Return CE, then -ln RBP_k of each k, of every class, (replicates, classes, 1 + ks).

        Source: arXiv 2510.20387; weights (replicates, documents) as those of `document_weights`.
        """
        tokens, nats = (drawn_sums(weights, sums)[:, :, None] for sums in (self.tokens, self.nats))
        return law_metrics(np.concatenate([tokens, nats, drawn_sums(weights, self.hits)], axis=2))


def class_weights(share: FloatArray, y: FloatArray) -> FloatArray:
    """Return v_c = w_c RBP_c y_c / (RBP y), from shares w_c and y_c = -ln RBP_c, both (classes,) or (replicates,
    classes).

    Source: the derivative of ln(-ln RBP) with RBP = sum_c w_c exp(-y_c); y as in arXiv 2510.20387.
    """
    rbp = np.exp(-y)
    total = (share * rbp).sum(axis=-1, keepdims=True)
    return np.asarray(share * rbp * y / (total * -np.log(total)))


def mix_and_within(
    first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return the difference of two weighted sums of exponents, by class: from weights (mix), from exponents (within).

    Source: Kitagawa, Journal of the American Statistical Association 50, 1955.

    Args:
        first: weights and exponents of the classes at one k, arrays (..., classes).
        second: at another.

    """
    v, a = first
    u, b = second
    return (u - v) * (a + b) / 2, (u + v) / 2 * (b - a)


LawsAndDraws = tuple[Sequence[PowerLawFit], Sequence[FloatArray]]
"""The law of each class at one k, and its bootstrap replicates, (m, replicates) each."""


def change_of_exponent(
    s: FloatArray, share: FloatArray, first: LawsAndDraws, second: LawsAndDraws
) -> tuple[FloatArray, FloatArray]:
    """Return the change of alpha from one k to another at the middle of the sizes: mix and within, (2,), and
    (replicates, 2).

    Source: `class_weights`, scaled to add up to 1, and `mix_and_within`.

    Args:
        s: sizes S, (m,).
        share: of the tokens in each class, (classes,).
        first: at the one k.
        second: at the other.

    """
    at = float(np.exp(np.log(s).mean()))
    points = []
    drawn = []
    for laws, draws in (first, second):
        levels, alphas = zip(*(line_draws(s, replicates, at=at) for replicates in draws), strict=True)
        v = class_weights(share, np.array([float(law.predict(at)) for law in laws]))
        v_draws = class_weights(share, np.exp(np.stack(levels, axis=1)))
        points.append((v / v.sum(), np.array([law.alpha for law in laws])))
        drawn.append((v_draws / v_draws.sum(axis=1, keepdims=True), np.stack(alphas, axis=1)))
    parts = mix_and_within(*points)
    part_draws = mix_and_within(*drawn)
    return np.array([part.sum() for part in parts]), np.stack([part.sum(axis=1) for part in part_draws], axis=1)


@dataclass(frozen=True)
class Way:
    """A way of classing tokens.

    Attributes:
        name: of the way, as in `BY`.
        column: of the rank table that tells the class.
        place: the class of each value of that column.
        names: of the classes.

    """

    name: str
    column: str
    place: IntArray
    names: Sequence[str]


def ways_of_classing(pieces: Iterable[RankTable], texts: Mapping[int, str]) -> Iterator[Way]:
    """Yield each way of classing the tokens of a rank table that gives more than one class.

    Source: `kind_of`, `starts_word`, `frequency_bins`, and the dataset's fields.

    Args:
        pieces: of the table.
        texts: of tokens, by id; empty where they are unknown.

    """
    occurrences: dict[str, list[IntArray]] = {"token": [], "field": []}
    unknown = False
    for piece in pieces:
        unknown |= bool(len(piece)) and int(piece.column("token").min()) < 0
        for column, counts in occurrences.items():
            counts.append(np.bincount(np.maximum(piece.column(column), 0)))
    times, fields = (added(counts) for counts in occurrences.values())
    ids = np.flatnonzero(times).tolist()
    last_field = len(fields) - 1
    countable = bool(ids) and not unknown
    if countable and texts:
        kind = np.full(len(times), len(KINDS) - 1)
        start = np.ones(len(times), dtype=np.int64)
        for i in ids:
            text = texts.get(i, "")
            kind[i] = kind_of(text)
            start[i] = 0 if starts_word(text) else 1
        yield Way("kind", "token", kind, KINDS)
        yield Way("word", "token", start, ("begins a word", "inside a word"))
    if countable:
        yield Way("frequency", "token", *frequency_bins(times))
    if last_field > 0:
        yield Way("field", "field", np.arange(last_field + 1), [f"field {i}" for i in range(last_field + 1)])
