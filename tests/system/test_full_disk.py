"""A disk that is full: one line, nothing lost, and the same command ends the sweep when there is room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reliability import sweeps


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_sweep_goes_on_when_there_is_room(tmp_path: Path) -> None:
    trials = list(sweeps.full_disks(tmp_path, count=2))
    assert [trial for trial in trials if trial.outcome != "nothing lost"] == []
