"""Tests of comparisons of two families on the same texts."""

from __future__ import annotations

from math import hypot

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Family, FamilyLaws, better_first, equivalent_size, level_differences, mean_level
from rbptrack.ranks import CE, DocumentCounts
from rbptrack.stats import Estimate

DOCUMENTS = 50


def width(estimate: Estimate) -> float:
    low, high = estimate.interval()
    return high - low


def family_laws(name: str, sizes: list[float], *, factor: float = 3.0, first_document: int = 0) -> FamilyLaws:
    """Return a family in which CE of document i is factor * S^-0.1 * (1 + 0.2 * z_i)."""
    rows = pd.DataFrame({"family": name, "dataset": "text", "size": [f"{s:g}" for s in sizes], "model": name})
    rows = rows.assign(non_embedding_params=sizes, run_id=[f"{name}{s:g}" for s in sizes], vocab_size=100)
    hardness = 1 + 0.2 * np.random.default_rng(0).standard_normal(DOCUMENTS)
    counts = []
    for s in sizes:
        nats = 100 * factor * s**-0.1 * hardness
        document = np.arange(first_document, first_document + DOCUMENTS)
        tokens = np.full(DOCUMENTS, 100)
        counts.append(DocumentCounts((), document, tokens, nats, np.zeros((DOCUMENTS, 0), np.int64)))
    return FamilyLaws(Family(name, "text", rows), counts)


def test_levels_over_the_same_documents_are_subtracted_in_pairs() -> None:
    """The documents that are hard for one family are hard for the other, so most of the error cancels."""
    first, second = family_laws("a", [1e6]), family_laws("b", [1e6], factor=2.7)
    [(label, difference)] = level_differences(first, second, CE)
    assert label == "1e+06"
    single = first.levels[0][CE]
    assert difference.value == pytest.approx(0.1 * single.value)
    assert width(difference) == pytest.approx(0.1 * width(single))


def test_levels_over_other_documents_are_independent_even_if_their_number_is_equal() -> None:
    first, second = family_laws("a", [1e6]), family_laws("b", [1e6], factor=2.7, first_document=1)
    [(_, difference)] = level_differences(first, second, CE)
    expected = hypot(width(first.levels[0][CE]), width(second.levels[0][CE]))
    assert width(difference) == pytest.approx(expected, rel=0.02)  # the degrees of freedom differ


def test_mean_level_is_the_mean_over_the_pairs_of_sizes() -> None:
    first, second = family_laws("a", [1e6, 1e7]), family_laws("b", [1e6, 1e7], factor=2.7)
    differences = level_differences(first, second, CE)
    assert mean_level(differences).value == pytest.approx(np.mean([difference.value for _, difference in differences]))


@pytest.mark.parametrize("factor", [3.0, 3.0 * (1 + 1e-13), 3.0 * (1 - 1e-13)])
def test_better_first_does_not_depend_on_the_last_bits(factor: float) -> None:
    first, second = family_laws("a", [1e6, 1e7, 1e8]), family_laws("b", [1e6, 1e7, 1e8], factor=factor)
    assert better_first(first, second, CE) == (first, second)


def test_the_family_that_reaches_the_other_with_fewer_parameters_comes_first() -> None:
    """Family b at S has the CE of family a at 2 S."""
    first = family_laws("a", [1e6, 1e7, 1e8])
    second = family_laws("b", [5e5, 5e6, 5e7], factor=3 * 2**-0.1)
    better, other = better_first(first, second, CE)
    assert (better, other) == (second, first)
    ratio = equivalent_size(better, other, CE)
    assert ratio is not None
    assert np.exp(ratio.ln_ratio.value) == pytest.approx(0.5)
    assert better.laws[CE].spans(0.5 * other.laws[CE].s[-1])
