"""Figures: a theme, the shapes that analyzers share, a measurement's picture, and figures as files.

All are Altair charts. A notebook shows them, they move on the page, and `save` writes SVG, PNG or PDF. `themed` gives a
chart the look of the page. An axis is titled by its column's name: rename columns for other titles.
The page's large figure is in `explorer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair import datum, expr
from altair.utils import update_nested
from altair.utils.schemapi import debug_mode

from rbptrack.base.errors import BadInput, first_line, unknown
from rbptrack.base.files import write_whole
from rbptrack.config.patterns import natural_key
from rbptrack.figures.drawing import CannotDraw, draw
from rbptrack.ranks import HEADLINE_KS, RankHistogram
from rbptrack.stats import first_smallest

# legible on white and black
COLOURS = ["#3c7ddc", "#e0782f", "#2c9f73", "#c24f9b", "#8b6fd6", "#a98a1d", "#2aa3b8", "#d34b57"]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right"]
INK = "#333333"
FAINT = "#888888"
GRID = "#e6e6e6"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
FORMATS = ("svg", "png", "pdf")
SHOWN_K = 10  # where a chart with a slider is drawn as a picture


def size_text(size: Any, digits: str = "") -> Any:
    """Vega's expression of a size as people write it: 18.9M, 1.4B."""
    return expr.replace(expr.format(size, f"{digits}~s"), "G", "B")


# What Vega computes: labels of logarithmic axes (1e-5, 0.2, 18M), and an interval's text, empty without ends.
_SMALL = expr.if_(datum.value < 0.001, expr.format(datum.value, ".0e"), expr.format(datum.value, "~g"))
NUMBERS = repr(expr.if_(datum.value < 1, _SMALL, size_text(datum.value)))
_ENDS = expr.format(datum.low, ".3~r") + " to " + expr.format(datum.high, ".3~r")
INTERVAL = expr.if_(expr.isValid(datum.low) & expr.isValid(datum.high), _ENDS, "")
TIP_OF_INTERVAL = alt.Tooltip("interval:N", title="95% interval")


def theme() -> dict[str, Any]:
    """Vega-Lite's config of every figure: no box, faint grid, colours that hold on light and dark."""
    ink = {"labelColor": INK, "titleColor": INK, "titleFontSize": 12, "titleFontWeight": "normal"}
    axis = {"labelFontSize": 11, "gridColor": GRID, "domainColor": FAINT, "tickColor": FAINT, "tickSize": 4}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": 240, "continuousHeight": 180},
        "axis": ink | axis | {"labelFlush": False},
        "title": {"color": INK, "fontSize": 13, "anchor": "start", "offset": 4},
        "legend": ink | {"labelFontSize": 12, "orient": "top", "symbolStrokeWidth": 1.5},
        "header": ink | {"labelFontSize": 13, "labelFontWeight": "bold", "labelAnchor": "start", "title": None},
        "range": {"category": COLOURS, "symbol": SHAPES},
        "mark": {"color": COLOURS[0]},
        "line": {"strokeWidth": 2},
        "point": {"size": 45, "filled": True},
        "rule": {"color": FAINT, "strokeWidth": 1.5},
    }


def themed(chart: Any) -> Any:
    """A copy of a chart with rbptrack's look, to be shown as it is: it cannot become a part of another chart.

    What the chart's own config sets stays.
    """
    own = {} if chart.config is alt.Undefined else chart.config.to_dict(validate=False)
    copy = chart.copy(deep=False)
    copy.config = alt.Config.from_dict(dict(update_nested(theme(), own, copy=True)), validate=False)
    return copy


