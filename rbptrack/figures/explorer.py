"""The large chart of the page: laws in size at one k, their residuals, and their exponents against k.

It consists of three charts, each with a panel for every dataset. The reader of the page sets three parameters: `chosen`
(the index of k in its grid), `metric`, and `selection` (the families chosen in the legend). On the page, the script
`reporting/page.js` sets them from the controls above the chart.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair import datum, expr
from altair.utils.schemapi import debug_mode

from rbptrack.figures.charts import (
    FAINT,
    INTERVAL_TEXT,
    INTERVAL_TOOLTIP,
    LOG_AXIS_LABEL,
    by_colour,
    by_shape,
    inline_data,
    legend_selection,
    nearest_index,
    size_text,
    sorted_names,
    ticks,
)
from rbptrack.ranks import FloatArray

SHOWN_K = 10
"""The k that the explorer shows at first if its caller does not choose one."""

_METRIC_LABELS = {"rbp": "RBP_k", "ce": "cross-entropy"}
_EXPONENTS = "exponent α (dashed: CE; band: 95% for all k)"
_EXPONENTS_OF_CE = "exponent α of CE (dashed) and of RBP_k"
_LAW_KEYS = ["family", "dataset", "metric", "k"]
_MAX_EXTENSION = 3.0  # intervals extend an axis at most to this factor times the points

_SELECTION_VIEW = "laws"  # the layer that reacts to a click in the legend

# Lengths in pixels.
_CHART_WIDTH = 560  # in a picture. The page sets another width.
_AXIS_WIDTH = 36  # of a vertical axis. A fixed width keeps panels in place while the slider moves.
_RESIDUALS_HEIGHT = 64
_PANEL_MARGIN = 83  # above and below a panel: its name, its axis, and the space to the next row of panels
_CHART_GAP = 19  # additional space between the charts of laws and of residuals


@debug_mode(False)  # otherwise Altair would validate every part of the chart several times
def explorer(points: pd.DataFrame, laws: pd.DataFrame, k: int = SHOWN_K) -> Any:
    """Draw the laws in size at a k that a slider chooses, their residuals, and their exponents against k.

    Args:
        points: one row for each model, dataset, metric and k, with the columns family, model, dataset, metric, k, S, y,
            low and high. The metric is "rbp" (y = -ln RBP_k, at least one k) or "ce" (y in nats, k = 0). y is positive
            and finite. low and high are the ends of the interval of y, and NaN if it has no interval.
        laws: one row for each law, with the columns family, dataset, metric, k, alpha, low, high, band_low, band_high,
            S0, y0, S1 and y1. low and high are the ends of the interval of alpha, and band_low and band_high those of a
            band that holds for all k together. (S0, y0) and (S1, y1) are the ends of the law's line.
        k: the k that the chart shows at first; of the k in `points`, the nearest one.

    """
    controls = _controls(points, k)
    ks = controls["ks"]
    metrics = controls["metrics"]

    # The reader sets these parameters.
    slider = alt.binding_range(min=0, max=len(ks) - 1, step=1, name="index of k ")
    menu = alt.binding_select(options=list(metrics), labels=list(metrics.values()), name="metric ")
    chosen = alt.param(name="chosen", value=controls["chosen"], bind=slider)
    metric = alt.param(name="metric", value="rbp", bind=menu)
    selection = legend_selection("family")
    # These parameters are computed from them: k, and the vertical axes of laws and residuals.
    grid: Any = alt.param(name="ks", value=ks)
    chosen_k = alt.param(name="k", expr=expr.if_(metric == "rbp", grid[chosen], 0))
    rows = _add_laws(points, laws)
    axes = alt.param(name="axes", value=_vertical_axes(rows))
    axis: Any = alt.param(name="axis", expr=axes[metric + chosen_k])

    is_chosen_row = (datum.metric == metric) & (datum.k == chosen_k)
    law_layers = _law_layers(rows, axis, is_chosen_row)
    law_layers[0] = law_layers[0].properties(name=_SELECTION_VIEW)
    residual_layers = _residual_layers(rows, axis, is_chosen_row)
    laws = laws[[*_LAW_KEYS, "alpha", "low", "high", "band_low", "band_high"]]
    exponent_layers = _exponent_layers(laws, max(ks), chosen_k)

    columns, width, height, exponents_height = _panel_sizes(len(controls["datasets"]))
    colour = alt.Chart().encode(**by_colour(points["family"], selection)).encoding

    def divide_into_panels(layers: list[Any], title: Any, height: int, data: Any = alt.Undefined) -> alt.FacetChart:
        return alt.FacetChart(
            data=data,
            # `alt.layer` would copy the layers four times, and again each time when a chart is put into another chart.
            spec=alt.LayerSpec(layer=layers, encoding=colour, width=width, height=height),
            facet=alt.Facet("dataset:N"),
            columns=columns,
            resolve=alt.Resolve(axis=alt.AxisResolveMap(x="independent")),
            title=alt.Title(title, dx=_AXIS_WIDTH, offset=10),
        )

    laws_and_residuals = alt.vconcat(
        divide_into_panels(law_layers, alt.ExprRef(axis.title), height),
        divide_into_panels(residual_layers, "measured / law − 1", _RESIDUALS_HEIGHT),
        data=inline_data(rows),
    )
    exponents = divide_into_panels(
        exponent_layers,
        alt.ExprRef(str(expr.if_(metric == "rbp", _EXPONENTS, _EXPONENTS_OF_CE))),
        exponents_height,
        inline_data(laws),
    )
    params: list[Any] = [parameter.param for parameter in (chosen, metric, grid, chosen_k, axes, axis, selection)]
    params[-1] = alt.TopLevelSelectionParameter(**params[-1].to_dict(), views=[_SELECTION_VIEW])
    layout = {"panel_margin": _PANEL_MARGIN, "chart_gap": _CHART_GAP}  # page.js computes the heights anew
    return alt.hconcat(
        laws_and_residuals, exponents, params=params, spacing=30, usermeta={"explorer": controls | layout}
    )


def _controls(points: pd.DataFrame, k: int) -> dict[str, Any]:
    """Return what the reader can choose. `chosen` is the index of the k that the chart shows at first, k or near it."""
    ks = sorted(int(k) for k in points.loc[points["metric"] == "rbp", "k"].unique())
    return {
        "ks": ks,
        "chosen": nearest_index(ks, k),
        "metrics": {name: label for name, label in _METRIC_LABELS.items() if (points["metric"] == name).any()},
        "families": sorted_names(points["family"]),
        "datasets": sorted_names(points["dataset"]),
    }


def _panel_sizes(count: int) -> tuple[int, int, int, int]:
    """Return the number of panels in a row, their width, the height of a panel of laws and of a panel of exponents."""
    rows = math.ceil(count / 3)
    columns = math.ceil(count / rows)  # at most three, in rows of nearly equal length
    width = (_CHART_WIDTH - 60) // columns - 20
    height = {1: 320, 2: 260}.get(count, 190)
    # A panel of exponents is as high as a panel of laws and a panel of residuals together.
    return columns, width, height, height + _RESIDUALS_HEIGHT + _PANEL_MARGIN + round(_CHART_GAP / rows)


def _law_layers(rows: pd.DataFrame, axis: Any, is_chosen_row: Any) -> list[Any]:
    """Return the layers that draw -ln RBP_k or cross-entropy against S: laws, points and intervals.

    Every layer has its own filter. A common filter would be applied before the division into panels, and panels without
    rows would disappear.

    Args:
        rows: the rows of `_add_laws`.
        axis: Vega's expression for the vertical axis, an element of `_vertical_axes`.
        is_chosen_row: Vega's condition for the rows that are drawn.

    """
    x = _size_encoding(rows)
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(type="log", domain=[alt.ExprRef(axis.low), alt.ExprRef(axis.high)], nice=False),
        "axis": alt.Axis(values=alt.ExprRef(axis.ticks), format="~g", minExtent=_AXIS_WIDTH),
    }
    texts = {
        "size": size_text(datum.S, ".3"),
        "value": axis.title + " = " + expr.format(datum.y, ".4~r"),
        "interval": INTERVAL_TEXT,
        "rbp": expr.if_(datum.metric == "rbp", expr.format(expr.exp(-datum.y), ".4f"), ""),
    }
    size = alt.Tooltip("size:N", title="S")
    rbp = alt.Tooltip("rbp:N", title="RBP_k")
    tooltip = ["model:N", "dataset:N", size, "value:N", INTERVAL_TOOLTIP, rbp]

    base = alt.Chart().encode(x)
    law_lines = (
        base.transform_filter(is_chosen_row & expr.isValid(datum.law))
        .mark_line(strokeWidth=1.5, clip=True)
        .encode(alt.Y("law:Q", **vertical))
    )
    bars = (
        base.transform_filter(is_chosen_row & expr.isValid(datum.low))
        .mark_rule(clip=True)
        .encode(alt.Y("low:Q", **vertical), alt.Y2("high"))
    )
    dots = (
        base.transform_filter(is_chosen_row & expr.isValid(datum.y))
        .transform_calculate(**texts)
        .mark_point(size=50, clip=True)
        .encode(alt.Y("y:Q", **vertical), by_shape(rows["family"]), tooltip=tooltip)
    )
    return [law_lines, bars, dots]


def _residual_layers(rows: pd.DataFrame, axis: Any, is_chosen_row: Any) -> list[Any]:
    """Return the layers that draw the residuals, measured / law - 1, with the intervals of the points.

    Args:
        rows: the rows of `_add_laws`.
        axis: Vega's expression for the vertical axis, an element of `_vertical_axes`.
        is_chosen_row: Vega's condition for the rows that are drawn.

    """
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(
            domain=[alt.ExprRef(-axis.largest_residual), alt.ExprRef(axis.largest_residual)], nice=False
        ),
        "axis": alt.Axis(tickCount=3, format="~%", minExtent=_AXIS_WIDTH),
    }
    x = _size_encoding(rows, "beside")
    measured = alt.Chart().encode(x).transform_filter(is_chosen_row & expr.isValid(datum.residual))
    zero_line = (
        measured.transform_calculate(zero="0")
        .mark_line(size=1)
        .encode(alt.Y("zero:Q", **vertical), alt.ColorValue(FAINT))
    )
    # Both ends of the interval of y are divided by the law's value, which is y / (residual + 1).
    bars = (
        measured.transform_calculate(
            lower=(datum.residual + 1) * datum.low / datum.y - 1, upper=(datum.residual + 1) * datum.high / datum.y - 1
        )
        .transform_filter(expr.isValid(datum.low))
        .mark_rule(clip=True)
        .encode(alt.Y("lower:Q", **vertical), alt.Y2("upper"))
    )
    tooltip = ["model:N", "dataset:N", alt.Tooltip("text:N", title="measured / law − 1")]
    dots = (
        measured.transform_calculate(text=expr.format(datum.residual, "+.1%"))
        .mark_point(size=40, clip=True)
        .encode(alt.Y("residual:Q", **vertical), by_shape(rows["family"]), tooltip=tooltip)
    )
    return [zero_line, bars, dots]


def _size_encoding(rows: pd.DataFrame, column: str = "S") -> alt.X:
    """Return the encoding of S, or of another column on its axis.

    The ends of the axis are fixed, because a panel may have no rows at some k.
    """
    ends = [rows["S"].min(), rows["S"].max()]
    x = alt.X(f"{column}:Q", title="S", axis=alt.Axis(values=ticks(*ends), labelExpr=LOG_AXIS_LABEL))
    return x.scale(type="log", domain=ends, nice=False, padding=12)


def _exponent_layers(laws: pd.DataFrame, largest_k: int, k: alt.Parameter) -> list[Any]:
    """Return the layers that draw alpha against k, with a band that holds for all k together.

    A vertical line marks k, the chosen k. Alpha of cross-entropy is a dashed line.
    """
    lowest, highest = _ends_of_exponent_axis(laws)
    x = alt.X("k:Q", axis=alt.Axis(values=ticks(1, largest_k), labelExpr=LOG_AXIS_LABEL))
    x = x.scale(type="log", domain=[1, largest_k], nice=False, padding=6)
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(domain=[lowest, highest], nice=False),
        "axis": alt.Axis(tickCount=5, minExtent=_AXIS_WIDTH),
    }
    y = alt.Y("alpha:Q", **vertical)
    alpha = alt.Tooltip("alpha:Q", title="α", format=".3f")
    tooltip = ["family:N", "dataset:N", alpha, INTERVAL_TOOLTIP]
    tooltip_with_k = ["family:N", "dataset:N", alt.Tooltip("k:Q", format=","), alpha, INTERVAL_TOOLTIP]

    base = alt.Chart().transform_calculate(interval=INTERVAL_TEXT)
    ce_line = (
        base.transform_filter(datum.metric == "ce").mark_rule(strokeDash=[5, 4], clip=True).encode(y, tooltip=tooltip)
    )
    rbp_laws = base.transform_filter(datum.metric == "rbp").encode(x)
    # The band has no filter of its own: Vega would connect the k around a row that is left out by straight lines.
    band = rbp_laws.mark_area(fillOpacity=0.16, clip=True, aria=False).encode(
        alt.Y("band_low:Q", **vertical), alt.Y2("band_high")
    )
    k_line = (
        rbp_laws.transform_filter(datum.k == k).mark_rule(size=1).encode(alt.ColorValue(FAINT), alt.OpacityValue(1))
    )
    line = rbp_laws.mark_line(clip=True).encode(y)
    # Only the dot at the chosen k is visible. The other dots are transparent, and larger to catch the pointer.
    is_chosen = str(datum.k == k)
    dots = rbp_laws.mark_point().encode(
        y,
        by_shape(laws["family"]),
        alt.FillOpacityValue(0, condition=[{"test": is_chosen, "value": 1}]),
        alt.SizeValue(110, condition=[{"test": is_chosen, "value": 50}]),
        tooltip=tooltip_with_k,
    )
    return [band, ce_line, k_line, line, dots]


def _add_laws(points: pd.DataFrame, laws: pd.DataFrame) -> pd.DataFrame:
    """Return the points with three more columns: law, residual, and beside, the place of a residual on the S axis.

    The law's value is given at its smallest and its largest S only, between which its line is drawn. It is NaN at other
    points. The residual is measured / law - 1, and NaN if there is no law.
    """
    # Rows in this order compress well.
    rows = points[[*_LAW_KEYS, "model", "S", "y", "low", "high"]].sort_values(["metric", "k"], kind="stable")
    ends = laws[[*_LAW_KEYS, "S0", "y0", "S1", "y1"]]
    rows = rows.merge(ends, on=_LAW_KEYS, how="left")
    rows["law"] = np.select([rows["S"] == rows["S0"], rows["S"] == rows["S1"]], [rows["y0"], rows["y1"]], np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.log(rows["y1"] / rows["y0"]) / np.log(rows["S1"] / rows["S0"])
        residual = rows["y"] / (rows["y0"] * (rows["S"] / rows["S0"]) ** slope) - 1
    rows["residual"] = np.where(np.isfinite(residual), residual, np.nan)
    rows["beside"] = _beside_each_other(rows)
    return rows.drop(columns=["S0", "y0", "S1", "y1"])


def _beside_each_other(rows: pd.DataFrame) -> FloatArray:
    """Return S, shifted by the family if families have models of equal size, whose residuals would hide each other."""
    s = rows["S"].to_numpy(np.float64)
    sizes = rows[["family", "S"]].drop_duplicates()["S"]
    if not sizes.duplicated().any():
        return s
    names = sorted_names(rows["family"])
    place = rows["family"].map({name: i - (len(names) - 1) / 2 for i, name in enumerate(names)})
    step = min(0.03, 0.1 / len(names)) * np.log(s.max() / s.min())  # a share of the axis
    return np.asarray(s * np.exp(step * place.to_numpy()))


def _vertical_axes(rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the vertical axes of laws and residuals for each metric and k, by names such as `rbp10` and `ce0`.

    An axis has the keys title, low, high and ticks for the axis of laws. The axis of residuals extends from
    -largest_residual to largest_residual. The axes enclose points, laws and intervals, except the part of an interval
    that lies beyond `_MAX_EXTENSION` times its point. The axis of laws spans at least the factor that the points need
    at every k up to 10, so slopes can be compared while k changes.

    Args:
        rows: the rows of `_add_laws`.

    """
    lowest_drawn = rows[["y", "law", "low"]].min(axis=1).clip(lower=rows["y"] / _MAX_EXTENSION)
    highest_drawn = rows[["y", "law", "high"]].max(axis=1).clip(upper=rows["y"] * _MAX_EXTENSION)
    law = rows["y"] / (1 + rows["residual"])
    residual = np.maximum((lowest_drawn / law - 1).abs(), (highest_drawn / law - 1).abs())
    drawn = rows[["metric", "k"]].assign(lowest=lowest_drawn, highest=highest_drawn, residual=residual)
    ends = drawn.groupby(["metric", "k"]).agg({"lowest": "min", "highest": "max", "residual": "max"})
    ends["span"] = ends["highest"] / ends["lowest"]
    min_rbp_span = ends.query(f"metric == 'rbp' and k <= {SHOWN_K}")["span"].max()
    axes = {}
    for (metric, k), lowest, highest, largest_residual, span in ends.itertuples():
        if metric == "rbp":
            title = f"−ln RBP_{k}"
            span = max(span, min_rbp_span)
        else:
            title = f"{_METRIC_LABELS[metric]}, nats"
        half_span = math.sqrt(span) * 1.1
        middle = math.sqrt(lowest * highest)
        low, high = middle / half_span, middle * half_span
        axes[f"{metric}{k}"] = {
            "title": title,
            "low": low,
            "high": high,
            "ticks": ticks(low, high),
            "largest_residual": max(1.1 * largest_residual, 0.01) if math.isfinite(largest_residual) else 0.1,
        }
    return axes


def _ends_of_exponent_axis(laws: pd.DataFrame) -> list[float]:
    """Return the ends of the axis of exponents. It holds 0, all exponents and their band.

    The band extends the axis at each end by at most `_MAX_EXTENSION` times the range of 0 and the exponents.
    """
    if laws.empty:
        return [0.0, 1.0]
    low = min(0.0, float(laws["alpha"].min()))
    high = max(0.0, float(laws["alpha"].max()))
    max_extension = _MAX_EXTENSION * (high - low)
    if laws["band_low"].notna().any():
        low = max(low - max_extension, min(low, float(laws["band_low"].min())))
        high = min(high + max_extension, max(high, float(laws["band_high"].max())))
    margin = (high - low) / 20 or 1.0
    return [low - margin if low < 0 else 0.0, high + margin if high > 0 or low == 0 else 0.0]
