from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.plugin import import_file
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import NeedsRanks
from tests.rank_tables import rank_table

KLaw = import_file(Path(__file__).parents[2] / "plugins" / "k_law.py").KLaw


class TestContract(NeedsRanks):
    analyzer = KLaw()


def law_in_k(beta: float, b: float, documents: int) -> np.ndarray:
    """Ranks of 100,000 tokens a document with RBP_k = exp(-b k^-beta) as exactly as whole tokens can."""
    k = np.arange(1, 4097)
    share = np.exp(-b * k**-beta)
    hits = np.rint(share * 1e5).astype(int)
    counts = np.diff(hits, prepend=0)
    counts[-1] += 100_000 - hits[-1]
    return np.tile(np.repeat(k, counts), documents)


def runs_of(betas: dict[float, tuple[float, float]], documents: int = 20) -> Runs:
    rows = []
    tables = {}
    for s, (beta, b) in betas.items():
        run_id = f"r{s:.0f}"
        rank = law_in_k(beta, b, documents)
        tables[run_id] = rank_table(rank, documents=documents, vocab_size=4096)
        rows.append(
            {"run_id": run_id, "family": "f", "size": str(s), "model": f"f-{s}", "dataset": "d", "vocab_size": 4096}
            | {"non_embedding_params": s, "num_tokens": len(rank), "ce": 1.0}
        )
    return Runs(pd.DataFrame(rows), Tables(tables))


def test_it_finds_the_law_in_k_that_made_the_ranks():
    report = KLaw().analyze(runs_of({1e6: (0.4, 2.0)}))
    row = report.frame("beta").iloc[0]
    assert row["beta"] == pytest.approx(0.4, abs=1e-3)
    assert row["B"] == pytest.approx(2.0, rel=1e-3)
    assert row["off"] < 1e-3
    assert row["low"] <= row["beta"] <= row["high"]


def test_what_doubling_k_is_worth_is_two_to_beta_over_alpha():
    sizes = {1e6 * 4**i: (0.4, 8.0 * (1e6 * 4**i) ** -0.1) for i in range(4)}
    worth = KLaw().analyze(runs_of(sizes, documents=25)).tables["doubling"]
    at_10 = worth[worth["k"] == 10].iloc[0]
    assert at_10["alpha"] == pytest.approx(0.1, abs=2e-3)
    assert at_10["doubling"] == pytest.approx(2 ** (0.4 / 0.1), rel=0.05)


def test_imported_numbers_without_ranks_have_a_slope_and_no_interval():
    row = {"run_id": "a", "family": "gpt2", "size": "124m", "model": "gpt2", "dataset": "wiki", "without_ranks": True}
    row |= {"non_embedding_params": 1e8, "ce": 3.0} | {f"rbp_{k}": np.exp(-1.5 * k**-0.3) for k in (1, 2, 5, 10, 100)}
    report = KLaw().analyze(Runs(pd.DataFrame([row]), Tables({})))
    answer = report.frame("beta").iloc[0]
    assert answer["beta"] == pytest.approx(0.3)
    assert np.isnan(answer["low"])
    assert any("no interval of β at 124m" in note for note in report.notes)


def test_five_documents_have_a_slope_and_a_reason_for_no_interval():
    row = {"run_id": "a", "family": "f", "size": "1m", "model": "m", "dataset": "d", "vocab_size": 64}
    tables = {"a": rank_table(np.tile([1, 1, 2, 3, 5, 9, 20, 40], 50), documents=5)}
    report = KLaw().analyze(Runs(pd.DataFrame([row | {"non_embedding_params": 1e6}]), Tables(tables)))
    assert np.isnan(report.frame("beta")["low"].iat[0])
    assert any("no interval of β at 1m" in note and "5 documents" in note for note in report.notes)


def test_the_grid_of_k_ends_with_too_few_misses_and_missing_ends_have_a_reason():
    """Nine tokens of one model miss above k = 20; all misses of the other are in one document."""
    rank = np.tile([1, 1, 2, 3, 4, 5, 7, 9, 12, 1], 30)
    rank[9::10] = np.repeat([1, 20, 60], [11, 10, 9])
    alone = np.repeat([20, 1], [15, 285])
    tables = {"spread": rank_table(rank, documents=30), "alone": rank_table(alone, documents=20)}
    row = {"family": "f", "dataset": "d", "vocab_size": 64}
    rows = [row | {"run_id": name, "model": name, "size": name, "non_embedding_params": len(name)} for name in tables]
    report = KLaw().analyze(Runs(pd.DataFrame(rows), Tables(tables)))
    betas = report.frame("beta").set_index("size")
    assert betas["largest_k"].to_dict() == {"spread": 18, "alone": 18}
    assert betas["low"].notna().to_dict() == {"spread": True, "alone": False}
    assert any("no interval of β at alone" in note for note in report.notes)