def save(chart: Any, path: Path | str, k: int = SHOWN_K) -> Path:
    """Draw a chart into a file, .svg, .png or .pdf by its ending.

    The explorer is drawn at the k of its grid that is nearest to k; k = 0 stands for cross-entropy.

    Raises:
        BadInput: another ending, or the path is a link, a folder or a device.
        CannotDraw: no picture can be drawn of this chart, or on this machine.

    """
    path = Path(path)
    form = path.suffix.lstrip(".").lower()
    if form not in FORMATS:
        raise unknown("format of a figure", form, FORMATS)
    try:
        spec = themed(chart).to_dict(validate=False)
    except Exception as error:  # a plugin's chart may break any rule of Vega-Lite's
        raise CannotDraw(f"{type(error).__name__}: {first_line(error)}") from error
    if "explorer" in spec.get("usermeta", {}):
        values: dict[str, Any] = {"metric": "ce"}
        if k:
            values = {"metric": "rbp", "chosen": nearest_index(spec["usermeta"]["explorer"]["ks"], k)}
        spec["params"] = [p | {"value": values[p["name"]]} if p["name"] in values else p for p in spec["params"]]
    write_whole(path, _picture(spec, form))
    return path


def picture(chart: Any) -> bytes:
    """A chart as the bytes of a PNG; CannotDraw as `save`."""
    return _picture(themed(chart).to_dict(validate=False), "png")


def _picture(spec: dict[str, Any], form: str) -> bytes:
    """A Vega-Lite specification drawn as bytes of SVG, PNG or PDF."""
    if form == "png":
        return draw("vegalite_to_png", vl_spec=spec | {"background": "white"}, scale=2)
    return draw(f"vegalite_to_{form}", vl_spec=spec)


@debug_mode(False)  # Altair would check each part again and again
def facets(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str,
    colour: str = "family",
    facet: str = "dataset",
    dash: str = "",
    log: str = "x",
    line: bool = True,
    null: float | None = None,
) -> Any:
    """Panels of y against x: a panel for each value of `facet`, a colour for each of `colour`; the legend filters.

    Args:
        frame: a row per point; intervals are drawn where it has the columns low and high, NaN are left out. The pointer
            shows the columns named here and, where there are such, model and size.
        x: the horizontal column.
        y: the vertical column.
        colour: the column told apart by colour and shape.
        facet: the column with a panel for each value.
        dash: a column told apart by dashes.
        log: the axes that are logarithmic: "x", "y", "xy" or "".
        line: whether points are connected.
        null: a dashed line at this y.

    Raises:
        BadInput: a column is missing; or a line would connect points of one model at the same x, because they differ
            in a column that is not drawn.

    """
    _check(frame, [x, y, colour], [x, colour, facet, dash, "model", "size"] if line else [])
    frame = _shown(frame, ["model", "size", colour, facet, dash, x, y])
    chart = alt.Chart(as_data(frame))
    pick = legend_choice(colour)
    points = chart.encode(axis_of(frame[x], alt.X, log="x" in log), **by_colour(frame[colour], pick))
    if dash:
        points = points.encode(alt.StrokeDash(f"{dash}:N", title=None))
    vertical = axis_of(frame[y], alt.Y, log="y" in log)
    layers = []
    if null is not None:
        layers.append(chart.mark_rule(strokeDash=[4, 4], size=1, clip=True).encode(y=alt.datum(null)))
    if _has_ends(frame):
        bars = points.transform_filter(expr.isValid(datum.low))
        if "y" in log:  # an end near 0 would leave the points a tenth of the axis
            bars = bars.transform_calculate(low=expr.max(datum.low, frame.loc[frame[y] > 0, y].min() / 3))
        layers.append(bars.mark_rule().encode(alt.Y("low:Q", title=y), alt.Y2("high")))
    if line:
        layers.append(points.mark_line().encode(vertical))
    dots = points.transform_calculate(interval=INTERVAL).mark_point()
    layers.append(dots.encode(vertical, by_shape(frame[colour]), tooltip=_tips(frame)))
    width = {1: 480, 2: 300}.get(_panel_count(frame, facet), 240)
    return _panels(alt.layer(*layers).add_params(pick).properties(width=width, height=200), frame, facet)


