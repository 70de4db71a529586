"""Drafts whose acceptance is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.draft import RUNS, STARTS, Draft, draft_sums
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.base.errors import BadInput
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore, rank_table

DOCUMENTS = 20
LENGTH = 60


def table(accept: Any, documents: int = DOCUMENTS, **columns: Any) -> RankTable:
    """A draft of some documents, each with the same acceptance."""
    n = documents * LENGTH
    about = {"kl": np.full(n, 0.25), "reference_top": np.zeros(n), "reference_rank": np.ones(n), "top": np.zeros(n)}
    return rank_table(np.ones(n), documents=documents, **about | {"accept": np.resize(accept, n)} | columns)


def measured(*tables: RankTable, sizes: tuple[float, ...] = (1e6,)) -> Runs:
    frame = pd.DataFrame({"run_id": [f"r{i}" for i in range(len(tables))], "non_embedding_params": sizes})
    frame = frame.assign(
        family="toy", size=[f"{s:.0f}" for s in sizes], model=[f"toy-{s:.0f}" for s in sizes], dataset="text",
        total_params=sizes, vocab_size=64, reference="large", reference_commit="c", reference_params=10**7,
    )  # fmt: skip
    return Runs(frame, MemoryRankStore({f"r{i}": one for i, one in enumerate(tables)}))


def speed_up(rate: float, length: int, cost: float) -> float:
    """Leviathan et al., theorem 3.8."""
    return (1 - rate ** (length + 1)) / ((1 - rate) * (length * cost + 1))


def test_equal_chances_are_the_formula(tmp_path: Path) -> None:
    """Acceptance 1/2 at every token: 31/32 of a draft of 5, and one of the reference's own."""
    report = Draft(length=5).analyze(measured(table(0.5)))
    values = report.results.set_index("question")["estimate"]
    assert values["acceptance"] == pytest.approx(0.5)
    assert values["tokens_per_call"] == pytest.approx(1 + 31 / 32)
    assert values["kl"] == pytest.approx(0.25)
    best = max(range(1, 13), key=lambda n: speed_up(0.5, n, 0.1))
    row = report.frame("speed_up").iloc[0]
    assert row[["length", "cost"]].tolist() == [best, 0.1]
    assert row["speed_up"] == pytest.approx(speed_up(0.5, best, 0.1))
    lengths = report.tables["lengths"].set_index("length")
    assert lengths["independent"].to_numpy() == pytest.approx(lengths["tokens_per_call"].to_numpy())
    assert f"{row['speed_up']:.2f} times with drafts of {best} tokens" in report.headline
    save(report.figures["acceptance"], tmp_path / "a.svg")


def test_a_row_of_tokens_is_not_independent() -> None:
    """Certain and impossible tokens by turns: half of the drafts give one token, the others none."""
    report = Draft(step_cost=0.5).analyze(measured(table([1.0, 0.0])))
    half = np.mean(np.arange(LENGTH - 12 + 1) % 2 == 0)
    values = report.results.set_index("question")["estimate"]
    assert values["tokens_per_call"] == pytest.approx(1 + half)
    assert report.tables["lengths"].set_index("length").loc[5, "independent"] == pytest.approx(1 + 31 / 32)
    assert values["speed_up"] == pytest.approx((1 + half) / 1.5)
    assert any("0.5 of the time of a call" in note for note in report.notes)


def test_a_gap_ends_a_draft() -> None:
    """What is not scored (a prompt's end, a special token) breaks the row, and so does the end of a document."""
    position = np.tile(np.where(np.arange(LENGTH) < 30, np.arange(LENGTH), np.arange(LENGTH) + 5), DOCUMENTS)
    sums = draft_sums(table(1.0, position=position), 12)
    assert sums[:, STARTS].tolist() == [2 * (30 - 11)] * DOCUMENTS
    assert sums[:, RUNS:].tolist() == [[2 * (30 - 11)] * 12] * DOCUMENTS


def test_texts_too_short_for_a_draft_have_acceptance_alone() -> None:
    report = Draft(longest=80).analyze(measured(table(0.5)))
    assert report.questions == ["acceptance", "kl"]
    assert any("longest=" in note for note in report.notes)


def test_the_law_in_size_is_found() -> None:
    sizes = (1e5, 4e5, 1.6e6, 6.4e6)
    rng = np.random.default_rng(0)
    rates = [np.exp(-20 * s**-0.3 * rng.normal(1, 0.01, DOCUMENTS * LENGTH)) for s in sizes]
    report = Draft().analyze(measured(*map(table, rates), sizes=sizes))
    law = report.frame("alpha").iloc[0]
    assert law["alpha"] == pytest.approx(0.3, abs=0.005)
    assert law["low"] < 0.3 < law["high"]
    assert law["verdict"] == "above"


def test_references_of_one_name_are_told_apart_and_ends_are_shares() -> None:
    """Two commits of the reference; of one the size is unknown. One document of twenty is accepted less."""
    rate = np.repeat([1.0, 0.5], [(DOCUMENTS - 1) * LENGTH, LENGTH])
    given = measured(table(rate), table(0.3), sizes=(1e6, 1e6))
    frame = given.frame.assign(reference_commit=["aaa", "bbb"], reference_params=[10**7, None])
    report = Draft().analyze(Runs(frame, given.store))
    rows = report.frame("acceptance").set_index("reference")
    assert rows["acceptance"].to_dict() == pytest.approx({"large@aaa": 0.975, "large@bbb": 0.3})
    assert rows["high"].max() == 1
    assert report.frame("speed_up")["reference"].tolist() == ["large@aaa"]
    assert any("the speed-up of large@bbb by 1000000" in note for note in report.notes)


def test_what_it_cannot_use_is_said() -> None:
    plain = measured(table(0.5))
    without = Runs(plain.frame.drop(columns="name").assign(reference=None), plain.store)
    assert any("reference=MODEL" in note for note in Draft().analyze(without).notes)
    lacking = RankTable(table(0.5).table.drop_columns(["accept"]), 64)
    report = Draft().analyze(measured(lacking))
    assert not report.questions
    assert any("accept" in note for note in report.notes)
    for options in ({"length": 20}, {"length": 0}, {"step_cost": -1.0}):
        with pytest.raises(BadInput):
            Draft(**options).analyze(plain)  # type: ignore[arg-type]


class TestContract(NeedsRanks):
    analyzer = Draft()

    def runs(self, *, documents: int = 30) -> Runs:
        tables = [table(rate, documents=documents) for rate in (0.5, 0.6, 0.7, 0.8)]
        given = measured(*tables, sizes=(1e5, 4e5, 1.6e6, 6.4e6))
        return Runs(given.frame.drop(columns="name"), Tables({f"r{i}": one for i, one in enumerate(tables)}))
