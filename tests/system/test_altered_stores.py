"""A sample of what `reliability/alterations.py` alters in a real store: `verify` notices each."""

from __future__ import annotations

from pathlib import Path

from reliability import alterations, store


def test_every_alteration_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    built = store.build(folder, "nano/6k", "nano/15k")
    trials = list(alterations.run(built, folder, count=40))
    assert len(trials) == 40
    assert [trial for trial in trials if trial.outcome != "noticed"] == []
