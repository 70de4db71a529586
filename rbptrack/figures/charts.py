"""Charts that several analyzers draw, the theme of all charts, and functions that save charts as files.

All charts are Altair charts. Notebooks and the page show them, and `save` writes SVG, PNG or PDF. `themed` gives a
chart the look of the page. The title of an axis is the name of its column. To change the title, rename the column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair import datum, expr
from altair.utils import update_nested
from altair.utils.schemapi import debug_mode

from rbptrack.analysis.report import key_text
from rbptrack.base.errors import BadInput, first_line, unknown_name
from rbptrack.base.files import write_whole
from rbptrack.base.names import natural_key
from rbptrack.figures.drawing import CannotDraw, draw
from rbptrack.ranks import HEADLINE_KS, IntArray, RankHistogram
from rbptrack.stats.rounding import first_smallest

# These colours are legible on white and on black.
COLOURS = ["#3c7ddc", "#e0782f", "#2c9f73", "#c24f9b", "#8b6fd6", "#a98a1d", "#2aa3b8", "#d34b57"]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right"]
INK = "#333333"
FAINT = "#888888"
GRID = "#e6e6e6"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
_MAX_DOTS = 30  # of a line
_PAPER_WIDTHS = {"column": 234, "page": 486}  # points: 3.25 and 6.75 inches
_PAPER_TEXT = 8  # points
_PAPER_HEIGHT = 130  # points, of a panel
_MIN_PANEL_WIDTH = 110  # points, of a panel with its axis
_MIN_CHART_WIDTH = 200  # points, of a chart beside another one
_DEFAULT_PANEL_WIDTH = 240  # points, of a panel that gives no number
_MAX_ATTEMPTS = 6  # to fit a chart into a width
FORMATS = ("svg", "png", "pdf")


def size_text(size: Any, digits: str = "") -> Any:
    """Return Vega's expression for the text of a model's size, such as 18.9M or 1.4B.

    Args:
        size: Vega's expression for the number.
        digits: the precision in d3's format, such as `.3`. If empty, all digits are shown.

    """
    return expr.replace(expr.format(size, f"{digits}~s"), "G", "B")


_SMALL_NUMBER_LABEL = expr.if_(datum.value < 0.001, expr.format(datum.value, ".0e"), expr.format(datum.value, "~g"))
LOG_AXIS_LABEL = repr(expr.if_(datum.value < 1, _SMALL_NUMBER_LABEL, size_text(datum.value)))
"""Vega's expression for a label of a logarithmic axis, such as 1e-5, 0.2 or 18M."""

_INTERVAL_ENDS = expr.format(datum.low, ".3~r") + " to " + expr.format(datum.high, ".3~r")
INTERVAL_TEXT = expr.if_(expr.isValid(datum.low) & expr.isValid(datum.high), _INTERVAL_ENDS, "")
"""Vega's expression for the text of the interval from `low` to `high`. It is empty if there is no interval."""

INTERVAL_TOOLTIP = alt.Tooltip("interval:N", title="95% interval")
"""The line of a tooltip that shows `interval`, a column computed by `INTERVAL_TEXT`."""


def theme() -> dict[str, Any]:
    """Return the Vega-Lite config of all charts: no box, a faint grid, and colours for light and dark backgrounds."""
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
    """Return a copy of a chart with rbptrack's theme. The chart's own config takes precedence over the theme.

    The copy can be displayed or saved. It cannot be combined with other charts, because Vega-Lite allows a config only
    at the top level of a chart.
    """
    chart_config = {} if chart.config is alt.Undefined else chart.config.to_dict(validate=False)
    copy = chart.copy(deep=False)
    copy.config = alt.Config.from_dict(dict(update_nested(theme(), chart_config, copy=True)), validate=False)
    return copy


