"""The table of a sweep's results."""

from __future__ import annotations

import pytest

from rbptrack.sweep.outcome import Outcome, summarise


def _cell(size: str, status: str, *, error: bool, swept: str = "") -> Outcome:
    numbers = {"non_embedding_params": 5676.0, "num_tokens": 2059.0, "ce": 6.65674, "rbp_1": 0.0675}
    numbers |= {"ce_se": 0.0518, "rbp_1_se": 0.0018} if error else {}
    return Outcome(f"nano-{size}", f"nano-{size}", "wiki", status, numbers=numbers, swept=swept)


def test_results_stand_by_size_with_their_errors(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [_cell("15k", "skipped", error=False), _cell("6k", "measured", error=True)]
    summarise(cells, total=2, ks=[1, 10])
    head, first, second, end = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert " ".join(head) == "model dataset S tokens CE ± se RBP_1 ± se status"
    assert first == ["nano-6k", "wiki", "5.68k", "2,059", "6.6567±0.0518", "0.0675±0.0018", "measured"]
    assert second == ["nano-15k", "wiki", "5.68k", "2,059", "6.6567", "0.0675", "skipped"]
    assert " ".join(end) == "1 measured, 1 skipped as already measured"


def test_a_status_that_all_cells_have_has_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [_cell("6k", "measured", error=True, swept=swept) for swept in ("seed=0", "")]
    summarise(cells, total=2, ks=[1])
    head, first, second, _ = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert head[:4] == ["model", "dataset", "swept", "S"]
    assert "status" not in head
    assert first[2:4] == ["seed=0", "5.68k"]
    assert second[2] == "5.68k"


def test_cells_that_failed_have_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    summarise([Outcome("nano-6k / wiki", "nano-6k", "wiki", "failed", message="no weights")], total=1, ks=[1])
    assert "model" not in capsys.readouterr().out
