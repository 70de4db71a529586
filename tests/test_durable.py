"""What is acknowledged is on the disk: a power cut loses nothing that was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rbptrack.base.files import write_whole
from tests.conftest import ROOT
from tests.patience import PATIENCE


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
