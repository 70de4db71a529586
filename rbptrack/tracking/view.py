"""Make the view *CE and RBP_k* for the Views menu of MLflow's page.

MLflow keeps a saved view in a tag of the experiment. view.json holds the view in the format in which MLflow 3.15 and
later save a view. MLflow does not document this format.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rbptrack.tracking.colours import read_json_tag
from rbptrack.tracking.names import VIEW_KEY

_NAME = "CE and RBP_k"


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
    previous_view = read_json_tag(previous)
    if previous_view.get("state") == packed_state:
        return previous
    view = {
        "name": _NAME,
        "createdAt": previous_view.get("createdAt", now),
        "updatedAt": now,
        "state": packed_state,
    }
    return json.dumps(view, sort_keys=True)