@debug_mode(False)
def intervals(
    frame: pd.DataFrame, *, x: str, y: str, colour: str = "family", facet: str = "dataset", null: float | None = None
) -> Any:
    """A row for each value of y, estimates and intervals along x, families below each other; panels by `facet`.

    Raises:
        BadInput: a column is missing; or estimates stand in the same place, as they differ in a column that is not
            drawn.

    """
    _check(frame, [x, y, colour], [y, colour, facet])
    frame = _shown(frame, [colour, facet, y, x])
    chart = alt.Chart(as_data(frame))
    pick = legend_choice(colour)
    rows = chart.encode(
        alt.Y(f"{y}:N", title=None, sort=None), alt.YOffset(f"{colour}:N"), **by_colour(frame[colour], pick)
    )
    layers = []
    if null is not None:
        layers.append(chart.mark_rule(strokeDash=[4, 4], size=1).encode(x=alt.datum(null)))
    if _has_ends(frame):
        layers.append(rows.mark_rule().encode(alt.X("low:Q", title=x), alt.X2("high")))
    along = alt.X(f"{x}:Q", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    dots = rows.transform_calculate(interval=INTERVAL).mark_point()
    layers.append(dots.encode(along, tooltip=_tips(frame)))
    most = frame.groupby(facet)[y].nunique().max() if facet in frame else frame[y].nunique()
    height = int(most) * max(18, 10 * frame[colour].nunique())
    panels = _panels(alt.layer(*layers).add_params(pick).properties(width=240, height=height), frame, facet)
    return panels.resolve_scale(y="independent", yOffset="independent") if facet in frame else panels


@debug_mode(False)
def rank_distribution(histogram: RankHistogram, title: str) -> Any:
    """How often each rank occurs, and RBP_k against k: a measurement's picture."""
    edges = np.unique(np.round(np.geomspace(1, histogram.vocab_size + 1, 49)).astype(int))
    count = np.histogram(histogram.rank, bins=edges, weights=histogram.count)[0]
    share = count / histogram.num_tokens / np.diff(edges)
    rank, of_tokens = "rank R of the target", "share of tokens with this rank"
    ranks = pd.DataFrame({rank: np.sqrt(edges[:-1] * (edges[1:] - 1)), of_tokens: share})[share > 0]
    rbp = "RBP_k, share of ranks up to k"
    curve = pd.DataFrame({"k": edges[:-1], rbp: histogram.rbp_curve(edges[:-1])})
    ks = np.array([k for k in HEADLINE_KS if k <= histogram.vocab_size])
    marked = pd.DataFrame({"k": ks, rbp: histogram.rbp_curve(ks)})
    left = alt.Chart(as_data(ranks)).mark_line(point=True)
    left = left.encode(axis_of(ranks[rank], alt.X, log=True), axis_of(ranks[of_tokens], alt.Y, log=True))
    axes = (axis_of(curve["k"], alt.X, log=True), alt.Y(f"{rbp}:Q", scale=alt.Scale(domain=[0, 1])))
    line = alt.Chart(as_data(curve)).mark_line().encode(*axes)
    dots = alt.Chart(as_data(marked)).mark_point(size=60).encode(*axes)
    texts = dots.mark_text(align="left", dx=8, dy=10, color=INK).encode(alt.Text(f"{rbp}:Q", format=".3f"))
    panels = [panel.properties(width=280, height=210) for panel in (left, line + dots + texts)]
    return alt.hconcat(*panels).properties(title=title)


def legend_choice(column: str) -> alt.Parameter:
    """What the legend of a column chooses."""
    return alt.selection_point(name="pick", fields=[column], bind="legend")


def by_colour(column: pd.Series[Any], pick: alt.Parameter) -> dict[str, Any]:
    """Encodings: colour by a column, and opacity by what its legend chooses."""
    colour = alt.Color(f"{column.name}:N", title=None, scale=_by_name(column, COLOURS))
    return {"color": colour, "opacity": alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.1))}


def by_shape(column: pd.Series[Any]) -> alt.Shape:
    """Encode a column as the points' shape."""
    return alt.Shape(f"{column.name}:N", title=None, scale=_by_name(column, SHAPES))


def _by_name(values: pd.Series[Any], range_: Sequence[str]) -> alt.Scale:
    """Map names to colours or shapes in the order of the names. All figures of a page then agree."""
    names = in_order(values)
    return alt.Scale(domain=names, range=[range_[i % len(range_)] for i in range(len(names))])


def in_order(values: Iterable[Any]) -> list[str]:
    """Names, each once, small sizes first."""
    return sorted({str(value) for value in values}, key=natural_key)


