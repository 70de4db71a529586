"""A sample of each campaign of `reliability/`: kills apart, which `test_kills` has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from reliability import alterations, bits, store, sweeps
from reliability.trial import Trial
from tests.conftest import ROOT

as_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mkfs.ext4"), reason="needs root and mkfs.ext4")


def others(trials: Iterable[Trial], *expected: str) -> list[Trial]:
    """The trials with another outcome."""
    return [trial for trial in trials if trial.outcome not in expected]


@pytest.mark.parametrize("campaign", ["inputs", "calls"])
def test_bad_input_ends_with_a_message(campaign: str) -> None:
    # In a process of its own: a trial is a fork, and a fork of a process whose torch has used threads may never end.
    command = [sys.executable, "-m", "reliability", campaign, "--count", "60"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


def test_no_flipped_bit_is_another_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trials = list(bits.run(tmp_path, count=130))
    assert len(trials) > 120
    assert not others(trials, "noticed", "harmless")
    assert len(others(trials, "harmless")) > 100  # most are noticed


def test_every_alteration_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    trials = list(alterations.run(store.build(folder, "nano/6k", "nano/15k"), folder, count=40))
    assert len(trials) == 40
    assert not others(trials, "noticed")


def test_what_waits_for_a_server_is_delivered_once(tmp_path: Path) -> None:
    assert not others(sweeps.outages(tmp_path, count=1), "nothing lost")


@as_root
def test_a_sweep_goes_on_when_a_full_disk_has_room(tmp_path: Path) -> None:
    assert not others(sweeps.full_disks(tmp_path, count=2), "nothing lost")


@as_root
def test_a_sweep_goes_on_after_a_power_cut(tmp_path: Path) -> None:
    """On a loop-mounted ext4 that is copied while the sweep is stopped."""
    assert not others(sweeps.power_cuts(tmp_path, count=1), "nothing lost")
