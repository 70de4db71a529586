"""The view that `rbptrack ui` opens: charts that matter for rank scaling, as a state of MLflow's own run page.

MLflow stores a shared view as a tag of the experiment and opens it by the tag's key. The format is not documented: it
is what MLflow 3.17 writes when a user shares a view. MLflow 3.15 to 3.17 open it; 3.10 to 3.14 crash on it. So the key
goes only into the address of a version that is known to work, and every other version opens its plain page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from typing import Any

from rbptrack.config.schema import FilterConfig
from rbptrack.errors import BadInput
from rbptrack.ranks import rbp_name
from rbptrack.tracking.schema import HEADLINE_KS, Kind, Metric, Tag, param_names, tag_is

TAG = "mlflow.sharedViewState."
OLDEST, NEWEST = (3, 15), (3, 17)  # versions of MLflow that are known to open the view
_MANY = 10_000
_LAW, _CURVES, _RUNS = "rbptrack-law", "rbptrack-curves", "rbptrack-runs"


def knows_view(version: str) -> bool:
    """Whether a version of MLflow, such as `3.17.2`, opens the view; tests try its oldest and newest."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and OLDEST <= (int(found[1]), int(found[2])) <= NEWEST


def search_filter(chosen: FilterConfig) -> str:
    """The measurements that a filter chooses, in MLflow's search syntax.

    Raises:
        BadInput: more than one name or pattern for a key, which MLflow cannot express, or a quote in one.

    """
    parts = [tag_is(Tag.KIND, Kind.MEASUREMENT)]
    for key in ("family", "size", "dataset", "sweep"):
        patterns: list[str] = getattr(chosen, key)
        if len(patterns) > 1 or any("'" in pattern for pattern in patterns):
            raise BadInput(f"{key}={','.join(patterns)}: MLflow's page takes one name or pattern without quotes")
        for pattern in patterns:
            like = pattern.replace("*", "%").replace("?", "_")
            parts.append(f"tags.`{Tag.PREFIX}{key}` {'=' if like == pattern else 'LIKE'} '{like}'")
    return " and ".join(parts)


def preset(wanted: str) -> tuple[str, str]:
    """The key of the view, made from its content so that a new version has a new one, and the tag's value.

    Args:
        wanted: the runs that it shows, of `search_filter`.

    """
    text = json.dumps(_state(wanted), sort_keys=True, separators=(",", ":"))
    key = hashlib.sha256(text.encode()).hexdigest()
    return key, "deflate;" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _state(wanted: str) -> dict[str, Any]:
    return {
        "searchFilter": wanted,
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": [
            "attributes.`Source`",
            f"tags.`{Tag.DATASET}`",
            f"params.`{param_names()['non_embedding_params']}`",
            *(f"metrics.`{name}`" for name in (Metric.CE, rbp_name(1), rbp_name(10), Metric.NUM_TOKENS)),
        ],
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunSections": [
            _section(_CURVES, "Ranks", columns=2),
            _section(_LAW, "Against model size", columns=2),
            _section(_RUNS, "Runs", columns=1),
        ],
        "compareRunCharts": [
            _line(Metric.RBP_CURVE, "RBP_k against k", scale="linear"),
            _line(Metric.NEG_LOG_RBP_CURVE, "-ln RBP_k against k", scale="log"),
            _scatter(Metric.CE, "CE against log10 S"),
            _scatter(Metric.NEG_LOG_RBP_1, "-ln RBP_1 against log10 S"),
            {
                **_chart("PARALLEL", _RUNS, "size-dataset-rbp", "Size, dataset and RBP"),
                "selectedParams": ["dataset.name"],
                "selectedMetrics": [Metric.LOG10_NON_EMBEDDING_PARAMS, Metric.CE, *map(rbp_name, HEADLINE_KS)],
                "showAllRuns": True,
            },
            {
                **_chart("IMAGE", _RUNS, "rank-distributions", "Rank distributions"),
                "imageKeys": ["rank_distribution"],
                "step": 0,
                "showRunParams": False,
            },
        ],
    }


def _section(uuid: str, name: str, *, columns: int) -> dict[str, Any]:
    return {"uuid": uuid, "name": name, "display": True, "isReordered": True, "columns": columns, "cardHeight": 420}


def _chart(kind: str, section: str, name: str, title: str) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"rbptrack-{name}",
        "metricSectionId": section,
        "displayName": title,
        "chartName": title,
        "runsCountToCompare": _MANY,
        "deleted": False,
        "isGenerated": False,
    }


def _line(metric: str, title: str, *, scale: str) -> dict[str, Any]:
    return {
        **_chart("LINE", _CURVES, metric, title),
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "lineSmoothness": 0,
        "xAxisKey": "step",
        "xAxisScaleType": "log",
        "scaleType": scale,
        "range": {},
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": False,
    }


def _scatter(metric: str, title: str) -> dict[str, Any]:
    return {
        **_chart("SCATTER", _LAW, f"{metric}-against-size", title),
        "xaxis": {"key": Metric.LOG10_NON_EMBEDDING_PARAMS, "type": "METRIC"},
        "yaxis": {"key": metric, "type": "METRIC"},
    }
