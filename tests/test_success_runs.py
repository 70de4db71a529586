from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.emergence.windows import count_windows, ladder

from rbptrack.ranks import RankTable
from rbptrack.stats.segments import PositionBins
from tests.synthetic import ranked


def table(documents: list[list[bool]], *, gaps: dict[int, int] | None = None) -> RankTable:
    """Documents of hits (rank 1) and misses (rank 9); after token `gap` of document d one token is not scored."""
    hit = np.concatenate([np.array(d) for d in documents])
    position = np.concatenate(
        [np.arange(len(d)) + (np.arange(len(d)) > (gaps or {}).get(i, 10**6)) for i, d in enumerate(documents)]
    )
    number = np.repeat(np.arange(len(documents)) * 3, [len(d) for d in documents])
    return ranked(np.where(hit, 1, 9), document=number, position=position)


def counted(t: RankTable, lengths: list[int]):  # type: ignore[no-untyped-def]
    return count_windows(t, PositionBins.of(lambda: [t], lengths), ks=[1], lengths=lengths)[0]


def test_windows_by_hand() -> None:
    t = table([[1, 1, 1, 0, 1], [1, 1]], gaps={0: 0})  # the first token stands alone: 1 | 1 1 0 1
    c = counted(t, [1, 2, 3])
    np.testing.assert_array_equal(c.windows, [[5, 3, 2], [2, 1, 0]])
    np.testing.assert_array_equal(c.successes, [[4, 1, 0], [2, 1, 0]])
    np.testing.assert_array_equal(c.runs, [[3, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(c.tokens, [5, 2])
    np.testing.assert_array_equal(c.hits, [4, 2])
    np.testing.assert_array_equal(c.followed, [2, 1])  # hits that a scored token follows
    np.testing.assert_array_equal(c.both, [1, 1])


def test_shuffled_hits_are_the_mean_over_permutations() -> None:
    """Three places in a row hold three of the 12 hits among 16 tokens, at each of 14 starts; 13 never do."""
    c = counted(table([[True] * 12 + [False] * 4]), [1, 3, 13])
    assert c.shuffled[0].tolist() == pytest.approx([12, 14 * (12 * 11 * 10) / (16 * 15 * 14), 0])


def test_nulls_by_hand() -> None:
    c = counted(table([[1, 1, 0, 1, 1, 1]]), [1, 2, 3])
    steps = ladder(c, np.ones((1, 1)))
    np.testing.assert_allclose(np.exp(steps["measured"][0]), [5 / 6, 3 / 5, 1 / 4])
    np.testing.assert_allclose(np.exp(steps["independent"][0]), [5 / 6, 25 / 36, 125 / 216])
    np.testing.assert_allclose(np.exp(steps["markov"][0]), [5 / 6, 5 / 6 * 3 / 4, 5 / 6 * 9 / 16])
    np.testing.assert_allclose(np.exp(steps["documents"][0]), [5 / 6, 20 / 30, 60 / 120])


def test_a_share_that_drifts_with_position_by_hand() -> None:
    rng = np.random.default_rng(2)
    hits = rng.random((200, 4)) < [0.9, 0.5, 0.8, 0.4]  # four positions, each a bin of its own
    c = counted(table([list(row) for row in hits]), [1, 2])
    share = hits.mean(axis=0)
    chances = np.exp(ladder(c, np.ones((1, 200)))["position"][0])
    assert chances == pytest.approx([hits.mean(), (share[:-1] * share[1:]).mean()])
