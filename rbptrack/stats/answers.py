"""Whole answers: how often every token of a dataset's last field has R <= k, beside what RBP_k alone predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import DocumentMeans, FloatArray, IntArray, RankTable, sum_by
from rbptrack.stats.segments import Segments


@dataclass(frozen=True)
class Answers(DocumentMeans):
    """Whole answers: the tokens of the last of a dataset's fields, where every one of them was scored.

    Attributes:
        length: tokens of each answer, (answers,).
        hits: tokens of it with R <= k, for each k, (answers, len(ks)); a mean over runs where several were pooled.
        whole: whether all of them have, (answers, len(ks)), as numbers.
        answered: whether a document has one, (documents,).
        field: which of the dataset's fields they come from.
        groups: the source of each document, (documents,); empty where answers are taken as independent.
        runs: how many runs were pooled.

    """

    LABELS = ("length", "answered")
    SUMMED = ("hits", "whole")

    length: IntArray
    hits: FloatArray
    whole: FloatArray
    answered: npt.NDArray[np.bool_]
    field: int
    groups: Sequence[str] = ()
    runs: int = 1

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join the answers of disjoint documents, given in their order."""
        field = max(part.field for part in parts)  # the others' documents were cut before their answers
        return super().concatenate([part if part.field == field else part.without_answers(field) for part in parts])

    def without_answers(self, field: int) -> Self:
        """Return the same documents without any answer in this field."""
        none = {name: getattr(self, name)[:0] for name in ("length", "hits", "whole")}
        return replace(self, **none, answered=np.zeros_like(self.answered), field=field)

    def in_groups(self, groups: Sequence[str]) -> Self:
        """Add the source of each document: answers differ in length, so they stay separate."""
        return replace(self, groups=groups)

    def by_source(self, number: int) -> FloatArray:
        """Return whole answers of one of the k, and answers, of each source, or of each document, (sources, 2)."""
        both = np.column_stack([self.whole[:, number], np.ones(len(self.length))])
        return sum_by(np.asarray(self.groups)[self.answered].tolist(), both) if len(self.groups) else both


def read_answers(table: RankTable, ks: Sequence[int], *, cut_at: int | None = None) -> Answers:
    """Return success of whole answers; none if all tokens come from one field.

    An answer counts if its tokens are consecutive and the token before it was scored, so that none of it is missing.

    Source: arXiv 2510.20387, eq. 6, with a whole answer as the window.

    Args:
        table: a rank table or a piece of whole documents, rows in text order.
        ks: the k.
        cut_at: where sequences were cut after so many tokens, an answer that reaches the cut is left out: its rest may
            be missing.

    """
    field = table.column("field")
    position = table.column("position")
    last = field.max()
    if (field == last).all():
        none = np.empty((0, len(ks)))
        nobody = np.zeros(len(table.documents[0]), dtype=bool)
        return Answers(np.empty(0, dtype=np.int64), none, none, nobody, int(last))
    segments = Segments.of(table)
    is_answer = field == last
    document = segments.document[is_answer]
    length = np.bincount(document, minlength=segments.documents)
    starts = np.bincount(document, weights=(segments.begins & is_answer)[is_answer], minlength=segments.documents)
    whole = (length > 0) & (starts == 0)  # no gap inside, nor before its first token
    if cut_at is not None:
        end = np.zeros(segments.documents, dtype=np.int64)
        np.maximum.at(end, document, position[is_answer])
        whole &= end < cut_at - 1
    ranks = table.rank[is_answer]
    hits = np.column_stack([np.bincount(document, weights=ranks <= k, minlength=segments.documents) for k in ks])
    succeeded = (hits[whole] == length[whole, None]).astype(np.float64)
    return Answers(length[whole], hits[whole], succeeded, whole, int(last))
