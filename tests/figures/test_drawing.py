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


def test_a_chart_that_is_refused_stops_no_other() -> None:
    with pytest.raises(CannotDraw):
        draw("vegalite_to_svg", vl_spec={"mark": "nonsense"})
    assert draw("vegalite_to_svg", vl_spec=CHART).startswith(b"<svg")


def test_numbers_that_are_none_are_left_out() -> None:
    chart = CHART | {"data": {"values": [{"a": float("nan")}, {"a": float("inf")}, {"a": 1}]}}
    assert draw("vegalite_to_svg", vl_spec=chart).startswith(b"<svg")


def test_all_pictures_are_drawn_by_one_process() -> None:
    for _ in range(3):
        draw("vegalite_to_svg", vl_spec=CHART)
    assert len(drawing_processes()) == 1


def test_a_process_that_dies_is_followed_by_another() -> None:
    draw("vegalite_to_svg", vl_spec=CHART)
    for process in drawing_processes():
        process.kill()
    with pytest.raises(CannotDraw):
        draw("vegalite_to_svg", vl_spec=CHART)
    assert draw("vegalite_to_svg", vl_spec=CHART).startswith(b"<svg")


def test_where_v8_cannot_run_no_picture_is_drawn_and_all_else_goes_on(tmp_path: Path) -> None:
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