def save(chart: Any, path: Path | str, k: int | None = None, width: str | None = None) -> Path:
    """Save a chart as a file, and return the path.

    Args:
        chart: the Altair chart.
        path: the file. Its suffix chooses the format: .svg, .png or .pdf.
        k: the k at which the explorer is drawn; by default the k that it shows at first. If its grid lacks this k, it
            is drawn at the nearest one; if k is 0, it is drawn for cross-entropy. Other charts ignore k.
        width: `column` (3.25 inches) or `page` (6.75 inches) for a figure of this width in a paper, with texts of 8
            points; None for the width on the page.

    Raises:
        BadInput: the suffix is another one, or the path is a link, a folder or a device.
        CannotDraw: the chart is invalid, or charts cannot be drawn on this machine.

    """
    path = Path(path)
    file_format = path.suffix.lstrip(".").lower()
    if file_format not in FORMATS:
        raise unknown_name("format of a figure", file_format, FORMATS)
    try:
        spec = themed(chart).to_dict(validate=False)
    except Exception as error:  # a plugin may return a chart that is not valid Vega-Lite, and Altair raises many types
        raise CannotDraw(f"{type(error).__name__}: {first_line(error)}") from error
    if width and width not in _PAPER_WIDTHS:
        raise unknown_name("width of a figure", width, _PAPER_WIDTHS)
    if k is not None and "explorer" in spec.get("usermeta", {}):
        _set_explorer_k(spec, k)
    if width:
        _fit_to_paper(spec, _PAPER_WIDTHS[width])
    write_whole(path, _draw_spec(spec, file_format))
    return path