def axis_of(column: pd.Series[Any], channel: Any, *, log: bool) -> Any:
    """A column along an axis (`alt.X` or `alt.Y`) whose labels have room."""
    encoding = channel(f"{column.name}:Q")
    if not log:
        return encoding.scale(zero=False, padding=10).axis(tickCount=4)
    positive = column[column > 0]
    marked = ticks(float(positive.min()), float(positive.max())) if len(positive) else []
    return encoding.scale(type="log", nice=False, padding=10).axis(values=marked, labelExpr=NUMBERS)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends of a logarithmic axis: powers of ten, with steps between where they are few."""
    steps: tuple[float, ...] = (1,)
    if high / low < 40:
        steps = (1, 2, 5)
    if high / low < 15:
        steps = (1, 1.5, 2, 3, 4, 6, 8)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    apart = math.ceil(len(decades) / 7)
    numbers = [float(f"{step}e{power}") for power in decades[::apart] for step in steps]
    return [number for number in numbers if low <= number <= high] or [low, high]


def nearest_index(ks: Sequence[int], k: int) -> int:
    """Where in a grid the k stands that is nearest to one, in ln k."""
    return first_smallest(np.abs(np.log(np.array(ks) / k)))


def as_data(frame: pd.DataFrame) -> alt.InlineData:
    """A frame as a chart's data: CSV of four digits is a fraction of JSON's bytes, and Altair checks no row of it."""
    numbers = {str(name): "number" for name in frame.select_dtypes("number")}
    csv = frame.replace([np.inf, -np.inf], np.nan).to_csv(index=False, float_format="%.4g", lineterminator="\n")
    return alt.InlineData(values=csv, format=alt.CsvDataFormat(type="csv", parse=numbers))


def _check(frame: pd.DataFrame, needed: Sequence[str], keys: Sequence[str]) -> None:
    """Refuse a frame without a column, and one whose rows the columns that are drawn do not tell apart."""
    for name in needed:
        if name not in frame:
            raise BadInput(f"the frame has no column {name} to draw. It has {', '.join(map(str, frame.columns))}")
    drawn = [key for key in dict.fromkeys(keys) if key in frame]
    if not drawn or not frame.duplicated(drawn).any():
        return
    labels = frame.drop(columns=[*drawn, *needed, "verdict"], errors="ignore").select_dtypes(exclude="float")
    groups = frame.groupby(drawn, dropna=False, observed=True)
    differing = [name for name in map(str, labels) if groups[name].nunique().max() > 1]
    raise BadInput(
        f"rows with the same {', '.join(drawn)} would be drawn over each other; they differ in "
        f"{', '.join(differing) or 'nothing else'}. Draw one of them, or give colour=, facet= or dash="
    )


def _shown(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The columns of a frame that a chart shows, as far as they are there; intervals last."""
    return frame[[name for name in dict.fromkeys([*names, "low", "high"]) if name in frame]]


def _has_ends(frame: pd.DataFrame) -> bool:
    return "low" in frame and "high" in frame and bool(frame["low"].notna().any())


def _panel_count(frame: pd.DataFrame, facet: str) -> int:
    return int(frame[facet].nunique()) if facet in frame else 1


def _panels(chart: Any, frame: pd.DataFrame, facet: str) -> Any:
    """A chart for each value of a column, at most three in a row; the chart itself without that column.

    Every panel has a horizontal axis of its own. A shared one would be drawn below empty places of the last row, too.
    """
    if facet not in frame:
        return chart
    panels = chart.facet(f"{facet}:N", columns=min(3, _panel_count(frame, facet)))
    return panels.resolve_axis(x="independent")


def _tips(frame: pd.DataFrame) -> list[alt.Tooltip]:
    """A line under the pointer for each column, and one for the interval."""
    tips = []
    for name, values in frame.drop(columns=["low", "high"], errors="ignore").items():
        if pd.api.types.is_integer_dtype(values):
            tips.append(alt.Tooltip(f"{name}:Q", format=","))
        elif pd.api.types.is_numeric_dtype(values):
            tips.append(alt.Tooltip(f"{name}:Q", format=".4~g"))
        else:
            tips.append(alt.Tooltip(f"{name}:N"))
    return [*tips, TIP_OF_INTERVAL] if _has_ends(frame) else tips
