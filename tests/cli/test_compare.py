"""Tests of the command `compare`: its answers, its exit codes and its page.

With a tolerance, the exit code is 1 if the second model is worse by more than the tolerance, 0 if it is not, and 3 if
there are too few documents to decide. It is 1 if a file cannot be read, with and without a tolerance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs, compare_runs, worst_documents
from rbptrack.analysis.rank_store import RankTables
from rbptrack.cli.options import Selection
from tests.conftest import RunCommand
from tests.rank_tables import rank_table


def test_compare_of_24_documents_cannot_rule_out_rare_damage(run_in_store: RunCommand) -> None:
    """The second model is better on these 24 texts, but a fault in 3% of all documents may affect none of them."""
    code, out, _ = run_in_store("compare nano-6k/code nano-15k/code --k 1,10 --tolerance 0.01")
    assert code == 3
    assert "less cross-entropy" in out
    assert "RBP_10" in out


FRAME = pd.DataFrame({"run_id": ["a", "b"], "family": "toy", "model": ["toy-1m", "toy-2m"], "dataset": "text"})


def two_runs(documents: int) -> Runs:
    """Return two measurements in memory with two tokens per document. The second is worse in document 3 only."""
    logprob = np.full(2 * documents, -1.0)
    worse = logprob.copy()
    worse[6:8] -= 0.02
    noise = 4e-3 * np.random.default_rng(0).standard_normal(2 * documents)
    tables = {
        "a": rank_table(np.ones(2 * documents), documents=documents, logprob=logprob),
        "b": rank_table(np.ones(2 * documents), documents=documents, logprob=np.minimum(worse + noise, 0)),
    }
    return Runs(FRAME, RankTables(tables))


@pytest.mark.parametrize(("documents", "expected_code"), [(60, 3), (120, 0), (240, 0)])
def test_compare_with_a_tolerance_needs_100_documents(
    documents: int, expected_code: int, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = two_runs(documents)
    monkeypatch.setattr(Selection, "runs", lambda _: runs)
    assert run_command("compare toy-1m toy-2m --k 1 --tolerance 1.0")[0] == expected_code


@pytest.mark.parametrize(("documents", "is_printed"), [(60, False), (120, True), (240, False)])
def test_compare_prints_the_share_it_cannot_rule_out_for_100_to_200_documents(
    documents: int, is_printed: bool, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share is 3/n by the rule of three, 2.5% for 120 documents. The worst document is named first."""
    runs = two_runs(documents)
    monkeypatch.setattr(Selection, "runs", lambda _: runs)
    out = run_command("compare toy-1m toy-2m --k 1 --tolerance 1.0")[1]
    assert ("2.5%" in out) == is_printed
    assert ("document 3 (" in out) == is_printed


def test_worst_documents_sorts_documents_by_the_rise_of_cross_entropy() -> None:
    runs = two_runs(60)
    first, second = runs.row("toy-1m"), runs.row("toy-2m")
    table = worst_documents(runs, first, compare_runs(runs, first, second, ks=(1,)), 10)
    assert table["document"].iat[0] == 3
    assert table["rise"].iat[0] == pytest.approx(0.02, abs=0.01)
    assert table["rise"].is_monotonic_decreasing


@pytest.mark.parametrize(("flags", "expected_code"), [("--tolerance 0.01", 1), ("--tolerance 100", 3), ("", 0)])
def test_compare_exits_with_1_if_the_second_model_is_worse_than_the_tolerance(
    flags: str, expected_code: int, run_in_store: RunCommand
) -> None:
    assert run_in_store(f"compare nano-15k/code nano-6k/code {flags}")[0] == expected_code


def test_compare_of_3_documents_exits_with_3(run_in_store: RunCommand) -> None:
    assert run_in_store("compare nano-15k/few nano-6k/few --tolerance 0.01")[0] == 3


@pytest.mark.parametrize("pair", ["nano-6k/code nano-6k/few", "nano-6k/code nano-6k/code"])
def test_compare_refuses_measurements_of_other_tokens_and_one_measurement_twice(
    pair: str, run_in_store: RunCommand
) -> None:
    code, out, err = run_in_store(f"compare {pair}")
    assert (code, out) == (2, "")
    assert "nano-6k/code" in err


def test_compare_writes_a_page_with_the_chosen_ks(run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run_in_store(f"compare nano-6k/code nano-15k/code --out {page} --k 1,7")[0] == 0
    text = page.read_text()
    assert "nano-15k/code" in text
    assert "RBP_7" in text or "rbp_7" in text


@pytest.mark.parametrize("ks", ["²", "9" * 5000, "0", "-1", "1.5", "x", "1,²", "٣"])
def test_compare_refuses_k_that_is_not_a_positive_whole_number(run_in_store: RunCommand, ks: str) -> None:
    code, out, err = run_in_store(f"compare nano-6k/code nano-15k/code --k={ks}")
    assert (code, out) == (2, "")
    assert 0 < len(err) < 300


def test_compare_writes_a_page_with_a_name_that_is_not_utf_8(run_in_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "p\udcff.html"
    assert run_in_store(f"compare nano-6k/code nano-15k/code --out {page}")[0] == 0
    assert page.is_file()


def test_compare_says_that_the_groups_of_documents_cannot_be_read(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {run_id: rank_table([1, 3, 2, 1], documents=2, top=[0, 1, 0, 1]) for run_id in "ab"}
    runs = Runs(FRAME.assign(groups=1), RankTables(tables))
    monkeypatch.setattr(Selection, "runs", lambda _: runs)
    code, out, _ = run_command("compare toy-1m toy-2m --k 1")
    assert code == 1
    assert "its groups cannot be read" in out
