"""A sample of flipped bits in every kind of file: noticed or harmless, never another number."""

from __future__ import annotations

from pathlib import Path

import pytest

from reliability import bits


def test_no_flipped_bit_is_another_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trials = list(bits.run(tmp_path, count=130))
    assert len(trials) == 130
    assert [trial for trial in trials if trial.outcome not in ("noticed", "harmless")] == []
    assert sum(trial.outcome == "noticed" for trial in trials) > 100
