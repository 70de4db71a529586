"""Tests of the analyzer `draft`: acceptance and speed-up if the models draft for a reference model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.draft import RUNS, STARTS, Draft, draft_sums
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.base.errors import BadInput
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore, rank_table

DOCUMENTS = 20
LENGTH = 60


def table_with_acceptance(accept: Any, documents: int = DOCUMENTS, **columns: Any) -> RankTable:
    """Return the rank table of documents of 60 tokens.

    Args:
        accept: the probability that the reference accepts each token. It is repeated to the number of tokens.
        documents: the number of documents.
        columns: other columns of the table, or other values of its columns.

    """
    n = documents * LENGTH
    of_reference = {"kl": np.full(n, 0.25), "reference_top": np.zeros(n), "reference_rank": np.ones(n)}
    of_draft = {"top": np.zeros(n), "accept": np.resize(accept, n)}
    return rank_table(np.ones(n), documents=documents, **of_reference | of_draft | columns)


def runs_with_reference(*tables: RankTable, sizes: tuple[float, ...] = (1e6,)) -> Runs:
    """Return the runs of one family with a reference of 2 * 10^7 parameters: a rank table for each size S.

    A model of size S has 2 S parameters with embeddings and output head.
    """
    frame = pd.DataFrame({"run_id": [f"r{i}" for i in range(len(tables))], "non_embedding_params": sizes})
    frame = frame.assign(
        family="toy", size=[f"{s:.0f}" for s in sizes], model=[f"toy-{s:.0f}" for s in sizes], dataset="text",
        total_params=2 * np.array(sizes), vocab_size=64,
        reference="large", reference_commit="c", reference_params=2 * 10**7,
    )  # fmt: skip
    return Runs(frame, MemoryRankStore({f"r{i}": table for i, table in enumerate(tables)}))


def speed_up(rate: float, length: int, cost: float) -> float:
    """Return the speed-up if tokens are accepted independently (Leviathan et al., arXiv 2211.17192, theorem 3.8).

    Args:
        rate: the probability that a token is accepted.
        length: the number of tokens of a draft.
        cost: the time of one step of the draft model, as a share of the time of a call of the reference.

    """
    return (1 - rate ** (length + 1)) / ((1 - rate) * (length * cost + 1))


def test_draft_of_constant_acceptance_has_acceptance_tokens_per_call_and_kl() -> None:
    """With acceptance 1/2, a draft of 5 yields 31/32 tokens on average, and the reference adds one token."""
    report = Draft(length=5).analyze(runs_with_reference(table_with_acceptance(0.5)))
    values = report.results.set_index("question")["estimate"]
    assert values["acceptance"] == pytest.approx(0.5)
    assert values["tokens_per_call"] == pytest.approx(1 + 31 / 32)
    assert values["kl"] == pytest.approx(0.25)


def test_draft_of_constant_acceptance_has_speed_up_of_formula_at_best_length() -> None:
    report = Draft(length=5).analyze(runs_with_reference(table_with_acceptance(0.5)))
    best = max(range(1, 13), key=lambda length: speed_up(0.5, length, 0.1))
    row = report.frame("speed_up").iloc[0]
    assert row["best_length"] == best
    assert row["cost"] == 0.1
    assert row["speed_up"] == pytest.approx(speed_up(0.5, best, 0.1))
    assert f"{row['speed_up']:.2f} times with drafts of {best} tokens" in report.headline


def test_draft_of_constant_acceptance_has_tokens_per_call_of_independent_tokens() -> None:
    report = Draft(length=5).analyze(runs_with_reference(table_with_acceptance(0.5)))
    lengths = report.tables["lengths"].set_index("length")
    assert lengths["independent"].to_numpy() == pytest.approx(lengths["tokens_per_call"].to_numpy())


def test_figure_of_acceptance_can_be_saved(tmp_path: Path) -> None:
    report = Draft(length=5).analyze(runs_with_reference(table_with_acceptance(0.5)))
    save(report.figures["acceptance"], tmp_path / "acceptance.svg")


def test_draft_of_alternating_acceptance_differs_from_independent_tokens() -> None:
    """Tokens are accepted with probability 1 and 0 by turns: half of the drafts yield one token, the others none."""
    report = Draft(step_cost=0.5).analyze(runs_with_reference(table_with_acceptance([1.0, 0.0])))
    share_with_one_token = np.mean(np.arange(LENGTH - 12 + 1) % 2 == 0)
    values = report.results.set_index("question")["estimate"]
    assert values["tokens_per_call"] == pytest.approx(1 + share_with_one_token)
    assert report.tables["lengths"].set_index("length").loc[5, "independent"] == pytest.approx(1 + 31 / 32)
    assert values["speed_up"] == pytest.approx((1 + share_with_one_token) / 1.5)
    assert any("0.5 of the time of a call" in note for note in report.notes)


def test_draft_sums_have_no_draft_over_unscored_tokens_or_end_of_document() -> None:
    """Each document has two stretches of 30 scored tokens. A stretch has 30 - 11 drafts of 12 tokens."""
    position = np.tile(np.where(np.arange(LENGTH) < 30, np.arange(LENGTH), np.arange(LENGTH) + 5), DOCUMENTS)
    sums = draft_sums(table_with_acceptance(1.0, position=position), 12)
    assert sums[:, STARTS].tolist() == [2 * (30 - 11)] * DOCUMENTS
    assert sums[:, RUNS:].tolist() == [[2 * (30 - 11)] * 12] * DOCUMENTS


def test_draft_sums_have_no_draft_over_two_documents() -> None:
    """The last document begins with two tokens that are not scored."""
    columns = {"kl": np.zeros(4), "accept": np.ones(4)}
    table = rank_table(np.ones(4), documents=2, position=np.array([1, 2, 3, 4]), **columns)
    assert draft_sums(table, 4)[:, STARTS].tolist() == [0, 0]
    assert draft_sums(table, 2)[:, STARTS].tolist() == [1, 1]


def test_draft_of_documents_shorter_than_longest_has_acceptance_alone_and_a_note() -> None:
    report = Draft(longest=80).analyze(runs_with_reference(table_with_acceptance(0.5)))
    assert report.questions == ["acceptance", "kl"]
    assert any("longest=" in note for note in report.notes)


def test_draft_recovers_law_of_acceptance_in_size() -> None:
    sizes = (1e5, 4e5, 1.6e6, 6.4e6)
    rng = np.random.default_rng(0)
    tables = []
    for s in sizes:
        tables.append(table_with_acceptance(np.exp(-20 * s**-0.3 * rng.normal(1, 0.01, DOCUMENTS * LENGTH))))
    report = Draft().analyze(runs_with_reference(*tables, sizes=sizes))
    law = report.frame("alpha").iloc[0]
    assert law["alpha"] == pytest.approx(0.3, abs=0.005)
    assert law["low"] < 0.3 < law["high"]
    assert law["verdict"] == "above"


@pytest.fixture
def report_of_two_commits() -> Report:
    """The report on two commits of one reference. The number of parameters of the second commit is unknown."""
    accept = np.repeat([1.0, 0.5], [(DOCUMENTS - 1) * LENGTH, LENGTH])  # only the last document is accepted less
    runs = runs_with_reference(table_with_acceptance(accept), table_with_acceptance(0.3), sizes=(1e6, 1e6))
    frame = runs.frame.assign(reference_commit=["aaa", "bbb"], reference_params=[2 * 10**7, None])
    return Draft().analyze(Runs(frame, runs.store))


def test_draft_separates_commits_of_one_reference(report_of_two_commits: Report) -> None:
    acceptance = report_of_two_commits.frame("acceptance").set_index("reference")["acceptance"]
    assert acceptance.to_dict() == pytest.approx({"large@aaa": 0.975, "large@bbb": 0.3})


def test_interval_of_acceptance_ends_at_1(report_of_two_commits: Report) -> None:
    assert report_of_two_commits.frame("acceptance")["high"].max() == 1


def test_draft_of_reference_of_unknown_size_has_no_speed_up_and_a_note(report_of_two_commits: Report) -> None:
    assert report_of_two_commits.frame("speed_up")["reference"].tolist() == ["large@aaa"]
    assert any("the speed-up of large@bbb by 1000000" in note for note in report_of_two_commits.notes)


def test_draft_of_runs_without_reference_notes_the_option() -> None:
    runs = runs_with_reference(table_with_acceptance(0.5))
    without_reference = Runs(runs.frame.drop(columns="name").assign(reference=None), runs.store)
    assert any("reference=MODEL" in note for note in Draft().analyze(without_reference).notes)


def test_draft_of_rank_table_without_acceptance_notes_the_column() -> None:
    table = RankTable(table_with_acceptance(0.5).table.drop_columns(["accept"]), 64)
    report = Draft().analyze(runs_with_reference(table))
    assert not report.questions
    assert any("accept" in note for note in report.notes)


@pytest.mark.parametrize(("option", "value"), [("length", 20), ("length", 0), ("step_cost", -1.0)])
def test_draft_refuses_option_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(BadInput, match=option):
        Draft(**{option: value}).analyze(runs_with_reference(table_with_acceptance(0.5)))


class TestContract(NeedsRanks):
    analyzer = Draft()

    def runs(self, *, documents: int = 30) -> Runs:
        tables = [table_with_acceptance(rate, documents=documents) for rate in (0.5, 0.6, 0.7, 0.8)]
        runs = runs_with_reference(*tables, sizes=(1e5, 4e5, 1.6e6, 6.4e6))
        return Runs(runs.frame.drop(columns="name"), RankTables({f"r{i}": table for i, table in enumerate(tables)}))
