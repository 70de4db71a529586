"""What analyzers have read is kept as long as it fits, and read again where it does not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rbptrack.analysis.bounded_cache import Kept, V
from rbptrack.analysis.runs import Runs
from rbptrack.analysis.testing import example_runs
from rbptrack.ranks import RankHistogram, RankTable
from tests.synthetic import Given


def histogram(ranks: int) -> RankHistogram:
    each = np.arange(1, ranks + 1)
    return RankHistogram(each, each, -each.astype(np.float64), 1000)  # 24 bytes a rank


def test_what_fits_is_kept_and_the_rest_is_not() -> None:
    kept = Kept[RankHistogram](most=24 * 100)
    first, second, small = histogram(60), histogram(50), histogram(40)
    assert kept.keep("first", first) is first
    assert kept.keep("second", second) is second, "what is not kept is still given back"
    kept.keep("small", small)
    assert kept.get("first") is first, "the oldest stays: the next analyzer asks for it first"
    assert kept.get("second") is None
    assert kept.get("small") is small


def test_a_value_takes_the_place_of_the_one_before() -> None:
    kept = Kept[RankHistogram](most=24 * 100)
    kept.keep("a", histogram(90))
    kept.keep("a", histogram(10))
    second = kept.keep("b", histogram(90))
    assert kept.get("b") is second
    kept.keep("b", histogram(91))
    assert kept.get("b") is None, "neither the old value nor one that is too large"
    assert kept.get("a") is not None


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_numbers_do_not_depend_on_what_is_kept(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, read = example_runs(families={"alpha": 3}, datasets=("code",)), Counter[str]()

    def ranks(run_id: str) -> RankTable:
        read[run_id] += 1
        return whole.ranks(run_id)

    class Small(Kept[V]):
        def __init__(self) -> None:
            super().__init__(most)

    monkeypatch.setattr("rbptrack.analysis.runs.Kept", Small)
    runs = Runs(whole.frame, Given(ranks=ranks))
    for _ in range(2):
        for run_id in map(str, runs.frame["run_id"]):
            counts, expected = runs.document_counts(run_id, [1, 10]), whole.document_counts(run_id, [1, 10])
            np.testing.assert_array_equal(counts.hits, expected.hits)
            np.testing.assert_array_equal(counts.nats, expected.nats)
            assert runs.histogram(run_id).ce == whole.histogram(run_id).ce
    assert set(read.values()) == {2 if most else 4}
