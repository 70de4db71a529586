"""Figures: a theme, the shapes that analyzers share, a measurement's picture, and figures as files.

All are Altair charts: they show themselves in a notebook (with a PNG for readers that draw no Vega), move on the page,
and are saved as SVG, PNG or PDF by `save`. Of a frame, only the columns that a chart shows are put into it. The page's
large figure is in `explorer`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert
from altair.utils.schemapi import debug_mode

from rbptrack.base.errors import unknown
from rbptrack.config.patterns import natural_key
from rbptrack.ranks import HEADLINE_KS, RankHistogram

# legible on white and black
COLOURS = ["#3c7ddc", "#e0782f", "#2c9f73", "#c24f9b", "#8b6fd6", "#a98a1d", "#2aa3b8", "#d34b57"]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right"]
INK = "#333333"
FAINT = "#888888"
GRID = "#e6e6e6"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
FORMATS = ("svg", "png", "pdf")
SHOWN_K = 10  # where a chart with a slider is drawn as a picture
JSON = alt.JsonDataFormat(type="json")
POWERS = "datum.value < 0.001 ? format(datum.value, '.0e') : format(datum.value, datum.value < 1 ? '~g' : '~s')"
SIZES = "replace(format(datum.value, '~s'), 'G', 'B')"


@alt.theme.register("rbptrack", enable=True)
def theme() -> Any:
    """The look of every figure: no box, faint grid, colours that hold on light and dark."""
    axis = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "tickSize": 4,
        "labelFlush": False,
    }
    title = {"color": INK, "subtitleColor": INK, "fontSize": 13, "subtitleFontSize": 12, "anchor": "start", "offset": 4}
    legend = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "orient": "top"}
    config = {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": 240, "continuousHeight": 180},
        "axis": axis,
        "title": title,
        "legend": legend | {"titleFontWeight": "normal", "symbolStrokeWidth": 1.5},
        "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 13, "labelFontWeight": "bold"},
        "range": {"category": COLOURS, "symbol": SHAPES},
        "mark": {"color": COLOURS[0]},
        "line": {"strokeWidth": 2},
        "point": {"size": 45, "filled": True},
        "rule": {"color": FAINT},
    }
    return {"config": config}


def _show(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """What a notebook gets of a chart: Vega-Lite for those that draw it, a PNG for those that do not."""
    return {"application/vnd.vegalite.v6+json": spec, "image/png": _picture(spec, "png")}


alt.renderers.register("rbptrack", _show)
alt.renderers.enable("rbptrack")


def save(chart: Any, path: Path | str, k: int = SHOWN_K) -> Path:
    """Draw a chart into a file, .svg, .png or .pdf by its ending; with a slider, at the k of its grid nearest to k.

    Raises:
        BadInput: another ending.
    """
    path = Path(path)
    form = path.suffix.lstrip(".").lower()
    if form not in FORMATS:
        raise unknown("format of a figure", form, FORMATS)
    spec = chart.to_dict(validate=False)
    ks = spec.get("usermeta", {}).get("ks")
    if ks:
        index = nearest_index(ks, k)
        spec["params"] = [p | {"value": index} if p["name"] == "chosen" else p for p in spec["params"]]
    path.write_bytes(_picture(spec, form))
    return path


def _picture(spec: dict[str, Any], form: str) -> bytes:
    """A Vega-Lite specification drawn as bytes of SVG, PNG or PDF."""
    if form == "svg":
        return str(vl_convert.vegalite_to_svg(spec)).encode()
    if form == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(spec))
    return bytes(vl_convert.vegalite_to_png(spec | {"background": "white"}, scale=2))


@debug_mode(False)  # Altair would check each part again and again
def facets(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str = "estimate",
    color: str = "family",
    facet: str = "dataset",
    dash: str = "",
    x_title: str = "",
    y_title: str = "",
    log: str = "x",
    line: bool = True,
    points: bool = True,
    null: float | None = None,
    tooltip: Sequence[str] = ("model",),
) -> Any:
    """Panels of y against x: a panel for each value of `facet`, a colour for each of `color`; the legend filters.

    Args:
        frame: a row per point; intervals are drawn where it has the columns low and high, NaN are left out.
        x: the horizontal column.
        y: the vertical column.
        color: the column told apart by colour and shape.
        facet: the column with a panel for each value.
        dash: a column told apart by dashes.
        x_title: empty: the column's name.
        y_title: empty: the column's name.
        log: the axes that are logarithmic: "x", "y", "xy" or "".
        line: whether points are connected.
        points: whether points are drawn.
        null: a dashed line at this y.
        tooltip: further columns that the pointer shows, where the frame has them.

    """
    has_ends = _has_ends(frame)
    if has_ends and "y" in log:  # an end near 0 would leave the points a tenth of the axis
        frame = frame.assign(low=frame["low"].clip(lower=frame.loc[frame[y] > 0, y].min() / 3))
    frame = _only(frame, [*tooltip, color, facet, dash, x, y])
    base = alt.Chart(_values(frame))
    pick = legend_choice(color)
    look = _look(frame, color, pick)
    look["x"] = alt.X(f"{x}:Q", title=x_title or x, scale=_scale("x" in log), axis=_axis(x, frame[x], "x" in log))
    if dash:
        look["strokeDash"] = alt.StrokeDash(f"{dash}:N", title=None)
    vertical = alt.Y(f"{y}:Q", title=y_title or y, scale=_scale("y" in log), axis=_axis(y, frame[y], "y" in log))
    layers = []
    if null is not None:
        layers.append(base.mark_rule(strokeDash=[4, 4], size=1, clip=True).encode(y=alt.datum(null)))
    if has_ends:
        layers.append(base.mark_rule(size=1.5).encode(**look, y=alt.Y("low:Q", title=y_title or y), y2="high:Q"))
    if line:
        layers.append(base.mark_line().encode(**look, y=vertical))
    shape = alt.Shape(f"{color}:N", title=None, scale=by_name(frame[color], SHAPES))
    dots = base.mark_point(size=45 if points else 150, filled=True)
    if not points:  # still there for the pointer
        look["opacity"] = alt.OpacityValue(0)
    layers.append(dots.encode(**look, y=vertical, shape=shape, tooltip=_tips(frame)))
    width = {1: 480, 2: 300}.get(_panel_count(frame, facet), 240)
    return _panels(alt.layer(*layers).add_params(pick).properties(width=width, height=200), frame, facet)


@debug_mode(False)
def intervals(
    frame: pd.DataFrame,
    *,
    y: str,
    x: str = "estimate",
    color: str = "family",
    facet: str = "dataset",
    x_title: str = "",
    null: float | None = None,
) -> Any:
    """A row for each value of y, estimates and intervals along x, families below each other; panels by `facet`."""
    frame = _only(frame, [color, facet, y, x])
    base = alt.Chart(_values(frame))
    pick = legend_choice(color)
    look = _look(frame, color, pick)
    look |= {"y": alt.Y(f"{y}:N", title=None, sort=None), "yOffset": alt.YOffset(f"{color}:N")}
    layers = []
    if null is not None:
        layers.append(base.mark_rule(strokeDash=[4, 4], size=1).encode(x=alt.datum(null)))
    if _has_ends(frame):
        layers.append(base.mark_rule(size=1.5).encode(**look, x=alt.X("low:Q", title=x_title or x), x2="high:Q"))
    along = alt.X(f"{x}:Q", title=x_title or x, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    layers.append(base.mark_point(filled=True).encode(**look, x=along, tooltip=_tips(frame)))
    rows = frame.groupby(facet)[y].nunique().max() if facet in frame else frame[y].nunique()
    height = int(rows) * max(18, 10 * frame[color].nunique())
    panels = _panels(alt.layer(*layers).add_params(pick).properties(width=240, height=height), frame, facet)
    return panels.resolve_scale(y="independent") if facet in frame else panels


@debug_mode(False)
def rank_distribution(histogram: RankHistogram, title: str) -> Any:
    """How often each rank occurs, and RBP_k against k: a measurement's picture."""
    edges = np.unique(np.round(np.geomspace(1, histogram.vocab_size + 1, 49)).astype(int))
    count = np.histogram(histogram.rank, bins=edges, weights=histogram.count)[0]
    share = count / histogram.num_tokens / np.diff(edges)
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1))
    ranks = pd.DataFrame({"rank": middle, "share": share})[share > 0]
    ks = edges[:-1]
    curve = pd.DataFrame({"k": ks, "RBP": histogram.rbp_curve(ks)})
    marked = pd.DataFrame({"k": HEADLINE_KS})
    marked = marked[marked["k"] <= histogram.vocab_size]
    marked["RBP"] = histogram.rbp_curve(marked["k"].to_numpy())
    rank = alt.X("rank:Q", title="rank R of the target", scale=_scale(True), axis=_axis("rank", edges, True))
    powers = alt.Axis(tickCount=6, labelExpr=POWERS)
    y = alt.Y("share:Q", title="share of tokens with this rank", scale=_scale(True), axis=powers)
    left = alt.Chart(_values(ranks)).mark_line(point=True).encode(x=rank, y=y)
    k = alt.X("k:Q", title="k", scale=_scale(True), axis=_axis("k", edges, True))
    rbp = alt.Y("RBP:Q", title="RBP_k, share of ranks up to k", scale=alt.Scale(domain=[0, 1]))
    right = alt.Chart(_values(curve)).mark_line().encode(x=k, y=rbp)
    dots = alt.Chart(_values(marked)).mark_point(filled=True, size=60).encode(x=k, y=rbp)
    label = alt.Text("RBP:Q", format=".3f")
    values = alt.Chart(_values(marked)).mark_text(align="left", dx=8, dy=10, color=INK).encode(x=k, y=rbp, text=label)
    panels = [part.properties(width=280, height=210) for part in (left, right + dots + values)]
    return alt.hconcat(*panels).properties(title=title)


