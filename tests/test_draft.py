"""Drafts whose acceptance is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rbptrack.plugins.draft import Draft
from rbptrack.plugins.draft.acceptance import independent_run, speed_up

from rbptrack.analysis import Runs
from rbptrack.analysis.findings import NothingToSay
from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.reference import ReferenceSums
from tests.synthetic import ranked, runs_of_tables, with_reference

DOCUMENTS, LENGTH = 20, 60


def table(accept: Any, rank: Any, **changes: Any) -> RankTable:
    """A draft of 20 documents, each with the same acceptance and ranks of what the reference ranks first."""
    n = DOCUMENTS * LENGTH
    plain = ranked(np.ones(n), documents=DOCUMENTS, **changes)
    return with_reference(plain, accept=np.resize(accept, n), reference_rank=np.resize(rank, n))


def measured(*tables: RankTable, sizes: tuple[float, ...] = (1e6,)) -> Runs:
    about = {"reference": "large", "reference_commit": "c", "reference_params": 10**7 + 640}
    return runs_of_tables(sizes, {f"r{i}": one for i, one in enumerate(tables)}, **about)


def test_equal_chances_are_the_formula() -> None:
    """Acceptance 1/2 at every token: 31/32 of a draft of 5, whether measured or by Leviathan's formula."""
    report = Draft(ks=[1, 2], length=5).analyze(measured(table(0.5, [1, 2, 2, 9])))
    row = report.tables["summary"].frame.iloc[0]
    assert row[["acceptance", "accepted"]].tolist() == pytest.approx([0.5, 31 / 32])
    independent = report.tables["lengths"].frame.set_index("length")["independent"]
    assert independent[5] == pytest.approx(31 / 32)
    assert row["cost"] == pytest.approx(0.1, rel=1e-3)  # of 1e6 and 1e7 parameters
    best = max(range(1, 13), key=lambda n: speed_up(independent_run(0.5, n), n, 0.1))
    assert row[["best", "faster"]].tolist() == pytest.approx(
        [best, speed_up(independent_run(0.5, best), best, 0.1)], rel=1e-3
    )
    branches = report.tables["branches"].frame.set_index("branches")
    assert branches["share"].tolist() == pytest.approx([0.5, 0.25, 0.75])
    # of 1, 2, 2, 9, repeated: with two branches a draft that begins there is accepted for 3, 2, 1, 0 tokens
    starts = LENGTH - 12 + 1
    runs = np.array([3, 2, 1, 0])[np.arange(starts) % 4].mean()
    assert branches.loc["2", "accepted"] == pytest.approx(runs)
    said = sentences_of(report.findings)
    assert said[0].startswith("large accepts 50.0% (50.0% to 50.0%) of the tokens that toy-1000000 drafts on text")
    assert "from the parameters of both models" in report.notes[-1]


def test_a_row_of_tokens_is_not_independent() -> None:
    """Certain and impossible tokens by turns: half of the drafts give one token, the others none."""
    report = Draft(cost=0.5).analyze(measured(table([1.0, 0.0], 1)))
    row = report.tables["summary"].frame.iloc[0]
    half = np.mean(np.arange(LENGTH - 12 + 1) % 2 == 0)
    assert row["accepted"] == pytest.approx(half)
    assert report.tables["lengths"].frame.set_index("length").loc[5, "independent"] == pytest.approx(31 / 32)
    assert row[["cost", "best"]].tolist() == [0.5, 1]
    assert row["faster"] == pytest.approx((1 + half) / 1.5)


def test_a_gap_ends_a_draft() -> None:
    """What is not scored (a prompt's end, a special token) breaks the row, and so does the end of a document."""
    position = np.tile(np.where(np.arange(LENGTH) < 30, np.arange(LENGTH), np.arange(LENGTH) + 5), DOCUMENTS)
    sums = ReferenceSums.of(table(1.0, 1, position=position), [1], longest=12)
    assert sums.starts.tolist() == [2 * (30 - 11)] * DOCUMENTS


def test_the_law_in_size_is_found() -> None:
    sizes = (1e5, 4e5, 1.6e6, 6.4e6)
    rng = np.random.default_rng(0)
    rates = [np.exp(-20 * s**-0.3 * rng.normal(1, 0.01, DOCUMENTS * LENGTH)) for s in sizes]
    report = Draft().analyze(measured(*(table(rate, 1) for rate in rates), sizes=sizes))
    law = report.tables["laws"].frame.set_index("branches").loc["sampling"]
    assert law["alpha"] == pytest.approx(0.3, abs=0.005)
    assert law["alpha_low"] < 0.3 < law["alpha_high"]
    assert any(
        line.startswith("toy on text: -ln of acceptance by large falls with S by an exponent of 0.3")
        for line in sentences_of(report.findings)
    )


def test_what_it_cannot_use_is_said() -> None:
    with pytest.raises(NothingToSay, match="measure a draft with reference=MODEL"):
        Draft().analyze(runs_of_tables([1e6], {"r": table(0.5, 1).of_version(1)}))
    with pytest.raises(BadInput, match=r"analyzer\.length must be between 1 and analyzer\.longest.*got length=20"):
        Draft(length=20).analyze(measured(table(0.5, 1)))
