"""The large chart of the page: laws in size at one k, their residuals, and their exponents against k.

It consists of three charts, each with a panel for every dataset. The reader sets three parameters: `chosen` (the index
of k in its grid), `metric`, and `pick` (the families chosen in the legend). On the page, `reporting/page.js` sets them
from the page's controls.
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
    INTERVAL,
    NUMBERS,
    SHOWN_K,
    TIP_OF_INTERVAL,
    by_colour,
    by_shape,
    inline_data,
    legend_selection,
    nearest_index,
    size_text,
    sorted_names,
    ticks,
)

_LABELS = {"rbp": "RBP_k", "ce": "cross-entropy"}
_KEYS = ["family", "dataset", "metric", "k"]
_MAX_EXTENSION = 3.0  # intervals extend an axis at most to this factor times the points
_AXIS = 36  # width of a vertical axis in pixels. A fixed width keeps panels in place while the slider moves
RESIDUALS = 64
"""The height of a panel of residuals, in pixels."""

_AROUND = 83  # pixels above and below a panel: its name, its axis and the space to the next row of panels
_APART = 19  # additional pixels between laws and residuals
_WIDTH = 560  # width of each chart in a picture, in pixels. The page sets another width


@debug_mode(False)  # otherwise Altair would validate every part of the chart several times
def explorer(points: pd.DataFrame, laws: pd.DataFrame) -> Any:
    """Draw the laws in size at a k that a slider chooses, their residuals, and their exponents against k.

    Args:
        points: one row for each model, dataset, metric and k, with the columns family, model, dataset, metric, k, S, y,
            low and high. The metric is "rbp" (y = -ln RBP_k, at least one k) or "ce" (y in nats, k = 0). y is positive
            and finite. low and high are the ends of the interval of y; NaN if there is none.
        laws: one row for each law, with the columns family, dataset, metric, k, alpha, low, high, S0, y0, S1 and y1.
            low and high are the ends of the interval of alpha. (S0, y0) and (S1, y1) are the ends of the law's line.

    """
    ks = sorted(int(k) for k in points.loc[points["metric"] == "rbp", "k"].unique())
    metrics = {name: label for name, label in _LABELS.items() if (points["metric"] == name).any()}
    datasets = sorted_names(points["dataset"])
    start = nearest_index(ks, SHOWN_K)
    families = sorted_names(points["family"])
    controls = {"ks": ks, "chosen": start, "metrics": metrics, "families": families, "datasets": datasets}

    # These parameters are set by the reader.
    slider = alt.binding_range(min=0, max=len(ks) - 1, step=1, name="k: slide along its grid ")
    menu = alt.binding_select(options=list(metrics), labels=list(metrics.values()), name="metric ")
    chosen = alt.param(name="chosen", value=start, bind=slider)
    metric = alt.param(name="metric", value="rbp", bind=menu)
    pick = legend_selection("family")
    # These parameters follow from them: k, and the title, ends and ticks of the left chart's vertical axis.
    grid: Any = alt.param(name="ks", value=ks)
    k = alt.param(name="k", expr=expr.if_(metric == "rbp", grid[chosen], 0))
    with_law = _with_law(points, laws)
    axes = alt.param(name="axes", value=_axes(with_law))
    axis: Any = alt.param(name="axis", expr=axes[metric + k])

    shown = (datum.metric == metric) & (datum.k == k)
    data = inline_data(with_law)
    left = _laws(data, with_law, axis, shown)
    left[0] = left[0].add_params(pick)  # Altair makes it a parameter of all charts
    right = _exponents(laws[[*_KEYS, "alpha", "low", "high"]], max(ks), k)
    below = _residuals(data, with_law, axis, shown)
    rows = math.ceil(len(datasets) / 3)
    columns = math.ceil(len(datasets) / rows)  # at most three, in rows of nearly equal length
    width = (_WIDTH - 60) // columns - 20
    height = {1: 320, 2: 260}.get(len(datasets), 190)

    def side(layers: list[Any], title: Any, height: int) -> Any:
        panels = alt.layer(*layers, width=width, height=height).encode(**by_colour(points["family"], pick))
        # Altair copies all layers when a property of a finished chart is set, so the properties are given at once.
        return panels.facet(
            "dataset:N",
            columns=columns,
            resolve=alt.Resolve(axis=alt.AxisResolveMap(x="independent")),
            title=alt.Title(title, dx=_AXIS, offset=10),
        )

    laws_and_residuals = alt.vconcat(
        side(left, alt.ExprRef(axis.title), height), side(below, "measured / law − 1", RESIDUALS)
    )
    exponents = side(right, "exponent α (dashed: cross-entropy)", height + _room_beside_residuals(rows))
    params = [parameter.param for parameter in (chosen, metric, grid, k, axes, axis)]
    return alt.hconcat(laws_and_residuals, exponents, params=params, spacing=30, usermeta={"explorer": controls})


def _room_beside_residuals(rows: int) -> int:
    """Return the difference in height between a panel of exponents and a panel of laws, in pixels.

    The exponents are then as high as the laws and the residuals together.
    """
    return RESIDUALS + _AROUND + round(_APART / rows)


def _laws(data: alt.InlineData, points: pd.DataFrame, axis: Any, shown: Any) -> list[Any]:
    """Return the layers that draw -ln RBP_k or cross-entropy against S: laws, points and intervals.

    Every layer has its own filter. A common filter would be applied before the division into panels, and panels without
    rows would disappear.

    Args:
        data: the rows of `_with_law` as the data of a chart.
        points: these rows.
        axis: Vega's expression for the vertical axis, an element of `_axes`.
        shown: Vega's condition for the rows that are drawn.

    """
    x = _sizes(points)
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(type="log", domain=[alt.ExprRef(axis.low), alt.ExprRef(axis.high)], nice=False),
        "axis": alt.Axis(values=alt.ExprRef(axis.ticks), format="~g", minExtent=_AXIS),
    }
    texts = {
        "size": size_text(datum.S, ".3"),
        "value": axis.title + " = " + expr.format(datum.y, ".4~r"),
        "interval": INTERVAL,
        "rbp": expr.if_(datum.metric == "rbp", expr.format(expr.exp(-datum.y), ".4f"), ""),
    }
    tips = ["model:N", "dataset:N", alt.Tooltip("size:N", title="S"), "value:N", TIP_OF_INTERVAL]
    tips.append(alt.Tooltip("rbp:N", title="RBP_k"))

    base = alt.Chart(data).encode(x)
    law = (
        base.transform_filter(shown & expr.isValid(datum.law))
        .mark_line(strokeWidth=1.5, clip=True)
        .encode(alt.Y("law:Q", **vertical))
    )
    bars = (
        base.transform_filter(shown & expr.isValid(datum.low))
        .mark_rule(clip=True)
        .encode(alt.Y("low:Q", **vertical), alt.Y2("high"))
    )
    dots = (
        base.transform_filter(shown & expr.isValid(datum.y))
        .transform_calculate(**texts)
        .mark_point(size=50, clip=True)
        .encode(alt.Y("y:Q", **vertical), by_shape(points["family"]), tooltip=tips)
    )
    return [law, bars, dots]


def _residuals(data: alt.InlineData, points: pd.DataFrame, axis: Any, shown: Any) -> list[Any]:
    """Return the layers that draw the residuals, measured / law - 1, with the intervals of the points.

    Args:
        data: the rows of `_with_law` as the data of a chart.
        points: these rows.
        axis: Vega's expression for the vertical axis, an element of `_axes`.
        shown: Vega's condition for the rows that are drawn.

    """
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(domain=[alt.ExprRef(-axis.far), alt.ExprRef(axis.far)], nice=False),
        "axis": alt.Axis(tickCount=3, format="~%", minExtent=_AXIS),
    }
    miss = expr.format(datum.miss, "+.1%")
    base = alt.Chart(data).encode(_sizes(points))
    rows = base.transform_filter(shown & expr.isValid(datum.miss))
    zero = rows.mark_line(size=1).encode(alt.Y("zero:Q", **vertical), color=alt.value(FAINT))
    zero = zero.transform_calculate(zero="0")
    bars = rows.transform_calculate(
        lower=(datum.miss + 1) * datum.low / datum.y - 1, upper=(datum.miss + 1) * datum.high / datum.y - 1
    )
    bars = bars.transform_filter(expr.isValid(datum.low)).mark_rule(clip=True)
    bars = bars.encode(alt.Y("lower:Q", **vertical), alt.Y2("upper"))
    tips = ["model:N", "dataset:N", alt.Tooltip("text:N", title="measured / law − 1")]
    dots = rows.transform_calculate(text=miss).mark_point(size=40, clip=True)
    return [zero, bars, dots.encode(alt.Y("miss:Q", **vertical), by_shape(points["family"]), tooltip=tips)]


def _sizes(points: pd.DataFrame) -> alt.X:
    """Return the encoding of S. The ends of the axis are fixed, because a panel may have no rows at some k."""
    ends = [points["S"].min(), points["S"].max()]
    x = alt.X("S:Q", axis=alt.Axis(values=ticks(*ends), labelExpr=NUMBERS))
    return x.scale(type="log", domain=ends, nice=False, padding=12)


def _exponents(laws: pd.DataFrame, largest: int, k: alt.Parameter) -> list[Any]:
    """Return the layers that draw alpha against k, with its intervals as a band.

    The chosen k is marked. Alpha of cross-entropy is dashed.

    Args:
        laws: one row for each law.
        largest: the largest k.
        k: the parameter that holds the chosen k.

    """
    lowest, highest = _ends_of_exponent_axis(laws)
    x = alt.X("k:Q", axis=alt.Axis(values=ticks(1, largest), labelExpr=NUMBERS))
    x = x.scale(type="log", domain=[1, largest], nice=False, padding=6)
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(domain=[lowest, highest], nice=False),
        "axis": alt.Axis(tickCount=5, minExtent=_AXIS),
    }
    y = alt.Y("alpha:Q", **vertical)
    where = ["family:N", "dataset:N"]
    value = [alt.Tooltip("alpha:Q", title="α", format=".3f"), TIP_OF_INTERVAL]

    base = alt.Chart(inline_data(laws)).transform_calculate(interval=INTERVAL)
    ce_line = base.transform_filter(datum.metric == "ce").mark_rule(strokeDash=[5, 4], clip=True)
    ce_line = ce_line.encode(y, tooltip=[*where, *value])
    ranks = base.transform_filter(datum.metric == "rbp").encode(x)
    band = (
        ranks.transform_filter(expr.isValid(datum.low) & (datum.low >= lowest) & (datum.high <= highest))
        .mark_area(fillOpacity=0.16, clip=True)
        .encode(alt.Y("low:Q", **vertical), alt.Y2("high"))
    )
    mark = ranks.transform_filter(datum.k == k).mark_rule(size=1).encode(color=alt.value(FAINT), opacity=alt.value(1))
    line = ranks.mark_line(clip=True).encode(y)
    # Only the dot at the chosen k is visible. The other dots are larger and transparent. They show the tooltip.
    is_chosen = alt.when(datum.k == k)
    dots = ranks.mark_point().encode(
        y,
        by_shape(laws["family"]),
        fillOpacity=is_chosen.then(alt.value(1)).otherwise(alt.value(0)),
        size=is_chosen.then(alt.value(50)).otherwise(alt.value(110)),
        tooltip=[*where, alt.Tooltip("k:Q", format=","), *value],
    )
    return [band, ce_line, mark, line, dots]


def _with_law(points: pd.DataFrame, laws: pd.DataFrame) -> pd.DataFrame:
    """Return the points with two more columns.

    `miss` is measured / law - 1. `law` is the value of the law at its smallest and largest S, and NaN at other points.
    """
    # Rows in this order compress well.
    rows = points[[*_KEYS, "model", "S", "y", "low", "high"]].sort_values(["metric", "k"], kind="stable")
    ends = laws[[*_KEYS, "S0", "y0", "S1", "y1"]]
    rows = rows.merge(ends, on=_KEYS, how="left")
    rows["law"] = np.select([rows["S"] == rows["S0"], rows["S"] == rows["S1"]], [rows["y0"], rows["y1"]], np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.log(rows["y1"] / rows["y0"]) / np.log(rows["S1"] / rows["S0"])
        miss = rows["y"] / (rows["y0"] * (rows["S"] / rows["S0"]) ** slope) - 1
    rows["miss"] = np.where(np.isfinite(miss), miss, np.nan)
    return rows.drop(columns=["S0", "y0", "S1", "y1"])


def _axes(points: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the vertical axes of laws and residuals for each metric and k, by names such as `rbp10` and `ce0`.

    An axis has the keys title, low, high and ticks, for the axis of laws, and far, the end of the axis of residuals.
    The ends enclose points, laws and intervals. An interval beyond `_MAX_EXTENSION` times its point is cut off. Up to
    k = 10, the axis of laws spans the same factor at every k, so slopes can be compared while k changes.
    """
    least_drawn = points[["y", "law", "low"]].min(axis=1).clip(lower=points["y"] / _MAX_EXTENSION)
    most_drawn = points[["y", "law", "high"]].max(axis=1).clip(upper=points["y"] * _MAX_EXTENSION)
    law = points["y"] / (1 + points["miss"])
    far = np.maximum((least_drawn / law - 1).abs(), (most_drawn / law - 1).abs())
    table = points[["metric", "k"]].assign(min=least_drawn, max=most_drawn, far=far)
    ends = table.groupby(["metric", "k"]).agg({"min": "min", "max": "max", "far": "max"})
    ends["span"] = ends["max"] / ends["min"]
    usual = ends.query(f"metric == 'rbp' and k <= {SHOWN_K}")["span"].max()
    axes = {}
    for (metric, k), least, most, farthest, span in ends.itertuples():
        half = math.sqrt(max(span, usual) if metric == "rbp" else span) * 1.1
        middle = math.sqrt(least * most)
        title = f"−ln RBP_{k}" if metric == "rbp" else f"{_LABELS[metric]}, nats"
        low, high = middle / half, middle * half
        law_axis = {"title": title, "low": low, "high": high, "ticks": ticks(low, high)}
        axes[f"{metric}{k}"] = law_axis | {"far": max(1.1 * farthest, 0.01) if math.isfinite(farthest) else 0.1}
    return axes


def _ends_of_exponent_axis(laws: pd.DataFrame) -> list[float]:
    """Return the ends of an axis with 0, all exponents, and their intervals as far as `_MAX_EXTENSION` permits."""
    if laws.empty:
        return [0.0, 1.0]
    low = min(0.0, float(laws["alpha"].min()))
    high = max(0.0, float(laws["alpha"].max()))
    most = _MAX_EXTENSION * (high - low)
    low = max(low - most, min(low, float(laws["low"].min(skipna=True)))) if laws["low"].notna().any() else low
    high = min(high + most, max(high, float(laws["high"].max()))) if laws["high"].notna().any() else high
    room = (high - low) / 20 or 1.0
    return [low - room if low < 0 else 0.0, high + room if high > 0 or low == 0 else 0.0]
