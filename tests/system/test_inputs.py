"""A sample of the bad inputs of `reliability/`: each is a line or two and an exit code, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("campaign", ["inputs", "calls"])
def test_bad_input_ends_with_a_message(campaign: str) -> None:
    # In a process of its own: a trial is a fork, and a fork of a process whose torch has used threads may never end.
    command = [sys.executable, "-m", "reliability", campaign, "--count", "60"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
