"""What is acknowledged is on the disk: a power cut loses nothing that was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from rbptrack.base.files import unfinished, write_whole
from rbptrack.base.user_paths import check_writable_folder
from rbptrack.commands import report
from tests.conftest import ROOT
from tests.exported import exported
from tests.patience import PATIENCE
from tests.power import Power


def test_nothing_is_acknowledged_before_it_is_synced(tmp_path: Path, clean: dict[str, str]) -> None:
    """A real sweep of two cells in an empty folder, with its analyses: see `tests.power`."""
    out, place = tmp_path / "seen.json", tmp_path / "work"
    place.mkdir()
    command = [sys.executable, "-m", "tests.power", str(out), "-m", "model=nano/6k,nano/15k", "dataset=pydocs"]
    command += ["dataset.documents=4", "analyzers=compare"]
    environment = clean | {"PYTHONPATH": os.pathsep.join([str(ROOT), clean.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads(out.read_text())
    assert said["faults"] == []
    assert said["seen"]["finished"] >= 3  # the cells, and an analysis or the sweep's own run
    assert said["seen"]["part counted"] >= 2
    assert said["seen"]["part removed"] >= 2
    assert said["seen"]["record removed"] == 2
    assert said["seen"]["sync"] < 150


def test_a_name_as_long_as_file_systems_take_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".html")
    write_whole(path, "whole")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_files_of_the_user_are_on_the_disk_when_a_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's folder, and a report's page with its tables."""
    power = Power(tmp_path)
    fsync = os.fsync

    def synced(opened: int) -> None:
        fsync(opened)
        power.synced(opened)

    monkeypatch.setattr(os, "fsync", synced)
    runs = pd.DataFrame([{"run_id": "1", "family": "a", "model": "a-1", "dataset": "w", "ce": 2.0, "rbp_1": 0.5}])
    exported(runs, tmp_path / "hub")
    table = tmp_path / "made" / "k_law" / "tables" / "a.csv"
    table.parent.mkdir(parents=True)
    table.write_text("a\n")
    report._save(tmp_path / "page.html", tmp_path / "made", lambda **_: "<p>")
    table.unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"README.md", "measurements.csv", "page.html", "a.csv"}
    assert [fault for path in files for fault in power.lost(path)] == []


def test_what_a_killed_export_left_is_removed_by_the_next_command(tmp_path: Path) -> None:
    """Only our unfinished files, and none that another process is writing."""
    stay = ["notes.tmp", "out.zip.tmp", "photo.0123abcd.tmp", "out.zip"]
    for name in [*stay, "out.zip.0123abcd.tmp", "t.csv.ffffffff.tmp"]:
        (tmp_path / name).write_text("begun")
    with unfinished(tmp_path / "b.zip", durable=True) as being_written:
        check_writable_folder(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*stay, being_written.name])
