"""Hundreds of cells in one process: what it holds after the tenth must be what it holds after the last.

    python -m tests.campaigns endurance RESULTS.jsonl [--cells 500]

A sweep over seeds of the selection runs as a user starts it; memory, threads, handles and open files are read from
outside each time that a cell ends.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.campaigns.kills import Life
from tests.campaigns.recorded import record

FIRST = 10  # cells until everything that is kept is there
MEGABYTES = 50  # that memory may grow afterwards


def sample(process: psutil.Process) -> dict[str, float]:
    """What the process holds now."""
    with process.oneshot():
        memory = process.memory_info().rss / 2**20
        return {"memory": memory, "threads": process.num_threads(), "handles": process.num_fds(),
                "files": len(process.open_files())}  # fmt: skip


def endure(cells: int, home: Path) -> dict[str, Any]:
    """Run the sweep; returns the samples at some cells and what is wrong."""
    seeds = f"dataset.seed=range(0,{cells})"
    words = ("-m", "model=nano/6k", "dataset=pydocs", "dataset.documents=2", seeds, "tracking.every=1", "analyzers=[]")
    life, samples, began = Life(home, home / "work", "endurance", words), list[dict[str, float]](), time.monotonic()
    process = psutil.Process(life.process.pid)
    while life.process.poll() is None:
        ended = life.said.read_text().count("  measured ")
        if ended > len(samples):
            samples += [sample(process)] * (ended - len(samples))
        time.sleep(0.05)
    wrong = [life.finish()] if life.process.returncode else []
    wrong += [f"{len(samples)} cells of {cells}"] if len(samples) < cells - 1 else []  # the last may end unseen
    shown = {
        n: {k: round(v) for k, v in samples[n - 1].items()}
        for n in (1, FIRST, cells // 2, len(samples))
        if samples[n - 1 :]
    }
    if len(samples) > FIRST:
        # Of some cells in a row the highest memory, which goes up and down, and the fewest of what may be open for a moment.
        early, late = (
            {key: (max if key == "memory" else min)(each[key] for each in part) for key in samples[0]}
            for part in (samples[FIRST - 1 : FIRST + 20], samples[-20:])
        )
        grown = late["memory"] - early["memory"]
        wrong += [f"memory grew by {grown:.0f} MB"] if grown > MEGABYTES else []
        wrong += [
            f"{key}: {early[key]:.0f}, then {late[key]:.0f}"
            for key in ("threads", "handles", "files")
            if late[key] > early[key]
        ]
        shown["grown"] = {"memory": round(grown, 1)}
    left = sorted(path.name for path in (home / "tmp").iterdir() if not path.name.startswith("torchinductor_"))
    wrong += [f"left behind in TMPDIR: {', '.join(left[:5])}"] if left else []
    return {"cells": cells, "samples": shown, "wrong": wrong, "seconds": round(time.monotonic() - began)}


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of this campaign."""
    parser.add_argument("--cells", type=int, default=500)


def main(asked: argparse.Namespace) -> int:
    """Run the sweep, record what it held; 1 where something grew."""
    home = Path(tempfile.mkdtemp(prefix="rbptrack-endurance-"))
    try:
        line = record(asked.results, "endurance", endure(asked.cells, home))
    finally:
        shutil.rmtree(home)
    print(line)
    return 1 if line["wrong"] else 0
