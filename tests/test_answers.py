from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.emergence import Emergence

from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.answers import read_answers
from tests.synthetic import runs_of_tables
from tests.test_emergence import SIZES, success, table


def test_only_answers_that_were_scored_whole_count() -> None:
    hits = np.ones((4, 6), dtype=bool)
    whole = table(hits, field=np.array([0, 0, 0, 1, 1, 1]))
    keep = np.ones(24, dtype=bool)
    keep[4] = False  # document 0 lacks a token inside its answer
    keep[6 + 2] = False  # document 1 lacks the token before its answer: the answer's first may be missing, too
    keep[12 + 3 : 18] = False  # document 2 has no answer
    part = RankTable(whole.table.filter(keep), 16)
    answers = read_answers(part, [1])
    np.testing.assert_array_equal(answers.length, [3])
    np.testing.assert_array_equal(answers.whole, [[1.0]])
    cut = read_answers(whole, [1], cut_at=7)  # positions run to 6, the last that fits: there may have been more
    assert len(cut.length) == 0
    assert len(read_answers(table(hits), [1]).length) == 0  # one field only


def test_runs_of_one_size_are_averaged() -> None:
    field = np.array([0, 1, 1])
    hits = np.array([[1, 1, 1], [1, 1, 0]], dtype=bool)
    first, second = (read_answers(table(h, field=field), [1]) for h in (hits, np.ones_like(hits)))
    np.testing.assert_array_equal((first + second + second).whole, [[1], [2 / 3]])
    np.testing.assert_array_equal((first + second).hits, [[2], [1.5]])


def test_whole_answers_beside_what_the_law_predicts() -> None:
    rng = np.random.default_rng(5)
    field = np.array([0] * 6 + [1] * 3)
    tables = {f"r{i}": table(rng.random((2000, 9)) < success(s), field=field) for i, s in enumerate(SIZES)}
    run = Emergence(ks=[1], lengths=[1], replicates=50).analyze(runs_of_tables(SIZES, tables))
    answers = run.tables["answers"].frame
    truth = np.array([success(s) for s in SIZES])
    assert answers["answers"].eq(2000).all()
    assert answers["rbp_of_answer"].to_numpy() == pytest.approx(truth, abs=0.02)
    assert answers["share_by_law"].to_numpy() == pytest.approx(truth**3, abs=0.02)
    assert ((answers["share_low"] < truth**3) & (truth**3 < answers["share_high"])).sum() >= 4
    assert any("of 2,000 whole answers (3.0 tokens on average)" in sentence for sentence in sentences_of(run.findings))
    assert "answers" in run.drawings
