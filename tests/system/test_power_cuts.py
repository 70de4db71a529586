"""A power cut, on a loop-mounted ext4 that is copied while the sweep is stopped: at most a block is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from reliability import sweeps


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mkfs.ext4"), reason="needs root and mkfs.ext4")
def test_a_sweep_goes_on_after_a_power_cut(tmp_path: Path) -> None:
    trials = list(sweeps.power_cuts(tmp_path, count=1))
    assert [trial for trial in trials if trial.outcome != "nothing lost"] == []
