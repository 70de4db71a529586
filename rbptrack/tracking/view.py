"""Make the saved view *CE and RBP_k* for the Views menu of MLflow's page, and choose a colour for each dataset.

MLflow keeps a saved view as a tag of the experiment. view.json holds our view in the format that MLflow 3.15 and later
write when a user saves a view. MLflow does not document this format.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

KEY = "rbptrack"
NAME = "CE and RBP_k"
TAG = f"mlflow.sharedViewState.{KEY}"
COLOUR = "mlflow.runColor"
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


def link(experiment: str) -> str:
    """Return the part of the view's address after the address of the server.

    Args:
        experiment: the ID of the experiment.

    """
    return (
        f"#/experiments/{experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={KEY}"
    )


def tag_value(metrics: Collection[str], before: str = "") -> str:
    """Return the value of the tag that keeps the view.

    Args:
        metrics: the names of all metrics of the runs. A metric without a chart gets a deleted one, because MLflow would
            otherwise add a chart for it.
        before: the present value of the tag. It is returned if the view has not changed.

    """
    state = json.loads(Path(__file__).with_name("view.json").read_text())
    charts: list[dict[str, Any]] = state["compareRunCharts"]
    section = state["compareRunSections"][-1]["uuid"]
    charted = {chart["metricKey"] for chart in charts if chart["type"] == "LINE"}
    for metric in sorted(set(metrics) - charted):
        chart = {"type": "BAR", "uuid": f"rbptrack-none-{metric}", "metricSectionId": section, "metricKey": metric}
        charts.append(chart | {"runsCountToCompare": 10, "deleted": True, "isGenerated": True})
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    packed_state = "deflate;" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    now = int(time.time() * 1000)
    previous = json.loads(before) if before.startswith("{") else {}
    if previous.get("state") == packed_state:
        return before
    return json.dumps(
        {"name": NAME, "createdAt": previous.get("createdAt", now), "updatedAt": now, "state": packed_state},
        sort_keys=True,
    )


def missing_colours(runs: Sequence[Run]) -> dict[str, str]:
    """Return the colours that runs must still get, by run ID. All runs of a dataset have one colour.

    A dataset keeps the colour that its oldest coloured run has.

    Args:
        runs: the runs of measurements, newest first.

    """
    oldest_first = [(run, run.data.tags.get(Tag.DATASET, "")) for run in reversed(runs)]
    colours: dict[str, str] = {}  # by dataset
    for run, dataset in oldest_first:
        if COLOUR in run.data.tags:
            colours.setdefault(dataset, run.data.tags[COLOUR])
    for _, dataset in oldest_first:
        if dataset not in colours:
            free = [colour for colour in _PALETTE if colour not in colours.values()]
            colours[dataset] = free[0] if free else _PALETTE[len(colours) % len(_PALETTE)]
    return {
        run.info.run_id: colours[dataset]
        for run, dataset in oldest_first
        if run.data.tags.get(COLOUR) != colours[dataset]
    }
