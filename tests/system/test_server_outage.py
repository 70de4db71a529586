"""MLflow's server is killed in the middle of a sweep and returns: every measurement is there, once."""

from __future__ import annotations

from pathlib import Path

from reliability import sweeps


def test_what_waits_is_delivered_once(tmp_path: Path) -> None:
    trials = list(sweeps.outages(tmp_path, count=1))
    assert [trial for trial in trials if trial.outcome != "nothing lost"] == []
