"""Tests of the analyzer `agreement`, which compares pairs of measurements of the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.agreement import Agreement
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.base.errors import BadInput
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore, rank_table

TOKENS = 20


def table(seed: int, *, documents: int = 30, added_nats: float = 0.0, **columns: Any) -> RankTable:
    """Return the ranks of documents of 20 tokens.

    Args:
        seed: determines ranks and probabilities. The tokens are the same for every seed.
        documents: the number of documents.
        added_nats: nats that are added to the cross-entropy of every token.
        columns: other columns of the table, or other values of its columns.

    """
    rng = np.random.default_rng(seed)
    n = documents * TOKENS
    rank = rng.integers(1, 6, n)
    logprob = np.minimum(-np.log(rank) - added_nats - 0.3 * rng.random(n), 0)
    own_columns = {"token": np.arange(n) % 64, "top": rng.integers(0, 2, n), "logprob": logprob}
    return rank_table(rank, documents=documents, **own_columns | columns)


def runs_of_one_model(tables: dict[str, RankTable], **columns: list[Any]) -> Runs:
    """Return runs of one model on one dataset. `columns` are the columns in which they differ."""
    ids = list(tables)
    frame = pd.DataFrame({"run_id": ids, "family": "toy", "size": "1m", "model": "toy-1m", "dataset": "text"})
    frame = frame.assign(non_embedding_params=10**6, vocab_size=64, documents_hash="h", sequence="slide", **columns)
    return Runs(frame, MemoryRankStore(tables, texts={i: f" w{i}" for i in range(64)}))


def pair_names(report: Report) -> list[str]:
    """Return the names of the pairs of a report in the order of its results."""
    return list(dict.fromkeys(report.results["pair"]))


@pytest.fixture(scope="module")
def report_of_three_precisions() -> Report:
    """The report on one model in three precisions. The ranks in bfloat16 and float32 are the same."""
    tables = {"b": table(0), "f": table(0), "h": table(1)}
    return Agreement(worst=4).analyze(runs_of_one_model(tables, dtype=["bfloat16", "float32", "float16"]))


def test_agreement_compares_precisions_with_float32(report_of_three_precisions: Report) -> None:
    assert pair_names(report_of_three_precisions) == [
        "toy-1m@float32 / toy-1m@float16",
        "toy-1m@float32 / toy-1m@bfloat16",
    ]


def test_agreement_of_equal_measurements_has_no_change(report_of_three_precisions: Report) -> None:
    same_top = report_of_three_precisions.frame("same_top").set_index("pair")["same_top"]
    assert same_top["toy-1m@float32 / toy-1m@bfloat16"] == 1
    change = report_of_three_precisions.frame("change").set_index("pair").loc["toy-1m@float32 / toy-1m@bfloat16"]
    assert set(change["change"]) == {0.0}
    assert change.set_index("metric")["verdict"].to_dict() == dict.fromkeys(change["metric"], "undecided") | {
        "ce": "same"
    }


def test_agreement_lists_worst_tokens_of_pair_that_differs(report_of_three_precisions: Report) -> None:
    worst = report_of_three_precisions.tables["worst_tokens"]
    assert len(worst) == 4
    assert worst["nats"].is_monotonic_decreasing
    assert worst["token"].str.match(r" w\d+").all()


def test_agreement_compares_each_checkpoint_with_the_next(tmp_path: Path) -> None:
    """The last of three checkpoints has 0.5 nats more; the others are equal."""
    tables = {"late": table(2, added_nats=0.5), "early": table(2), "middle": table(2)}
    revision = ["step30", "step10", "step20"]
    runs = runs_of_one_model(tables, training_tokens=[3.0, 1.0, 2.0], checkpoint=revision, commit=revision)
    report = Agreement().analyze(runs)
    assert len(pair_names(report)) == 2
    change = report.frame("change")
    ce = change[change["metric"] == "ce"].set_index("pair")
    assert ce["change"].tolist() == pytest.approx([0.0, 0.5], abs=1e-6)
    assert ce["verdict"].tolist() == ["same", "above"]
    assert report.headline.startswith("CE differs in 1 of 2 pairs")
    save(report.figures["change"], tmp_path / "change.svg")


def test_flips_have_interval_of_change_of_rbp_1_and_p_of_mcnemars_test() -> None:
    ranks = np.tile([1, 1, 2, 3, 4], 30 * TOKENS // 5)
    worse_ranks = np.where(np.random.default_rng(0).random(len(ranks)) < 0.4, 5, ranks)
    tables = {"a": rank_table(ranks, documents=30), "b": rank_table(worse_ranks, documents=30)}
    report = Agreement(k=[1]).analyze(runs_of_one_model(tables, dtype=["float32", "bfloat16"]))
    change = report.frame("change").set_index("metric").loc["rbp_1"]
    (flips,) = report.frame("flips").to_dict("records")
    assert flips["flips"] < -0.1
    assert flips["flips"] == change["change"]
    assert flips["low"] == change["low"]
    assert flips["high"] == change["high"]
    assert flips["p"] != change["p"]


def runs_of_three_families() -> Runs:
    tables = {"a": table(0), "b": table(1), "c": table(2)}
    return runs_of_one_model(tables, model=["base-1m", "small-1m", "tiny-1m"], family=["base", "small", "tiny"])


def test_agreement_with_a_compares_it_with_all_other_models() -> None:
    report = Agreement(a="base*").analyze(runs_of_three_families())
    assert pair_names(report) == ["base-1m / small-1m", "base-1m / tiny-1m"]


def test_agreement_with_a_and_b_compares_these_models() -> None:
    report = Agreement(a="tiny*", b="base*").analyze(runs_of_three_families())
    assert pair_names(report) == ["tiny-1m / base-1m"]


@pytest.mark.parametrize("agreement", [Agreement(a="none"), Agreement()], ids=["unknown a", "one run of each model"])
def test_agreement_without_pairs_has_a_note(agreement: Agreement) -> None:
    assert agreement.analyze(runs_of_three_families()).notes


def test_agreement_refuses_more_pairs_than_max_pairs() -> None:
    with pytest.raises(BadInput, match="max_pairs=1"):
        Agreement(a="base*", max_pairs=1).analyze(runs_of_three_families())


def test_agreement_orders_checkpoints_without_training_tokens_by_name() -> None:
    """Neither run IDs nor names as texts are in this order. Each checkpoint has 0.5 nats less than the one before."""
    added_nats = {"c": 1.5, "d": 1.0, "a": 0.5, "b": 0.0}
    tables = {run_id: table(2, added_nats=nats) for run_id, nats in added_nats.items()}
    checkpoint = ["checkpoint-200", "checkpoint-600", "checkpoint-1000", None]
    runs = runs_of_one_model(tables, checkpoint=checkpoint, commit=["p", "q", "r", "s"])
    change = Agreement().analyze(runs).frame("change")
    ce = change.loc[change["metric"] == "ce", "change"]
    assert ce.tolist() == pytest.approx([-0.5, -0.5, -0.5], abs=0.05)


def test_agreement_compares_revisions_with_the_one_measured_first() -> None:
    tables = {"a": table(2, added_nats=0.5), "b": table(2)}
    started = pd.to_datetime(["2026-01-02", "2026-01-01"], utc=True)
    runs = runs_of_one_model(tables, commit=["p", "q"], started=list(started))
    change = Agreement().analyze(runs).frame("change")
    assert change.loc[change["metric"] == "ce", "change"].tolist() == pytest.approx([0.5], abs=0.05)


def test_agreement_compares_runs_that_differ_in_one_condition() -> None:
    """There are two checkpoints in two precisions. One run also has a reference, and one is of another seed.

    The number of parameters is unknown.
    """
    tables = {"a": table(0), "b": table(1), "c": table(2), "d": table(3), "e": table(2), "f": table(5)}
    model = ["m@1", "m@1", "m@2", "m@2", "m@2", "m-seed1@2"]
    dtype = ["float32", "bfloat16", "float32", "bfloat16", "float32", "float32"]
    runs = runs_of_one_model(tables, model=model, checkpoint=model, dtype=dtype, training_tokens=[1, 1, 2, 2, 2, 2])
    frame = runs.frame.drop(columns="name").assign(non_embedding_params=None, reference=[None] * 4 + ["big", None])
    report = Agreement().analyze(Runs(frame, runs.store))
    assert [name.replace("@none", "") for name in pair_names(report)] == [
        "m@1@float32 / m@2@float32",
        "m@1@bfloat16 / m@2@bfloat16",
        "m@1@float32 / m@1@bfloat16",
        "m@2@float32 / m@2@bfloat16",
    ]


def test_names_of_pairs_have_precision_and_quantisation_but_no_commit() -> None:
    tables = {"a": table(0), "b": table(1), "c": table(2)}
    runs = runs_of_one_model(
        tables,
        dtype=["float32", "float32", "bfloat16"],
        commit=["aaaa", "bbbb", "bbbb"],
        weights=[None, "Q4_K_M", "Q4_K_M"],
    )
    assert pair_names(Agreement(a="*").analyze(runs)) == [
        "toy-1m / toy-1m@Q4_K_M",
        "toy-1m@float32 / toy-1m@Q4_K_M@bfloat16",
        "toy-1m@float32 / toy-1m@bfloat16",
    ]


def test_name_of_pair_that_differs_in_commit_alone_has_commits() -> None:
    runs = runs_of_one_model({"a": table(0), "b": table(1)}, dtype=["float32"] * 2, commit=["aaaa", "bbbb"])
    assert pair_names(Agreement(a="*").analyze(runs)) == ["toy-1m@aaaa / toy-1m@bbbb"]


def test_agreement_notes_that_groups_cannot_be_read() -> None:
    tables = {"a": table(0), "b": table(1)}
    frame = runs_of_one_model(tables, dtype=["float32", "bfloat16"], groups=[2, 2]).frame.drop(columns="name")
    report = Agreement().analyze(Runs(frame, RankTables(tables)))
    assert len(pair_names(report)) == 1
    assert any("/ toy-1m@bfloat16 on text: its groups cannot be read" in note for note in report.notes)


def test_agreement_of_imports_without_token_ids_and_top_has_changes_and_flips() -> None:
    tables = {}
    for run_id, seed in (("a", 0), ("b", 1)):
        full_table = table(seed, token=np.full(30 * TOKENS, -1))
        tables[run_id] = RankTable(full_table.table.drop_columns(["ties", "top"]), 64)
    report = Agreement().analyze(runs_of_one_model(tables, dtype=["float32", "bfloat16"]))
    assert report.questions == ["change", "flips"]
    assert set(report.tables["worst_tokens"]["token"]) == {""}


def test_change_that_one_document_decides_is_undecided_and_has_a_note() -> None:
    """Only the first of thirty documents changes."""
    unchanged = table(3)
    logprob = unchanged.column("logprob").copy()
    logprob[:TOKENS] -= 3
    tables = {"a": unchanged, "b": table(3, logprob=logprob)}
    report = Agreement().analyze(runs_of_one_model(tables, dtype=["float32", "bfloat16"]))
    assert any("1.0 documents" in note for note in report.notes)  # 1.07, rounded down
    ce = report.frame("change").set_index("metric").loc["ce"]
    assert ce["verdict"] == "undecided"


class TestContract(NeedsRanks):
    analyzer = Agreement(worst=2)

    def runs(self, *, documents: int = 30) -> Runs:
        tables = {run_id: table(i, documents=documents) for i, run_id in enumerate("abcd")}
        runs = runs_of_one_model(tables, dtype=["float32", "bfloat16", "float16", "float64"])
        return Runs(runs.frame.drop(columns="name"), RankTables(tables))
