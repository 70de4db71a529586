"""The page's large figure: laws in size at a k that a slider chooses, and their exponents against k.

Every number is in the chart once, and each panel shows its dataset's part at the chosen k and metric by Vega's
expressions. `reporting/page.js` moves the parameters `chosen` and `metric`, and finds panels by name.
"""

from __future__ import annotations

import json
import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair.utils.schemapi import debug_mode

from rbptrack.analysis.charts import (
    COLOURS,
    FAINT,
    INK,
    JSON,
    SHAPES,
    SHOWN_K,
    SIZES,
    as_text,
    by_name,
    if_chosen,
    legend_choice,
    nearest_index,
    rounded,
    ticks,
)

_WIDTH = 1120  # of a page, in pixels
_AXIS = 36  # pixels of the vertical axes, so that panels stay where they are while the slider moves
_HERE = "[metric][metric === 'rbp' ? chosen : 0]"  # of a list over the grid of k for each metric
_LABELS = {"rbp": "RBP_k", "ce": "cross-entropy"}


@debug_mode(False)  # Altair would check each part again and again
def explorer(points: pd.DataFrame, laws: pd.DataFrame) -> Any:
    """The laws in size at a k that a slider chooses, and their exponents against k; a panel of each for every dataset.

    Args:
        points: family, model, dataset, metric, k, S, y, low, high: a row per model, dataset and metric: "rbp" at each
            k, of which there is one at least, with y = -ln RBP_k, and others ("ce") at k = 0; y is positive and finite;
            low and high are its ends, NaN where documents are too few.
        laws: family, dataset, metric, k, alpha, low, high, S0, y0, S1, y1: the exponent with its ends, and both ends of
            the law's line.

    """
    ks = sorted(int(k) for k in points.loc[points["metric"] == "rbp", "k"].unique())
    datasets = sorted(points["dataset"].unique())
    families = sorted(points["family"].unique())
    metrics = sorted(points["metric"].unique(), key=lambda name: (name != "rbp", name != "ce", name))
    labels = {name: _LABELS.get(name, name.replace("_", " ")) for name in metrics}
    rows_of_panels = math.ceil(len(datasets) / 3)
    side = math.ceil(len(datasets) / rows_of_panels)  # panels of laws in a row, and as many of exponents beside them
    size = {"width": max(110, _WIDTH // (2 * side) - 60), "height": {1: 320, 2: 260}.get(len(datasets), 190)}
    pick = legend_choice("family")
    look = {
        "color": alt.Color("family:N", title=None, scale=by_name(families, COLOURS)),
        "shape": alt.Shape("family:N", title=None, scale=by_name(families, SHAPES)),
        "opacity": if_chosen(pick, 1, 0.07),
    }
    faint = if_chosen(pick, 0.16, 0.02)
    # Domains are given, as a filter may leave a layer empty.
    sizes = [float(points["S"].min()), float(points["S"].max())]
    alphas = _ends_with_zero(laws.loc[laws["metric"].isin(["rbp", "ce"]), "alpha"])
    panels: list[Any] = []
    for start in range(0, len(datasets), side):
        row = datasets[start : start + side]
        panels += [_laws_panel(name, look, sizes).properties(**size) for name in row]
        panels += [_exponents_panel(name, look, faint, alphas, max(ks)).properties(**size) for name in row]
    panels[0] = panels[0].add_params(pick)
    index_of = {k: index for index, k in enumerate(ks)}
    data = {
        "measured": _packed(points, ["family", "dataset", "model", "S"], ["y", "low", "high"], index_of),
        "fitted": _packed(laws, ["family", "dataset", "S0", "S1"], ["y0", "y1"], index_of),
        "exponents": _exponents(laws, index_of),
    }
    chart: Any = alt.concat(
        *panels,
        columns=2 * side,
        spacing={"row": 22, "column": 16},
        usermeta={"ks": ks, "families": families, "datasets": datasets, "metrics": labels},
        datasets={name: as_text(rows) for name, rows in data.items()},
    )
    # add_params would copy every panel for each of them
    chart.params = [*(param.param for param in _parameters(points, ks, labels)), *chart.params]
    return chart


def _ends_with_zero(alphas: pd.Series[float]) -> list[float]:
    """Ends of an axis that holds 0 and all exponents, with room beyond the outermost."""
    if alphas.empty:
        return [0.0, 1.0]
    low = min(0.0, float(alphas.min()))
    high = max(0.0, float(alphas.max()))
    room = (high - low) / 4 or 1.0
    return [low - room if low < 0 else 0.0, high + room if high > 0 or low == 0 else 0.0]


def _parameters(points: pd.DataFrame, ks: list[int], labels: dict[str, str]) -> list[alt.Parameter]:
    """The slider and the list of metrics, and what depends on their place: k, headings and windows of the left side."""
    slide = alt.binding_range(min=0, max=len(ks) - 1, step=1, name="k: slide along its grid ")
    choose = alt.binding_select(options=list(labels), labels=list(labels.values()), name="metric ")
    headings = {name: [label + (", nats" if name == "ce" else "")] for name, label in labels.items()}
    headings["rbp"] = [f"−ln RBP_{k}" for k in ks]
    windows = {name: _windows(points[points["metric"] == name]) for name in labels}
    return [
        alt.param(name="chosen", value=nearest_index(ks, SHOWN_K), bind=slide),
        alt.param(name="metric", value=next(iter(labels)), bind=choose),
        alt.param(name="ks", value=ks),
        alt.param(name="names", value=headings),
        alt.param(name="windows", value=windows),
    ]


def _laws_panel(dataset: str, look: dict[str, Any], ends: list[float]) -> Any:
    """-ln RBP_k, or another metric, against S: the law, points and their intervals."""
    window = [alt.ExprRef(f"windows{_HERE}.low"), alt.ExprRef(f"windows{_HERE}.high")]
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(type="log", domain=window, nice=False),
        "axis": alt.Axis(values=alt.ExprRef(f"windows{_HERE}.ticks"), format="~g", minExtent=_AXIS),
    }
    horizontal: dict[str, Any] = {
        "title": "S",
        "scale": alt.Scale(type="log", nice=False, domain=ends, padding=12),
        "axis": alt.Axis(values=ticks(*ends), labelExpr=SIZES),
    }
    x = alt.X("S:Q", **horizontal)
    lines = {name: look[name] for name in ("color", "opacity")}
    models = (
        _rows("measured", dataset)
        .transform_calculate(y_=f"datum.y{_HERE}", low_=f"datum.low{_HERE}", high_=f"datum.high{_HERE}")
        .transform_filter("isValid(datum.y_)")
    )
    with_texts = models.transform_calculate(
        value=f"names{_HERE} + ' = ' + format(datum.y_, '.4~r') + ({_interval('low_', 'high_', '.3~r')})",
        rbp="metric === 'rbp' ? format(exp(-datum.y_), '.4f') : ''",
        size="replace(format(datum.S, '.3~s'), 'G', 'B')",
    )
    tooltips = [
        alt.Tooltip("model:N"),
        alt.Tooltip("dataset:N"),
        alt.Tooltip("size:N", title="S"),
        alt.Tooltip("value:N"),
    ]
    tooltips.append(alt.Tooltip("rbp:N", title="RBP_k"))
    dots = with_texts.mark_point(filled=True, size=50, clip=True).encode(
        x, alt.Y("y_:Q", **vertical), **look, tooltip=tooltips
    )
    with_ends = models.transform_filter("isValid(datum.low_)")
    bars = with_ends.mark_rule(size=1.5, clip=True).encode(x, alt.Y("low_:Q", **vertical), y2="high_:Q", **lines)
    law = (
        _rows("fitted", dataset)
        .transform_calculate(from_=f"datum.y0{_HERE}", to_=f"datum.y1{_HERE}")
        .transform_filter("isValid(datum.from_)")
        .mark_rule(size=1.5, clip=True)
        .encode(alt.X("S0:Q", **horizontal), alt.Y("from_:Q", **vertical), x2="S1:Q", y2="to_:Q", **lines)
    )
    return alt.layer(law, bars, dots, _corner(f"names{_HERE}")).properties(title=dataset, name=f"laws of {dataset}")


def _exponents_panel(dataset: str, look: dict[str, Any], faint: Any, domain: list[float], largest: int) -> Any:
    """Alpha against k with its band, the chosen k marked, cross-entropy's alpha dashed."""
    vertical: dict[str, Any] = {
        "title": None,
        "scale": alt.Scale(domain=domain, nice=False),
        "axis": alt.Axis(tickCount=5, minExtent=_AXIS),
    }
    across = alt.Scale(type="log", nice=False, domain=[1, largest])
    x = alt.X("k:Q", title="k", scale=across, axis=alt.Axis(values=ticks(1, largest), format="~s"))
    y = alt.Y("alpha:Q", **vertical)
    y_of_ce = alt.Y("ce:Q", **vertical)
    lines = {name: look[name] for name in ("color", "opacity")}
    rows = _rows("exponents", dataset)
    ranks = rows.transform_flatten(["k", "alpha", "low", "high"]).transform_filter("isValid(datum.alpha)")
    with_ends = ranks.transform_filter("isValid(datum.low)")
    low = alt.Y("low:Q", **vertical)
    band = with_ends.mark_area(clip=True).encode(x, low, y2="high:Q", color=look["color"], opacity=faint)
    dashed = rows.mark_rule(strokeDash=[5, 4], size=1.5, clip=True).encode(y=y_of_ce, **lines)
    top = rows.transform_aggregate(ce="max(ce)").transform_filter("isValid(datum.ce)")
    label = top.mark_text(align="right", dy=-6, dx=-3, color=FAINT)
    label = label.encode(x=alt.value("width"), y=y_of_ce, text=alt.TextValue("CE"))
    chosen_k = (
        alt.Chart(alt.InlineData(values=[{}])).transform_calculate(k="ks[chosen]").transform_filter("metric === 'rbp'")
    )
    rule = chosen_k.mark_rule(color=FAINT, size=1).encode(x=x)
    line = ranks.mark_line(clip=True).encode(x, y, **lines)
    chosen = ranks.transform_filter("metric === 'rbp' && datum.k === ks[chosen]")
    dots = chosen.mark_point(filled=True, size=50, clip=True).encode(x, y, **look)
    with_texts = ranks.transform_calculate(
        value=f"format(datum.alpha, '.3f') + ({_interval('low', 'high', '.3f')})",
        of_ce="isValid(datum.ce) ? format(datum.ce, '.3f') : ''",
    )
    tooltips = [alt.Tooltip("family:N"), alt.Tooltip("dataset:N"), alt.Tooltip("k:Q", format=",")]
    tooltips += [alt.Tooltip("value:N", title="α"), alt.Tooltip("of_ce:N", title="α of CE")]
    pointer = with_texts.mark_point(filled=True, size=110, clip=True)
    pointer = pointer.encode(x, y, color=look["color"], opacity=alt.OpacityValue(0), tooltip=tooltips)
    layers = alt.layer(band, dashed, label, rule, line, dots, pointer, _corner("'exponent α'"))
    return layers.properties(title=dataset, name=f"exponents of {dataset}")


def _rows(name: str, dataset: str) -> alt.Chart:
    """A dataset's rows of data that stand in the chart once; each layer filters them for itself."""
    data = alt.NamedData(name=name, format=JSON)
    return alt.Chart(data).transform_filter(f"datum.dataset === {json.dumps(dataset)}")


def _interval(low: str, high: str, form: str) -> str:
    """Vega's expression of ` (low to high)`; empty without ends."""
    return (
        f"isValid(datum.{low}) ? ' (' + format(datum.{low}, '{form}') + ' to ' + format(datum.{high}, '{form}') + ')'"
        " : ''"
    )


def _corner(expression: str) -> Any:
    """What the vertical axis is, above the panel's right end: an axis' own title cannot move with the slider."""
    text = alt.Chart(alt.InlineData(values=[{}])).mark_text(align="right", baseline="bottom", fontSize=12, color=INK)
    return text.encode(x=alt.value("width"), y=alt.value(-6), text=alt.TextValue(alt.ExprRef(expression)))


def _windows(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Ends and ticks of the vertical axis at each k.

    Up to k = 100 it spans as many decades at every k, so that slopes can be compared while k moves; beyond, as many as
    the points need.
    """
    ends = points[points["y"] > 0].groupby("k")["y"].agg(["min", "max"])
    span = ends["max"] / ends["min"]
    usual = float(span[span.index <= 100].max()) if (span.index <= 100).any() else 1.0
    half = np.sqrt(span.clip(lower=usual)) * 1.2
    middle = np.sqrt(ends["min"] * ends["max"])
    windows = []
    for low, high in zip(middle / half, middle * half, strict=True):
        windows.append({"low": rounded(low), "high": rounded(high), "ticks": ticks(low, high)})
    return windows


def _packed(frame: pd.DataFrame, keys: list[str], columns: list[str], index_of: dict[int, int]) -> list[dict[str, Any]]:
    """A row for each of `keys`; a column holds a list over the grid of k for each metric: a tenth of the bytes.

    In one pass, as groups of a frame would take most of the time of a large report.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in zip(*(frame[name].tolist() for name in (*keys, "metric", "k", *columns)), strict=True):
        names = record[: len(keys)]
        metric, k, *values = record[len(keys) :]
        if names not in rows:
            rows[names] = dict(zip(keys, names, strict=True)) | {column: {} for column in columns}
        for column, value in zip(columns, values, strict=True):
            by_metric = rows[names][column]
            if metric == "rbp":
                by_metric.setdefault(metric, [None] * len(index_of))[index_of[k]] = rounded(value)
            else:
                by_metric[metric] = [rounded(value)]
    return list(rows.values())


def _exponents(laws: pd.DataFrame, index_of: dict[int, int]) -> list[dict[str, Any]]:
    """A row per family and dataset: alpha, low and high along the grid of k, and cross-entropy's alpha."""
    rows = _packed(laws, ["family", "dataset"], ["alpha", "low", "high"], index_of)
    for row in rows:
        row |= {"k": list(index_of), "ce": row["alpha"].get("ce", [None])[0]}
        for column in ("alpha", "low", "high"):
            row[column] = row[column].get("rbp", [None] * len(index_of))
    return rows
