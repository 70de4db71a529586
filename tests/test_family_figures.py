"""Figures of many families: each has a look of its own, and every legend fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rbptrack.plugins.power_law import PowerLaw

from rbptrack.analysis import Drawing, Runs
from rbptrack.analysis.family_figures import FEW_FAMILIES, MOST_FAMILIES, family_legends, family_styles, say_left_out
from rbptrack.analysis.figures import COLOURS, LINES, MARKERS, draw, grid, grow, panel_per
from rbptrack.reporting.telling import tell
from tests.synthetic import family_runs, together

FAMILIES = 24
SIZES = (1e6, 1e7, 1e8)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return together(
        *(
            family_runs(SIZES, alpha=0.1, a=12.0, family=f"family-{number:02d}", documents=8, tokens=60)
            for number in range(FAMILIES)
        )
    )


@pytest.fixture(scope="module")
def drawings(runs: Runs) -> dict[str, Drawing]:
    report = PowerLaw(ks=[1], replicates=10, curve_points=1).analyze(runs)
    tell(report)
    return report.drawings


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_every_family_that_is_drawn_has_a_look_of_its_own() -> None:
    styles = family_styles(f"family-{number:02d}" for number in range(FAMILIES))
    assert len(styles) == len({style[1:3] for style in styles}) == len({(s.colour, s.line) for s in styles}) == 21
    assert [style[1:] for style in styles[:7]] == list(zip(COLOURS, MARKERS, LINES, strict=True))
    assert MOST_FAMILIES == 21


@pytest.mark.parametrize("name", ["law_in_size", "intervals", "alpha_against_k", "r2_against_k", "ce_against_rbp_1"])
def test_legends_of_many_families_fit(name: str, drawings: dict[str, Drawing]) -> None:
    figure = drawings[name].figure
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    across, down = figure.get_size_inches() * figure.dpi
    assert box.x0 >= 0
    assert box.x1 <= across
    assert box.y0 >= 0
    assert box.y1 <= down
    named = {text.get_text().split(",")[0] for text in legend.get_texts()}
    assert named == {f"family-{number:02d}" for number in range(MOST_FAMILIES)}
    if not name.endswith("_k"):  # those have it at the right, where no panel is
        panel = max(ax.get_tightbbox().y1 for ax in figure.axes)
        assert box.y0 >= panel - 1
    assert "21 of 24 families are drawn, the first by name; the tables hold all of them" in texts(figure)
    assert not any(ax.get_legend() for ax in figure.axes)


def test_few_families_have_a_legend_in_each_panel() -> None:
    for number, inside in ((FEW_FAMILIES, True), (FEW_FAMILIES + 1, False)):
        figure, axes = panel_per(["a", "b"])
        names = [f"f{i}" for i in range(number)]
        for ax in axes:
            for name in names:
                ax.plot([1, 2], label=name)
        family_legends(figure, axes, names)
        say_left_out(figure, names)
        assert [bool(ax.get_legend()) for ax in axes] == [inside] * 2
        assert bool(figure.legends) is not inside
        assert not texts(figure)


def test_a_figure_that_grows_keeps_its_panels() -> None:
    figure, axes = grid(2, 1)
    figure.text(0.5, 0.1, "here")
    before = [ax.get_position().height * figure.get_size_inches()[1] for ax in axes[:, 0]]
    bottom, text = axes[1, 0].get_position().y0 * figure.get_size_inches()[1], 0.1 * figure.get_size_inches()[1]
    grow(figure, above=1.0, below=2.0)
    down = figure.get_size_inches()[1]
    assert [ax.get_position().height * down for ax in axes[:, 0]] == pytest.approx(before)
    assert axes[1, 0].get_position().y0 * down == pytest.approx(bottom + 2.0)
    assert figure.texts[0].get_position()[1] * down == pytest.approx(text + 2.0)


def test_a_picture_is_no_larger_than_can_be_drawn(tmp_path: Path) -> None:
    figure = Figure(figsize=(1.0, 1000.0))
    figure.add_axes((0.1, 0.1, 0.8, 0.8)).plot(np.arange(3))
    draw(figure, tmp_path / "high", ("png", "pdf"))
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg", ".pdf"}