def legend_choice(column: str) -> alt.Parameter:
    """What the legend of a column chooses."""
    return alt.selection_point(name="pick", fields=[column], bind="legend")


def if_chosen(choice: alt.Parameter, value: float, else_: float) -> alt.OpacityValue:
    """Opacity by the legend's choice."""
    return alt.OpacityValue(else_, condition={"param": choice.name, "value": value})


def by_name(values: Iterable[Any], range_: Sequence[str]) -> alt.Scale:
    """Names to colours or shapes, in the order of the names, so that figures of a page agree."""
    names = sorted({str(value) for value in values}, key=natural_key)
    return alt.Scale(domain=names, range=[range_[i % len(range_)] for i in range(len(names))])


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends of a logarithmic axis: 1, 2, 5 within a decade and a half, else powers of ten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 40 else (1,)
    apart = math.ceil(len(decades) / 7)
    numbers = [float(f"{step}e{power}") for power in decades[::apart] for step in steps]
    return [number for number in numbers if low <= number <= high] or [low, high]


def nearest_index(ks: Sequence[int], k: int) -> int:
    """Where in a grid the k stands that is nearest to one, in ln k."""
    return int(np.argmin(np.abs(np.log(np.array(ks) / k))))


def rounded(value: Any) -> Any:
    """A float with four digits, to save bytes; None where there is no number."""
    if not isinstance(value, float | np.floating):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def as_text(rows: list[dict[str, Any]]) -> str:
    """Rows as JSON: Altair checks and copies every row of a list, again and again."""
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)


