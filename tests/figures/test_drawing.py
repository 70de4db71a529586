"""The process that draws: what it survives, and that nobody else dies with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rbptrack.figures.drawing import CannotDraw, draw

CHART = {"data": {"values": [{"a": 1}]}, "mark": "point", "encoding": {"x": {"field": "a", "type": "quantitative"}}}
WITHOUT_ADDRESSES = """
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
    return [process for process in psutil.Process().children() if "drawing_process" in " ".join(process.cmdline())]


def test_draw_goes_on_after_a_chart_that_is_refused() -> None:
    with pytest.raises(CannotDraw):
        draw("vegalite_to_svg", vl_spec={"mark": "nonsense"})
    assert draw("vegalite_to_svg", vl_spec=CHART).startswith(b"<svg")


def test_draw_leaves_out_numbers_that_are_not_finite() -> None:
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


def test_draw_fails_without_end_of_the_program_if_v8_cannot_run(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["bash", "-c", 'ulimit -v 20000000; exec "$0" -W error -c "$1"', sys.executable, WITHOUT_ADDRESSES],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines() == ["not drawn"] * 3
    assert not list(tmp_path.iterdir())
