"""`compare`: what it answers, and its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import Tables
from rbptrack.commands.compare import compare
from tests.conftest import Typed
from tests.made import ranked


def test_a_better_model_is_within_any_tolerance(on_store: Typed) -> None:
    code, out, _ = on_store("compare nano-6k/code nano-15k/code --k 1,10 --tolerance 0.01")
    assert code == 0
    assert "less cross-entropy" in out
    assert "RBP_10" in out


def test_a_worse_model_is_an_exit_code(on_store: Typed) -> None:
    assert on_store("compare nano-15k/code nano-6k/code --tolerance 0.01")[0] == 1
    assert on_store("compare nano-15k/code nano-6k/code --tolerance 100")[0] == 0
    assert on_store("compare nano-15k/code nano-6k/code")[0] == 0


def test_too_few_documents_cannot_tell(on_store: Typed) -> None:
    assert on_store("compare nano-15k/few nano-6k/few --tolerance 0.01")[0] == 3


def test_only_the_same_tokens_are_compared(on_store: Typed) -> None:
    for pair in ("nano-6k/code nano-6k/few", "nano-6k/code nano-6k/code"):
        code, out, err = on_store(f"compare {pair}")
        assert (code, out) == (2, "")
        assert "nano-6k/code" in err


def test_it_can_be_a_page(on_store: Typed, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert on_store(f"compare nano-6k/code nano-15k/code --out {page} --k 1,7")[0] == 0
    text = page.read_text()
    assert "nano-15k/code" in text
    assert "RBP_7" in text or "rbp_7" in text


@pytest.mark.parametrize("ks", ["²", "9" * 5000, "0", "-1", "1.5", "x", "1,²", "٣"])
def test_k_is_a_whole_number(on_store: Typed, ks: str) -> None:
    code, out, err = on_store(f"compare nano-6k/code nano-15k/code --k={ks}")
    assert (code, out) == (2, "")
    assert 0 < len(err) < 300


def test_a_page_may_have_a_name_that_is_not_utf8(on_store: Typed, tmp_path: Path) -> None:
    page = tmp_path / "p\udcff.html"
    assert on_store(f"compare nano-6k/code nano-15k/code --out {page}")[0] == 0
    assert page.is_file()


def test_sources_that_cannot_be_read_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"run_id": ["a", "b"], "family": "toy", "model": ["toy-1m", "toy-2m"], "dataset": "text"})
    tables = {run_id: ranked([1, 3, 2, 1], documents=2, top=[0, 1, 0, 1]) for run_id in "ab"}
    runs = Runs(frame.assign(groups=1), Tables(tables))

    class Two:
        def runs(self) -> Runs:
            return runs

    selection: Any = Two()
    assert compare(selection, "toy-1m", "toy-2m", ks="1") == 0
    assert "its groups cannot be read" in capsys.readouterr().out
