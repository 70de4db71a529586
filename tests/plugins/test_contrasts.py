from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.plugin import import_file
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes
from tests.rank_tables import power_law_rank_table

Contrasts = import_file(Path(__file__).parents[2] / "plugins" / "contrasts.py").Contrasts
SIZES = np.geomspace(1e6, 1e9, 5).round()


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = Contrasts()


def cells(family: str = "f", dataset: str = "text", alpha: float = 0.1, seeds: int = 1, seed: int = 0, **columns):
    """Make rows and rank tables of one family on one dataset. -ln RBP_1 = 3 S^-alpha, with a scatter of 1%."""
    rows = []
    tables = {}
    for s in SIZES:
        for number in range(seeds):
            run_id = f"{family}{dataset}{s:.0f}s{number}"
            model = f"{family}-{s:.0f}" + (f"-seed{number}" if seeds > 1 else "")
            row = {"run_id": run_id, "family": family, "dataset": dataset, "size": f"{s:.0f}", "model": model}
            row |= {"non_embedding_params": s, "vocab_size": 512, "num_tokens": 9000, "documents_hash": dataset}
            rows.append(row | columns)
            factor = 3.0 * np.exp(np.random.default_rng(int(s) + number).normal(0, 0.01))
            tables[run_id] = power_law_rank_table(s, alpha=alpha, factor=factor, tokens=300, seed=seed)
    return rows, tables


def report_of(*parts, analyzer=None):
    rows = [row for some, _ in parts for row in some]
    tables = {run_id: table for _, some in parts for run_id, table in some.items()}
    return (analyzer or Contrasts()).analyze(Runs(pd.DataFrame(rows), Tables(tables)))


def answer(report, question, metric, **case):
    frame = report.frame(question)
    rows = frame[frame["metric"] == metric]
    for name, value in case.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return rows.iloc[0]


def test_two_families_on_one_dataset_are_told_apart_and_equal_ones_are_not() -> None:
    report = report_of(cells("a", alpha=0.1), cells("b", alpha=0.1), cells("c", alpha=0.2))
    assert answer(report, "families", "rbp_1", family="a", versus="c")["verdict"] == "below"
    assert answer(report, "families", "rbp_1", family="a", versus="c")["families"] == pytest.approx(-0.1, abs=0.03)
    assert answer(report, "families", "rbp_1", family="a", versus="b")["verdict"] in ("undecided", "same")
    mean = answer(report, "mean_over_families", "rbp_1")
    assert mean["number"] == 3
    assert mean["homogeneity"] < 0.05
    assert mean["prediction_low"] < mean["low"]
    assert "datasets" not in report.questions


def test_families_on_other_texts_are_not_compared() -> None:
    report = report_of(cells("a"), cells("b", documents_hash="others"))
    assert "families" not in report.questions


def test_one_family_on_datasets() -> None:
    report = report_of(*(cells(dataset=f"d{i}", alpha=alpha, seed=i) for i, alpha in enumerate((0.1, 0.1, 0.2))))
    assert answer(report, "datasets", "rbp_1", dataset="d0", versus="d2")["verdict"] == "below"
    assert answer(report, "datasets", "rbp_1", dataset="d0", versus="d1")["verdict"] in ("undecided", "same")
    assert answer(report, "mean_over_datasets", "rbp_1", family="f")["homogeneity"] < 0.05


def test_models_that_only_one_dataset_has_are_left_out_of_the_difference() -> None:
    rows, tables = cells(dataset="d1", seed=1)
    report = report_of(cells(dataset="d0"), (rows[:-1], tables))
    assert answer(report, "datasets", "rbp_1")["sizes"] == 4


def test_rbp_k_is_compared_with_rbp_1() -> None:
    report = report_of(cells())
    alphas = report.frame("pooled") if "pooled" in report.questions else None
    assert alphas is None, "one law has nothing to pool with"
    assert set(report.frame("against_rbp_1")["metric"]) == {"rbp_10", "rbp_100"}


def test_a_second_seed_with_the_same_ranks_changes_nothing() -> None:
    rows, tables = cells("a")
    seeds = [row | {"run_id": row["run_id"] + "x", "model": row["model"] + "-seed1"} for row in rows]
    twice = (
        rows + seeds,
        tables | {seed["run_id"]: tables[row["run_id"]] for row, seed in zip(rows, seeds, strict=True)},
    )
    other = cells("b", alpha=0.12)
    one, several = (report_of(a, other).results.drop(columns="p_holm") for a in ((rows, tables), twice))
    pd.testing.assert_frame_equal(one, several, rtol=1e-6)


def test_sizes_with_other_seeds_are_left_out_of_a_difference_between_datasets() -> None:
    rows, tables = cells(dataset="d1", seed=1)
    rows[0]["model"] += "-seed1"
    report = report_of(cells(dataset="d0"), (rows, tables))
    assert answer(report, "datasets", "rbp_1")["sizes"] == 4
