"""Make the view *CE and RBP_k* for the Views menu of MLflow's page, and choose a colour for each dataset.

MLflow keeps a saved view in a tag of the experiment. view.json holds the view in the format in which MLflow 3.15 and
later save a view. MLflow does not document this format.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from rbptrack.tracking.names import VIEW_KEY

_NAME = "CE and RBP_k"
_MAX_TAG_LENGTH = 20_000  # largest number of characters in the tag of an experiment
_PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e6a700",
    "#56b4e9",
    "#8a5a2b",
    "#7f3fbf",
    "#7a7a7a",
    "#c21e56",
)


def view_address(experiment_id: str) -> str:
    """Return the end of the address of the view, which follows the address of the server."""
    options = f"workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={VIEW_KEY}"
    return f"#/experiments/{experiment_id}/runs?{options}"


def view_tag(metrics: Collection[str], previous: str = "") -> str:
    """Return the value of the tag that keeps the view.

    Args:
        metrics: the names of all metrics of the runs. For a metric without a chart, the view gets a chart that is
            marked as deleted. Otherwise MLflow would add a chart for the metric.
        previous: the present value of the tag. It is returned if the view has not changed.

    """
    state = json.loads(Path(__file__).with_name("view.json").read_text())
    charts: list[dict[str, Any]] = state["compareRunCharts"]
    section = state["compareRunSections"][-1]["uuid"]
    metrics_with_chart = {chart["metricKey"] for chart in charts if chart["type"] == "LINE"}
    for metric in sorted(set(metrics) - metrics_with_chart):
        chart = {"type": "BAR", "uuid": f"rbptrack-none-{metric}", "metricSectionId": section, "metricKey": metric}
        charts.append(chart | {"runsCountToCompare": 10, "deleted": True, "isGenerated": True})
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    packed_state = "deflate;" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    now = int(time.time() * 1000)
    previous_view = _read_object(previous)
    if previous_view.get("state") == packed_state:
        return previous
    view = {
        "name": _NAME,
        "createdAt": previous_view.get("createdAt", now),
        "updatedAt": now,
        "state": packed_state,
    }
    return json.dumps(view, sort_keys=True)


def with_colours(datasets: Iterable[str], text: str) -> dict[str, str]:
    """Return the colours of datasets in a text (JSON), with a colour for each of some further datasets.

    The first datasets are left out if the result as JSON would be longer than a tag may be.
    """
    colours = _read_object(text)
    for dataset in datasets:
        if dataset not in colours:
            unused = [colour for colour in _PALETTE if colour not in colours.values()]
            colours[dataset] = unused[0] if unused else _PALETTE[len(colours) % len(_PALETTE)]
    while len(json.dumps(colours)) > _MAX_TAG_LENGTH:
        del colours[next(iter(colours))]
    return colours


def _read_object(text: str) -> dict[str, Any]:
    """Return the JSON object in the value of a tag. It is empty if the value is damaged."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