def _values(frame: pd.DataFrame) -> alt.InlineData:
    """A frame as data of a chart: floats rounded, missing values as null."""
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    rows = [{str(name): rounded(value) for name, value in row.items()} for row in records]
    return alt.InlineData(values=as_text(rows), format=JSON)


def _only(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The columns of a frame that a chart shows, as far as they are there; intervals last."""
    return frame[[name for name in dict.fromkeys([*names, "low", "high"]) if name in frame]]


def _has_ends(frame: pd.DataFrame) -> bool:
    return "low" in frame and "high" in frame and bool(frame["low"].notna().any())


def _look(frame: pd.DataFrame, color: str, pick: alt.Parameter) -> dict[str, Any]:
    """Colour by a column, and opacity by its legend."""
    colours = alt.Color(f"{color}:N", title=None, scale=by_name(frame[color], COLOURS))
    return {"color": colours, "opacity": if_chosen(pick, 1, 0.1)}


def _panel_count(frame: pd.DataFrame, facet: str) -> int:
    return int(frame[facet].nunique()) if facet in frame else 1


def _panels(chart: Any, frame: pd.DataFrame, facet: str) -> Any:
    """A chart for each value of a column, at most three in a row; the chart itself without that column."""
    if facet not in frame:
        return chart
    panels = alt.Facet(f"{facet}:N", title=None, header=alt.Header(labelAnchor="start"))
    return chart.facet(facet=panels, columns=min(3, _panel_count(frame, facet)))


def _scale(log: bool) -> alt.Scale:
    return alt.Scale(type="log", nice=False, padding=10) if log else alt.Scale(zero=False, padding=10)


def _axis(name: str, values: Any, log: bool) -> alt.Axis:
    """An axis whose labels have room; sizes are written as 14M and 1.4B."""
    if not log:
        return alt.Axis(tickCount=4)
    numbers = np.asarray(values, float)
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    marked = ticks(float(numbers.min()), float(numbers.max())) if len(numbers) else []
    return alt.Axis(values=marked, labelExpr=SIZES if name == "S" else POWERS)


def _tips(frame: pd.DataFrame) -> list[alt.Tooltip]:
    """A line under the pointer for each column."""
    tips = []
    for name, values in frame.items():
        if pd.api.types.is_integer_dtype(values):
            tips.append(alt.Tooltip(f"{name}:Q", format=","))
        elif pd.api.types.is_numeric_dtype(values):
            tips.append(alt.Tooltip(f"{name}:Q", format=".4~g"))
        else:
            tips.append(alt.Tooltip(f"{name}:N"))
    return tips
