from __future__ import annotations

import numpy as np
import pytest

from rbptrack.ranks import RankTable
from rbptrack.stats.answers import independent_share, read_answers
from tests.test_emergence import table


def test_only_answers_that_were_scored_whole_count() -> None:
    hits = np.ones((4, 6), dtype=bool)
    whole = table(hits, field=np.array([0, 0, 0, 1, 1, 1]))
    keep = np.ones(24, dtype=bool)
    keep[4] = False  # document 0 lacks a token inside its answer
    keep[6 + 2] = False  # document 1 lacks the token before its answer: the answer's first may be missing, too
    keep[12 + 3 : 18] = False  # document 2 has no answer
    part = RankTable(whole.table.filter(keep), 16)
    answers = read_answers(part, [1])
    assert answers is not None
    np.testing.assert_array_equal(answers.length, [3])
    np.testing.assert_array_equal(answers.whole, [[1.0]])
    cut = read_answers(whole, [1], cut_at=7)  # positions run to 6, the last that fits: there may have been more
    assert cut is not None
    assert len(cut.length) == 0
    assert read_answers(table(hits), [1]) is None


def test_runs_of_one_size_are_averaged() -> None:
    field = np.array([0, 1, 1])
    hits = np.array([[1, 1, 1], [1, 1, 0]], dtype=bool)
    first, second = (read_answers(table(h, field=field), [1]) for h in (hits, np.ones_like(hits)))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal((first + second + second).whole, [[1], [2 / 3]])
    np.testing.assert_array_equal((first + second).hits, [[2], [1.5]])


def test_independent_tokens_by_hand() -> None:
    assert independent_share(np.array([1, 3]), np.log(2.0)) == pytest.approx((1 / 2 + 1 / 8) / 2)
