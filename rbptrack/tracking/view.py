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
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rbptrack.analysis.display import HEADLINE_KS
from rbptrack.analysis.selection import names_of
from rbptrack.config.patterns import passes
from rbptrack.config.schema import FILTERS, FilterConfig
from rbptrack.ranks import metric_label, rbp_name
from rbptrack.tracking.params import param_names
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import FILTERED, LAW_METRICS, Kind, Metric, Tag, law_name

TAG = "mlflow.sharedViewState."
OLDEST, NEWEST = (3, 15), (3, 17)  # versions of MLflow that are known to open the view
_MANY = 10_000
_CURVES, _RUNS = "rbptrack-curves", "rbptrack-runs"
_NO_ANALYSES = f"tags.`{Tag.KIND}` != '{Kind.ANALYSIS}'"  # their hundreds of metrics would be columns of the page
PAGE = 100  # runs that MLflow's page loads at a time
_MOST_SECTIONS = 8  # datasets with a section of their own


def link(experiment: str, view: str, wanted: str) -> str:
    """Return the address, below a server's, of the measurements' charts: the preset view, or the plain page's charts.

    Args:
        experiment: MLflow's id.
        view: the key of the preset view; empty for the plain page.
        wanted: which runs the plain page shows, in MLflow's search syntax.

    """
    page = f"#/experiments/{experiment}/runs?compareRunsMode=CHART&workflowType=machine_learning"
    if view:  # the view brings its own filter; one in the address would make MLflow ignore the view
        return f"{page}&viewStateShareKey={view}"
    return f"{page}&searchFilter={quote(wanted, safe='')}&orderByKey=attributes.start_time&orderByAsc=false"


def knows_view(version: str) -> bool:
    """Return whether a version of MLflow, such as `3.17.2`, opens the view; tests try its oldest and newest."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST


def search_filter(chosen: FilterConfig) -> str:
    """Return the measurements that a filter chooses, with sweeps and reports where it chooses all, in MLflow's search
    syntax; empty where MLflow cannot express it: several patterns for a key, an exclusion, a quote.
    """
    parts = [f"tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'"]
    for key in FILTERS:
        patterns: list[str] = getattr(chosen, key)
        if len(patterns) > 1 or any("'" in pattern or pattern.startswith("!") for pattern in patterns):
            return ""
        if key == "model" and any("/" in pattern for pattern in patterns):
            return ""
        for pattern in patterns:
            like = pattern.replace("*", "%").replace("?", "_")
            parts.append(f"tags.`{Tag.PREFIX}{key}` {'=' if like == pattern else 'LIKE'} '{like}'")
    return " and ".join(parts) if parts[1:] else _NO_ANALYSES


def chosen_runs(runs: Iterable[LoggedRun], chosen: FilterConfig) -> list[LoggedRun]:
    """Return the runs of an experiment that MLflow's page shows for `search_filter`."""
    asked = {key: getattr(chosen, key) for key in FILTERS if getattr(chosen, key)}
    kinds = (Kind.MEASUREMENT,) if asked else (Kind.MEASUREMENT, Kind.SWEEP, Kind.REPORT, Kind.TRAINING)
    return [
        run
        for run in runs
        if run.tags.get(Tag.KIND) in kinds
        and all(passes(names_of(_tags(run), key), patterns) for key, patterns in asked.items())
    ]


def _tags(run: LoggedRun) -> dict[str, str]:
    """Return the run's tags that filters are about, by the filter's key."""
    return {key: run.tags.get(f"{Tag.PREFIX}{key}", "") for key in FILTERS}


def spread(runs: Sequence[LoggedRun], most: int) -> list[LoggedRun]:
    """Choose so many of the runs, evenly over families, sizes and datasets, newest first."""
    turns = list[tuple[int, LoggedRun]]()
    taken: Counter[tuple[str, ...]] = Counter()
    for run in runs:
        kind = tuple(run.tags.get(tag, "") for tag in FILTERED.values())
        turns.append((taken[kind], run))
        taken[kind] += 1
    return [run for _, run in sorted(turns, key=lambda turn: turn[0])[:most]]


def by_id(runs: Sequence[LoggedRun]) -> str:
    """Select exactly these runs, in MLflow's search syntax."""
    return f"attributes.run_id IN ({', '.join(repr(run.run_id) for run in runs)})"


@dataclass(frozen=True)
class Shown:
    """What the view shows."""

    wanted: str  # the runs, of `search_filter`
    datasets: Sequence[str] = ()  # those of the runs; each has a section of its own, in which families differ in colour
    metrics: Sequence[str] = ()  # of the runs; those without a chart here get none of MLflow's own either


def preset(shown: Shown) -> tuple[str, str]:
    """Return the key of the view, made from its content so that a new version has a new one, and the tag's value."""
    text = json.dumps(_state(shown), sort_keys=True, separators=(",", ":"))
    key = hashlib.sha256(text.encode()).hexdigest()
    return key, "deflate;" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _state(shown: Shown) -> dict[str, Any]:
    datasets = list(shown.datasets)[:_MOST_SECTIONS]
    laws = [
        _scatter(f"{_uuid(dataset)}", law_name(dataset, metric), f"{metric_label(metric)} on {dataset}")
        for dataset in datasets
        for metric in LAW_METRICS
    ]
    return {
        "searchFilter": shown.wanted,
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": [
            f"tags.`{Tag.DATASET}`",
            f"params.`{param_names()['non_embedding_params']}`",
            *(f"metrics.`{name}`" for name in (Metric.CE, rbp_name(1), rbp_name(10), Metric.NUM_TOKENS)),
        ],
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunSections": [
            *(_section(_uuid(d), f"{d}: law in size", columns=2) for d in datasets),
            _section(_CURVES, "Ranks: RBP_k and -ln RBP_k against k", columns=2),
            _section(_RUNS, "All runs", columns=1),
        ],
        "compareRunCharts": [
            *laws,
            _line(Metric.RBP_CURVE, "RBP_k against k", scale="linear"),
            _line(Metric.NEG_LOG_RBP_CURVE, "-ln RBP_k against k", scale="log"),
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
            *map(_without_chart, sorted({*shown.metrics} - {Metric.RBP_CURVE, Metric.NEG_LOG_RBP_CURVE})),
        ],
    }


def _without_chart(metric: str) -> dict[str, Any]:
    """Return a chart that MLflow takes for one of its own that the user has removed; else it adds one below ours."""
    chart = {"type": "BAR", "uuid": f"rbptrack-none-{metric}", "metricSectionId": _RUNS, "metricKey": metric}
    return chart | {"runsCountToCompare": 10, "deleted": True, "isGenerated": True}


def _uuid(dataset: str) -> str:
    return f"rbptrack-law-{dataset}"


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


def _scatter(section: str, metric: str, title: str) -> dict[str, Any]:
    return {
        **_chart("SCATTER", section, f"{metric}-against-size", title),
        "xaxis": {"key": Metric.LAW_SIZE, "type": "METRIC"},
        "yaxis": {"key": metric, "type": "METRIC"},
    }
