"""Tests of `draw`: the separate process that draws charts, and what happens if it fails or dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rbptrack.figures.drawing import CannotDraw, draw

CHART = {"data": {"values": [{"a": 1}]}, "mark": "point", "encoding": {"x": {"field": "a", "type": "quantitative"}}}
SAVE_IN_ALL_FORMATS = """
import pandas as pd
from rbptrack.figures import charts
from rbptrack.figures.drawing import CannotDraw
chart = charts.facets(pd.DataFrame({"family": ["a"], "dataset": "x", "S": [1e6], "beta": [0.1]}), x="S", y="beta")
for form in charts.FORMATS:
    try:
        charts.save(chart, f"figure.{form}")
    except CannotDraw:
        print("not drawn", flush=True)
"""


def drawing_processes() -> list[psutil.Process]:
    """Return the processes that this process has started for drawing and that still run."""
    children = psutil.Process().children()
    return [process for process in children if "loky.backend.popen_loky" in " ".join(process.cmdline())]


def test_draw_after_an_impossible_chart_draws_the_next_one() -> None:
    with pytest.raises(CannotDraw):
        draw("vegalite_to_svg", vl_spec={"mark": "nonsense"})
    assert draw("vegalite_to_svg", vl_spec=CHART).startswith(b"<svg")


def test_draw_accepts_numbers_that_are_not_finite() -> None:
    chart = CHART | {"data": {"values": [{"a": float("nan")}, {"a": float("inf")}, {"a": 1}]}}
    assert draw("vegalite_to_svg", vl_spec=chart).startswith(b"<svg")


def test_draw_uses_one_process_for_all_pictures() -> None:
    for _ in range(3):
        draw("vegalite_to_svg", vl_spec=CHART)
    assert len(drawing_processes()) == 1


def test_draw_starts_another_process_if_one_dies() -> None:
    draw("vegalite_to_svg", vl_spec=CHART)
    for process in drawing_processes():
        process.kill()
    with pytest.raises(CannotDraw):
        draw("vegalite_to_svg", vl_spec=CHART)
    assert draw("vegalite_to_svg", vl_spec=CHART).startswith(b"<svg")


def test_draw_raises_cannot_draw_if_there_are_too_few_addresses_for_v8(tmp_path: Path) -> None:
    """V8 ends its process if it cannot reserve a large range of addresses. The program itself must go on."""
    result = subprocess.run(
        ["bash", "-c", 'ulimit -v 20000000; exec "$0" -W error -c "$1"', sys.executable, SAVE_IN_ALL_FORMATS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["not drawn", "not drawn", "not drawn"]
    assert not list(tmp_path.iterdir())
