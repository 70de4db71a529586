from dataclasses import dataclass
from typing import Any

import numpy as np

from rbptrack.ranks import DocumentSums


@dataclass(frozen=True)
class Hits(DocumentSums):
    LABELS = ("document",)
    SUMMED = ("tokens", "hits")
    TOTALS = ("runs",)

    ks: tuple[int, ...]
    document: Any
    tokens: Any
    hits: Any
    runs: int


def test_pieces_join_and_runs_add() -> None:
    whole = Hits((1, 10), np.arange(5), np.arange(5) + 1, np.arange(10).reshape(5, 2), 3)
    pieces = [whole.take(np.arange(5) < 2), whole.take(np.array([2, 3, 4]))]
    joined = Hits.concatenate(pieces)
    for name in ("document", "tokens", "hits"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert (joined.ks, joined.runs) == ((1, 10), 6)
    both = whole + whole
    np.testing.assert_array_equal(both.document, whole.document)
    np.testing.assert_array_equal(both.hits, 2 * whole.hits)
