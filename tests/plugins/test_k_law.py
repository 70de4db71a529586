"""Tests of the analyzer `k_law`: the law in k of a model, -ln RBP_k = B k^-beta."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from plugins.k_law import KLaw
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from tests.rank_tables import rank_table


class TestContract(NeedsRanks):
    analyzer = KLaw()


def ranks_of_law_in_k(beta: float, b: float, documents: int) -> np.ndarray:
    """Return the ranks of equal documents of 100,000 tokens with RBP_k = exp(-b k^-beta) up to rounding to tokens."""
    k = np.arange(1, 4097)
    share = np.exp(-b * k**-beta)
    hits = np.rint(share * 1e5).astype(int)
    counts = np.diff(hits, prepend=0)
    counts[-1] += 100_000 - hits[-1]
    return np.tile(np.repeat(k, counts), documents)


def runs_of(laws: dict[float, tuple[float, float]], documents: int = 20) -> Runs:
    """Return the runs of one family. laws: beta and B of each model's law in k, by its size S."""
    rows = []
    tables = {}
    for s, (beta, b) in laws.items():
        run_id = f"r{s:.0f}"
        rank = ranks_of_law_in_k(beta, b, documents)
        tables[run_id] = rank_table(rank, documents=documents, vocab_size=4096)
        rows.append(
            {"run_id": run_id, "family": "f", "size": str(s), "model": f"f-{s}", "dataset": "d", "vocab_size": 4096}
            | {"non_embedding_params": s, "num_tokens": len(rank), "ce": 1.0}
        )
    return Runs(pd.DataFrame(rows), RankTables(tables))


def test_k_law_recovers_beta_and_b_of_exact_law() -> None:
    report = KLaw().analyze(runs_of({1e6: (0.4, 2.0)}))
    row = report.frame("beta").iloc[0]
    assert row["beta"] == pytest.approx(0.4, abs=1e-3)
    assert row["B"] == pytest.approx(2.0, rel=1e-3)
    assert row["largest_deviation"] < 1e-3
    assert row["low"] <= row["beta"] <= row["high"]


def test_k_law_fits_no_k_above_the_option_largest() -> None:
    report = KLaw(largest=30).analyze(runs_of({1e6: (0.4, 2.0)}))
    assert report.frame("beta")["largest_k"].tolist() == [30]


def test_k_law_of_imported_metrics_has_beta_without_interval_and_a_note() -> None:
    row = {"run_id": "a", "family": "gpt2", "size": "124m", "model": "gpt2", "dataset": "wiki", "without_ranks": True}
    row |= {"non_embedding_params": 1e8, "ce": 3.0} | {f"rbp_{k}": np.exp(-1.5 * k**-0.3) for k in (1, 2, 5, 10, 100)}
    report = KLaw().analyze(Runs(pd.DataFrame([row]), RankTables({})))
    beta = report.frame("beta").iloc[0]
    assert beta["beta"] == pytest.approx(0.3)
    assert np.isnan(beta["low"])
    assert any("no interval of β at 124m" in note for note in report.notes)


def test_k_law_of_four_documents_has_beta_without_interval_and_a_note() -> None:
    report = report_of_ranks(np.tile([1, 1, 2, 3, 5, 9, 20, 40], 50), documents=4)
    assert np.isnan(report.frame("beta")["low"].iat[0])
    assert any("no interval of β at 1m" in note for note in report.notes)


def report_of_ranks(ranks: npt.ArrayLike, documents: int) -> Report:
    """Analyse one model of size 1m with these ranks and a vocabulary of 64 tokens."""
    row = {"run_id": "a", "family": "f", "size": "1m", "model": "m", "dataset": "d", "vocab_size": 64}
    tables = {"a": rank_table(ranks, documents=documents)}
    return KLaw().analyze(Runs(pd.DataFrame([row | {"non_embedding_params": 1e6}]), RankTables(tables)))


def test_k_law_ends_below_k_with_fewer_than_10_misses() -> None:
    """Of 300 tokens in 30 documents, 19 miss at k = 12 to 19, and 9 at k = 20 to 59."""
    ranks = np.tile([1, 1, 2, 3, 4, 5, 7, 9, 12, 1], 30)
    ranks[9::10] = np.repeat([1, 20, 60], [11, 10, 9])
    (beta,) = report_of_ranks(ranks, documents=30).frame("beta").to_dict("records")
    assert beta["largest_k"] == 18  # the largest k below 20 of the k that are evenly spaced in ln k
    assert np.isfinite(beta["low"])


def test_k_law_of_misses_in_one_document_has_no_interval_and_a_note() -> None:
    """All 15 misses are in the first of 20 documents."""
    report = report_of_ranks(np.repeat([20, 1], [15, 285]), documents=20)
    (beta,) = report.frame("beta").to_dict("records")
    assert beta["largest_k"] == 18
    assert np.isnan(beta["low"])
    assert any("no interval of β at 1m" in note for note in report.notes)