def _fit_to_paper(spec: dict[str, Any], width: int) -> None:
    """Change the widths of the panels so that the whole chart has a width in points, with texts of 8 points.

    The parts of the explorer stand below each other if the width is that of a column. The widths of axes and legends
    depend on their texts, so the chart is drawn to measure it.
    """
    texts = {"labelFontSize": _PAPER_TEXT, "titleFontSize": _PAPER_TEXT}
    look: dict[str, Any] = dict.fromkeys(("axis", "legend", "header"), texts)
    look |= {"title": {"fontSize": _PAPER_TEXT}, "line": {"strokeWidth": 1}, "rule": {"strokeWidth": 0.75}}
    spec["config"] = dict(update_nested(spec["config"], look | {"point": {"size": 14}}, copy=True))
    if "hconcat" in spec and width < 2 * _MIN_CHART_WIDTH:
        spec["vconcat"] = spec.pop("hconcat")
    for chart in _charts_of(spec):
        panel = chart.get("spec", chart)
        if isinstance(panel.get("height"), int | float):
            panel["height"] = min(panel["height"], _PAPER_HEIGHT)
        if "columns" in chart:
            chart["columns"] = min(chart["columns"], max(1, width // _MIN_PANEL_WIDTH))
    for _ in range(_MAX_ATTEMPTS):
        svg = draw("vegalite_to_svg", vl_spec=spec).decode()
        spare = width - float(re.findall(r'<svg[^>]* width="([\d.]+)"', svg)[0])
        if abs(spare) < 1:
            break
        for chart in _charts_of(spec):
            panel = chart.get("spec", chart)
            columns = chart.get("columns", 1)
            # A plugin's chart may have no width, or one such as "container" or {"step": 20}.
            width_now = panel.get("width") if isinstance(panel.get("width"), int | float) else _DEFAULT_PANEL_WIDTH
            panel_width = width_now + spare / columns / len(spec.get("hconcat", [1]))
            if panel_width < _MIN_PANEL_WIDTH / 2 and columns > 1:  # labels take most of the width
                chart["columns"] = columns - 1
            panel["width"] = max(_MIN_PANEL_WIDTH / 2, panel_width)


def _charts_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the charts of a specification that have a width: single charts, and charts with panels."""
    parts = spec.get("hconcat") or spec.get("vconcat")
    return [chart for part in parts for chart in _charts_of(part)] if parts else [spec]


def _set_explorer_k(spec: dict[str, Any], k: int) -> None:
    """Set the parameters of the explorer so that it is drawn at k, or for cross-entropy if k is 0."""
    values: dict[str, Any] = {"metric": "ce"}
    if k:
        values = {"metric": "rbp", "chosen": nearest_index(spec["usermeta"]["explorer"]["ks"], k)}
    for param in spec["params"]:
        if param["name"] in values:
            param["value"] = values[param["name"]]


def draw_png(chart: Any) -> bytes:
    """Draw a chart, and return the bytes of a PNG. Raises CannotDraw if charts cannot be drawn on this machine."""
    return _draw_spec(themed(chart).to_dict(validate=False), "png")


def _draw_spec(spec: dict[str, Any], file_format: str) -> bytes:
    """Draw a Vega-Lite specification, and return the bytes of an SVG, PNG or PDF."""
    if file_format == "png":
        return draw("vegalite_to_png", vl_spec=spec | {"background": "white"}, scale=2)
    return draw(f"vegalite_to_{file_format}", vl_spec=spec)


@debug_mode(False)  # otherwise Altair would validate every part of the chart several times
def facets(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str,
    colour: str = "family",
    facet: str = "dataset",
    dash: str = "",
    label: str = "",
    log: str = "x",
    line: bool = True,
    null: float | None = None,
) -> Any:
    """Draw y against x in several panels. A click on the legend highlights a colour.

    Lines of more than 30 points are drawn without dots. Tooltips appear at the points nevertheless.

    Args:
        frame: one row for each point. The columns low and high, if they exist, are drawn as intervals. Rows in which
            they are NaN have no interval. The tooltip shows the columns that are drawn, and the columns model and size
            if they exist.
        x: the column on the horizontal axis.
        y: the column on the vertical axis.
        colour: the column whose values get a colour and a shape each.
        facet: the column whose values get a panel each. If the frame lacks it, there is one panel.
        dash: the column whose values get a dash pattern each. If empty, all lines are solid.
        label: a column that only the tooltip shows; empty for none.
        log: the axes that are logarithmic: "x", "y", "xy" or "".
        line: whether points are connected by lines.
        null: the y at which a dashed line is drawn. If None, there is no such line.

    Raises:
        BadInput: a column is missing, or a line would connect several points of one model at the same x, which differ
            only in a column that is not drawn.

    """
    _check_rows(frame, [x, y, colour], [x, colour, facet, dash, "model", "size"] if line else [])
    frame = _drawn_columns(frame, [label, "model", "size", colour, facet, dash, x, y])
    chart = alt.Chart(inline_data(frame))
    selection = legend_selection(colour)
    points = chart.encode(axis_encoding(frame[x], alt.X, log="x" in log), **by_colour(frame[colour], selection))
    if dash:
        points = points.encode(alt.StrokeDash(f"{dash}:N", title=None))
    vertical = axis_encoding(frame[y], alt.Y, log="y" in log)
    layers = []
    if null is not None:
        layers.append(chart.mark_rule(strokeDash=[4, 4], size=1, clip=True).encode(alt.YDatum(null)))
    if _has_intervals(frame):
        bars = points.transform_filter(expr.isValid(datum.low))
        if "y" in log:  # on a logarithmic axis, an end near 0 would squeeze the points into a small part of the axis
            bars = bars.transform_calculate(low=expr.max(datum.low, frame.loc[frame[y] > 0, y].min() / 3))
        layers.append(bars.mark_rule().encode(alt.Y("low:Q", title=y), alt.Y2("high")))
    if line:
        layers.append(points.mark_line().encode(vertical))
    dots = points.transform_calculate(interval=INTERVAL_TEXT).mark_point()
    dots = dots.encode(vertical, by_shape(frame[colour]), tooltip=_tooltip(frame))
    if line and frame[x].nunique() > _MAX_DOTS:
        dots = dots.encode(alt.OpacityValue(0), alt.SizeValue(110))
    layers.append(dots)
    panel_width = {1: 480, 2: 300}.get(_panel_count(frame, facet), 240)
    layers[0] = layers[0].add_params(selection)
    return _in_panels(alt.layer(*layers, width=panel_width, height=200), frame, facet)


@debug_mode(False)
def intervals(
    frame: pd.DataFrame, *, x: str, y: str, colour: str = "family", facet: str = "dataset", null: float | None = None
) -> Any:
    """Draw estimates with their intervals in rows, in several panels. A click on the legend highlights a colour.

    Args:
        frame: one row for each estimate. The columns low and high, if they exist, are drawn as intervals. Rows in which
            they are NaN have no interval. The tooltip shows the columns that are drawn.
        x: the column of the estimates, on the horizontal axis.
        y: the column whose values get a row of the chart each.
        colour: the column whose values get a colour each, and a separate line within each row of the chart.
        facet: the column whose values get a panel each. If the frame lacks it, there is one panel.
        null: the x at which a dashed line is drawn. If None, there is no such line.

    Raises:
        BadInput: a column is missing, or several estimates would be drawn in the same place, because they differ only
            in a column that is not drawn.

    """
    _check_rows(frame, [x, y, colour], [y, colour, facet])
    frame = _drawn_columns(frame, [colour, facet, y, x])
    chart = alt.Chart(inline_data(frame))
    selection = legend_selection(colour)
    rows = chart.encode(
        alt.Y(f"{y}:N", title=None, sort=None, axis=alt.Axis(labelLimit=480)),
        alt.YOffset(f"{colour}:N"),
        **by_colour(frame[colour], selection),
    )
    layers = []
    if null is not None:
        layers.append(chart.mark_rule(strokeDash=[4, 4], size=1).encode(alt.XDatum(null)))
    if _has_intervals(frame):
        layers.append(rows.mark_rule().encode(alt.X("low:Q", title=x), alt.X2("high")))
    horizontal = alt.X(f"{x}:Q", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    dots = rows.transform_calculate(interval=INTERVAL_TEXT).mark_point()
    layers.append(dots.encode(horizontal, tooltip=_tooltip(frame)))
    max_rows = frame.groupby(facet)[y].nunique().max() if facet in frame else frame[y].nunique()
    height = int(max_rows) * max(18, 10 * frame[colour].nunique())
    layers[0] = layers[0].add_params(selection)
    scales = alt.ScaleResolveMap(y="independent", yOffset="independent")
    return _in_panels(alt.layer(*layers, width=240, height=height), frame, facet, scales)


@debug_mode(False)
def rank_distribution(histogram: RankHistogram, title: str) -> Any:
    """Draw how often each rank occurs in a measurement, and RBP_k against k, below a title."""
    edges = np.unique(np.round(np.geomspace(1, histogram.vocab_size + 1, 49)).astype(int))
    panels = [_rank_shares(histogram, edges), _rbp_curve(histogram, edges[:-1])]
    return alt.hconcat(*(panel.properties(width=280, height=210) for panel in panels)).properties(title=title)


def _rank_shares(histogram: RankHistogram, edges: IntArray) -> Any:
    """Draw the share of tokens at each rank, averaged over bins of ranks.

    `edges` has the first rank of each bin, and the first rank after the last bin, (bins + 1,).
    """
    count = np.histogram(histogram.rank, bins=edges, weights=histogram.count)[0]
    share = count / histogram.num_tokens / np.diff(edges)
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1))  # of the bin, on a logarithmic axis
    x, y = "rank R of the target", "share of tokens with this rank"
    bins = pd.DataFrame({x: middle, y: share})[share > 0]
    chart = alt.Chart(inline_data(bins)).mark_line(point=True)
    return chart.encode(axis_encoding(bins[x], alt.X, log=True), axis_encoding(bins[y], alt.Y, log=True))


def _rbp_curve(histogram: RankHistogram, ks: IntArray) -> Any:
    """Draw RBP_k against k as a line, with dots and numbers at the k of `HEADLINE_KS`."""
    rbp = "RBP_k, share of ranks up to k"
    curve = pd.DataFrame({"k": ks, rbp: histogram.rbp_curve(ks)})
    headline_ks = np.array([k for k in HEADLINE_KS if k <= histogram.vocab_size])
    headline = pd.DataFrame({"k": headline_ks, rbp: histogram.rbp_curve(headline_ks)})
    axes = (axis_encoding(curve["k"], alt.X, log=True), alt.Y(f"{rbp}:Q", scale=alt.Scale(domain=[0, 1])))
    line = alt.Chart(inline_data(curve)).mark_line().encode(*axes)
    dots = alt.Chart(inline_data(headline)).mark_point(size=60).encode(*axes)
    numbers = dots.mark_text(align="left", dx=8, dy=10, color=INK).encode(alt.Text(f"{rbp}:Q", format=".3f"))
    return line + dots + numbers


def legend_selection(column: str) -> alt.Parameter:
    """Return the parameter of a chart that holds the values that the reader clicked in the legend of a column."""
    return alt.selection_point(name="selection", fields=[column], bind="legend")


def by_colour(column: pd.Series[Any], selection: alt.Parameter) -> dict[str, Any]:
    """Return the encodings of a column as colour, and of its legend's selection as opacity.

    `selection` is what `legend_selection` returned for the column. Values that are not selected are faint.
    """
    colour = alt.Color(f"{column.name}:N", title=None, scale=_scale_by_name(column, COLOURS))
    # `alt.when` returns a dict, and Altair searches hundreds of classes for the class of a dict.
    opacity = alt.OpacityValue(0.1, condition=[{"param": selection.name, "value": 1}])
    return {"color": colour, "opacity": opacity}


def by_shape(column: pd.Series[Any]) -> alt.Shape:
    """Return the encoding of a column as the shape of points."""
    return alt.Shape(f"{column.name}:N", title=None, scale=_scale_by_name(column, SHAPES))


def _scale_by_name(column: pd.Series[Any], colours_or_shapes: Sequence[str]) -> alt.Scale:
    """Return the scale that gives each name of a column a colour or shape, in the order of `sorted_names`.

    In two charts with equal names, each name then has the same colour and shape.
    """
    names = sorted_names(column)
    return alt.Scale(domain=names, range=[colours_or_shapes[i % len(colours_or_shapes)] for i in range(len(names))])


def sorted_names(column: pd.Series[Any]) -> list[str]:
    """Return the distinct names of a column, sorted with numbers in numeric order (`70m` before `160m`)."""
    return sorted({str(name) for name in column.unique()}, key=natural_key)


def axis_encoding(column: pd.Series[Any], channel: Any, *, log: bool) -> Any:
    """Return the encoding of a column along an axis, with so few ticks that their labels do not overlap.

    `channel` is Altair's class of the axis, `alt.X` or `alt.Y`. The axis is linear or logarithmic.
    """
    encoding = channel(f"{column.name}:Q")
    if not log:
        smallest_step = 1 if column.dtype.kind in "iu" else 0
        return encoding.scale(zero=False, padding=10).axis(tickCount=4, tickMinStep=smallest_step)
    positive = column[(column > 0) & np.isfinite(column)]
    tick_values = ticks(float(positive.min()), float(positive.max())) if len(positive) else []
    return encoding.scale(type="log", nice=False, padding=10).axis(values=tick_values, labelExpr=LOG_AXIS_LABEL)


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers for the ticks of a logarithmic axis from `low` to `high`.

    They are powers of ten, and numbers between them if the axis has few powers of ten.
    """
    steps: tuple[float, ...] = (1,)
    if high / low < 40:
        steps = (1, 2, 5)
    if high / low < 15:
        steps = (1, 1.5, 2, 3, 4, 6, 8)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    stride = math.ceil(len(powers) / 7)  # at most 7 powers of ten have a tick
    numbers = [float(f"{step}e{power}") for power in powers[::stride] for step in steps]
    return [number for number in numbers if low <= number <= high] or [low, high]


def nearest_index(ks: Sequence[int], k: int) -> int:
    """Return the index of the element of `ks` that is nearest to k on a logarithmic scale."""
    return first_smallest(np.abs(np.log(np.array(ks) / k)))


def inline_data(frame: pd.DataFrame) -> alt.InlineData:
    """Return a frame as the data of a chart, in CSV with four significant digits.

    CSV is much smaller than JSON, and Altair does not spend time on the validation of its rows.
    """
    column_types = {str(name): "number" for name in frame.select_dtypes("number")}
    finite = frame.replace([np.inf, -np.inf], np.nan)
    csv = finite.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    return alt.InlineData(values=csv, format=alt.CsvDataFormat(type="csv", parse=column_types))


def _check_rows(frame: pd.DataFrame, needed_columns: Sequence[str], keys: Sequence[str]) -> None:
    """Raise BadInput if a needed column is missing, or if several rows would be drawn in the same place.

    The columns `keys` determine the place of a row. Keys that are not columns are ignored. If no key is left, rows may
    be drawn in the same place.
    """
    for name in needed_columns:
        if name not in frame:
            raise BadInput(f"the frame has no column {name} to draw. It has {', '.join(map(str, frame.columns))}")
    keys = [key for key in dict.fromkeys(keys) if key in frame]
    if not keys or not frame.duplicated(keys).any():
        return
    labels = frame.drop(columns=[*keys, *needed_columns, "verdict"], errors="ignore").select_dtypes(exclude="float")
    groups = frame.groupby(keys, dropna=False, observed=True)
    differing = [name for name in map(str, labels) if groups[name].nunique().max() > 1]
    raise BadInput(
        f"rows with the same {', '.join(keys)} would be drawn over each other. They differ in "
        f"{', '.join(differing) or 'no other column'}. Draw one of them, or "
        "distinguish them, for example by colour= or facet="
    )


def _drawn_columns(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns of a frame, and its columns low and high. Columns that do not exist are left out.

    Metrics get the names that tables show, such as `RBP_10`.
    """
    drawn = frame[[name for name in dict.fromkeys([*names, "low", "high"]) if name in frame]]
    if "metric" in drawn:
        drawn = drawn.assign(metric=[key_text("metric", metric) for metric in drawn["metric"]])
    return drawn


def _has_intervals(frame: pd.DataFrame) -> bool:
    return "low" in frame and "high" in frame and bool(frame["low"].notna().any())


def _panel_count(frame: pd.DataFrame, facet: str) -> int:
    return int(frame[facet].nunique()) if facet in frame else 1


def _in_panels(chart: Any, frame: pd.DataFrame, facet: str, scales: Any = alt.Undefined) -> Any:
    """Divide a chart into a panel for each value of the column `facet`, at most three panels in a row.

    If the frame lacks the column, the chart itself is returned. The panels do not share `scales`. Every panel has its
    own horizontal axis, because Vega would also draw a shared axis below the empty places of the last row.
    """
    if facet not in frame:
        return chart
    # Altair copies all layers when a property of a finished chart is set, so the properties are given at once.
    resolve = alt.Resolve(axis=alt.AxisResolveMap(x="independent"), scale=scales)
    return chart.facet(f"{facet}:N", columns=min(3, _panel_count(frame, facet)), resolve=resolve)


def _tooltip(frame: pd.DataFrame) -> list[alt.Tooltip]:
    """Return the lines of the tooltip: one for each column, and one for the interval."""
    lines = []
    for name, values in frame.drop(columns=["low", "high"], errors="ignore").items():
        if pd.api.types.is_integer_dtype(values):
            lines.append(alt.Tooltip(f"{name}:Q", format=","))
        elif pd.api.types.is_numeric_dtype(values):
            lines.append(alt.Tooltip(f"{name}:Q", format=".4~g"))
        else:
            lines.append(alt.Tooltip(f"{name}:N"))
    return [*lines, INTERVAL_TOOLTIP] if _has_intervals(frame) else lines
