"""`compare`: what it answers, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs, compare_runs, worst_documents
from rbptrack.analysis.rank_store import Tables
from rbptrack.cli.options import Selection
from tests.conftest import RunCommand
from tests.rank_tables import rank_table


def test_24_documents_cannot_rule_out_rare_damage(on_store: RunCommand) -> None:
    """The second is better, but damage to 3% of all documents may touch none of 24."""
    code, out, _ = on_store("compare nano-6k/code nano-15k/code --k 1,10 --tolerance 0.01")
    assert code == 3
    assert "less cross-entropy" in out
    assert "RBP_10" in out


def two_runs(documents: int) -> Runs:
    """Two measurements in memory, of which the second is worse in document 3 alone."""
    frame = pd.DataFrame({"run_id": ["a", "b"], "family": "toy", "model": ["toy-1m", "toy-2m"], "dataset": "text"})
    logprob = np.full(2 * documents, -1.0)
    worse = logprob.copy()
    worse[6:8] -= 0.02
    noise = 4e-3 * np.random.default_rng(0).standard_normal(2 * documents)
    tables = {
        "a": rank_table(np.ones(2 * documents), documents=documents, logprob=logprob),
        "b": rank_table(np.ones(2 * documents), documents=documents, logprob=np.minimum(worse + noise, 0)),
    }
    return Runs(frame, Tables(tables))


@pytest.mark.parametrize(("documents", "code"), [(60, 3), (120, 0), (240, 0)])
def test_what_cannot_be_ruled_out_is_said(
    documents: int, code: int, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0 is possible with at least 100 documents. With fewer than 200, the rule of three, 3/n, is printed."""
    runs = two_runs(documents)
    monkeypatch.setattr(Selection, "runs", lambda _: runs)
    found, out, _ = run_command("compare toy-1m toy-2m --k 1 --tolerance 1.0")
    assert found == code
    assert ("2.5%" in out) == (documents == 120)
    assert ("document 3 (" in out) == (documents == 120), "the worst document comes first"


def test_the_worst_documents_are_listed() -> None:
    runs = two_runs(60)
    first, second = runs.row("toy-1m"), runs.row("toy-2m")
    table = worst_documents(runs, first, compare_runs(runs, first, second, ks=(1,)), 10)
    assert table["document"].iat[0] == 3
    assert table["rise"].iat[0] == pytest.approx(0.02, abs=0.01)
    assert table["rise"].is_monotonic_decreasing


def test_a_worse_model_is_an_exit_code(on_store: RunCommand) -> None:
    assert on_store("compare nano-15k/code nano-6k/code --tolerance 0.01")[0] == 1
    assert on_store("compare nano-15k/code nano-6k/code --tolerance 100")[0] == 3
    assert on_store("compare nano-15k/code nano-6k/code")[0] == 0


def test_too_few_documents_cannot_tell(on_store: RunCommand) -> None:
    assert on_store("compare nano-15k/few nano-6k/few --tolerance 0.01")[0] == 3


def test_only_the_same_tokens_are_compared(on_store: RunCommand) -> None:
    for pair in ("nano-6k/code nano-6k/few", "nano-6k/code nano-6k/code"):
        code, out, err = on_store(f"compare {pair}")
        assert (code, out) == (2, "")
        assert "nano-6k/code" in err


def test_it_can_be_a_page(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert on_store(f"compare nano-6k/code nano-15k/code --out {page} --k 1,7")[0] == 0
    text = page.read_text()
    assert "nano-15k/code" in text
    assert "RBP_7" in text or "rbp_7" in text


@pytest.mark.parametrize("ks", ["²", "9" * 5000, "0", "-1", "1.5", "x", "1,²", "٣"])
def test_k_is_a_whole_number(on_store: RunCommand, ks: str) -> None:
    code, out, err = on_store(f"compare nano-6k/code nano-15k/code --k={ks}")
    assert (code, out) == (2, "")
    assert 0 < len(err) < 300


def test_a_page_may_have_a_name_that_is_not_utf8(on_store: RunCommand, tmp_path: Path) -> None:
    page = tmp_path / "p\udcff.html"
    assert on_store(f"compare nano-6k/code nano-15k/code --out {page}")[0] == 0
    assert page.is_file()


def test_sources_that_cannot_be_read_are_said(run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"run_id": ["a", "b"], "family": "toy", "model": ["toy-1m", "toy-2m"], "dataset": "text"})
    tables = {run_id: rank_table([1, 3, 2, 1], documents=2, top=[0, 1, 0, 1]) for run_id in "ab"}
    runs = Runs(frame.assign(groups=1), Tables(tables))
    monkeypatch.setattr(Selection, "runs", lambda _: runs)
    code, out, _ = run_command("compare toy-1m toy-2m --k 1")
    assert code == 0
    assert "its groups cannot be read" in out
