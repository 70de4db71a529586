from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.emergence.independence import SuccessByLength, fit_length_laws, success_by_length
from rbptrack.plugins.emergence.windows import count_windows

from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.segments import PositionBins
from tests.test_success_runs import table

LENGTHS = [1, 2, 4]


def success(hits: np.ndarray) -> SuccessByLength:
    """Hits of (documents, tokens)."""
    ranks = table([list(row) for row in hits])
    (counts,) = count_windows(ranks, PositionBins.of(lambda: [ranks], LENGTHS), ks=[1], lengths=LENGTHS)
    weights = document_weights(len(hits), replicates=200)
    return success_by_length(counts, weights, least_runs=1, least_documents=1, level=0.95)


def test_one_document_by_hand() -> None:
    one = success(np.array([[1, 1, 1, 1, 0, 0, 0, 1]], dtype=bool))
    assert one.probability(1).value == pytest.approx(3 / 7)
    assert one.ratio(1).value == pytest.approx((3 / 7) / (5 / 8) ** 2)
    assert one.effective_length(1).value == pytest.approx(np.log(3 / 7) / np.log(5 / 8))
    assert one.eta(1) == pytest.approx(np.log2(np.log(3 / 7) / np.log(5 / 8)))
    assert one.explained(1, "markov") == pytest.approx(
        (np.log(3 / 4) - np.log(5 / 8)) / (np.log(24 / 35) - np.log(5 / 8))
    )
    assert one.probability(1).low == one.probability(1).high  # one document only: no other to draw
    assert not any(one.tested(j) for j in (0, 1))  # single tokens and pairs


def test_what_never_fails_has_no_effective_length() -> None:
    one = success(np.ones((3, 8), dtype=bool))
    assert np.isnan(one.effective_length(2).value)
    assert np.isnan(one.eta(2))
    assert np.isnan(one.explained(2, "documents"))
    assert not one.tested(2)


def test_two_sizes_have_no_law() -> None:
    sizes = [success(np.eye(8, dtype=bool))] * 2
    assert fit_length_laws(np.array([1e4, 1e5]), sizes, level=0.95) == []
