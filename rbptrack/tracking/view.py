"""The view that `rbptrack ui` opens: charts that matter for rank scaling, as a state of MLflow's own run page.

MLflow stores a saved view as a tag of the experiment, lists it in the menu Views and opens it by the tag's key. The
format is not documented: it is what MLflow 3.17 writes when a user saves a view. MLflow 3.15 to 3.17 open it; 3.10 to
3.14 crash on it. So the key goes only into the address of a version that is known to work, and every other version
opens its plain page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rbptrack.analysis.selection import names_of
from rbptrack.config.patterns import passes
from rbptrack.config.schema import FILTERS, FilterConfig
from rbptrack.ranks import HEADLINE_KS, rbp_name
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import FILTERED, LAW_METRICS, Kind, Metric, Tag, law_label, law_name
from rbptrack.tracking.uri import TRAINING_MODE

TAG = "mlflow.sharedViewState."
NAME = "rbptrack"
OLDEST = (3, 15)
NEWEST = (3, 17)  # versions of MLflow that are known to open the view
_MANY = 10_000
_CURVES = "rbptrack-curves"
_RUNS = "rbptrack-runs"
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
    page = f"#/experiments/{experiment}/runs?compareRunsMode=CHART&{TRAINING_MODE}"
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
    patterns_by_key = {key: getattr(chosen, key) for key in FILTERS if getattr(chosen, key)}
    kinds = (Kind.MEASUREMENT,) if patterns_by_key else (Kind.MEASUREMENT, Kind.SWEEP, Kind.REPORT, Kind.TRAINING)
    return [
        run
        for run in runs
        if run.tags.get(Tag.KIND) in kinds
        and all(passes(names_of(_tags(run), key), patterns) for key, patterns in patterns_by_key.items())
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
    """What the view shows.

    Attributes:
        wanted: the runs, of `search_filter`.
        name: of the view in MLflow's menu; `view_name`.
        datasets: those of the runs; each has a section of its own, in which families differ in colour.
        checkpoints: datasets with several checkpoints of one model, which also get charts against training tokens.
        metrics: of the runs; those without a chart here get none of MLflow's own either.

    """

    wanted: str
    name: str = NAME
    datasets: Sequence[str] = ()
    checkpoints: Collection[str] = ()
    metrics: Collection[str] = ()


def shown(runs: Sequence[LoggedRun], wanted: str, chosen: FilterConfig) -> Shown:
    """Describe the view of some runs."""
    datasets = {run.tags[Tag.DATASET] for run in runs if Tag.DATASET in run.tags}
    tokens_by_model: dict[tuple[str, ...], set[float]] = {}
    for run in runs:
        model = tuple(run.tags.get(tag, "") for tag in FILTERED.values())
        if Metric.LAW_TOKENS in run.metrics:
            tokens_by_model.setdefault(model, set()).add(run.metrics[Metric.LAW_TOKENS])
    trained = {model[-1] for model, tokens in tokens_by_model.items() if len(tokens) > 1}
    metrics = {name for run in runs for name in run.metrics}
    return Shown(wanted, view_name(chosen), sorted(datasets), trained, metrics)


def view_name(chosen: FilterConfig) -> str:
    """Return the view's name in MLflow's menu: `rbptrack`, `rbptrack: family=nano`."""
    filters = [f"{key}={','.join(getattr(chosen, key))}" for key in FILTERS if getattr(chosen, key)]
    return f"{NAME}: {', '.join(filters)}" if filters else NAME


def view_key(name: str) -> str:
    """Return the key of a view, under which a later view of this name takes its place."""
    return f"{NAME}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def preset(view: Shown, before: str = "") -> str:
    """Return a view as MLflow keeps it: the value of a tag of the experiment.

    `before` is the tag's value until now; a view that shows the same is left as it is.
    """
    text = json.dumps(_state(view), sort_keys=True, separators=(",", ":"))
    state = "deflate;" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    now = int(time.time() * 1000)
    kept = json.loads(before) if before.startswith("{") else {"createdAt": now}
    if kept.get("state") == state:
        return before
    return json.dumps({"name": view.name, "createdAt": kept["createdAt"], "updatedAt": now, "state": state})


def _state(view: Shown) -> dict[str, Any]:
    datasets = view.datasets[:_MOST_SECTIONS]
    trained = [dataset for dataset in datasets if dataset in view.checkpoints]
    shares = [Metric.CE, rbp_name(1), rbp_name(10), Metric.NON_EMBEDDING_PARAMS]
    curves = (Metric.RBP_CURVE, Metric.NEG_LOG_RBP_CURVE)
    return {
        "searchFilter": view.wanted,
        "orderByKey": f"metrics.`{Metric.NON_EMBEDDING_PARAMS}`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": [f"metrics.`{name}`" for name in shares],
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunSections": [
            *(_section(_size_section(dataset), f"{dataset}: law in size", columns=2) for dataset in datasets),
            *(_section(_training_section(dataset), f"{dataset}: while trained", columns=2) for dataset in trained),
            _section(_CURVES, "Ranks: RBP_k and -ln RBP_k against k (Step = k)", columns=2),
            _section(_RUNS, "All runs", columns=1),
        ],
        "compareRunCharts": [
            *(c for d in datasets for c in _laws(view, d, _size_section(d), Metric.LAW_SIZE)),
            *(c for d in trained for c in _laws(view, d, _training_section(d), Metric.LAW_TOKENS)),
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
            *map(_without_chart, sorted({*view.metrics} - {*curves})),
        ],
    }


def _laws(view: Shown, dataset: str, section: str, x: str) -> Iterator[dict[str, Any]]:
    """Yield a chart for each metric that the runs on a dataset have."""
    for metric in LAW_METRICS:
        name = law_name(dataset, metric)
        if name in view.metrics:
            yield _scatter(section, x, name, f"{law_label(metric)} on {dataset}")


def _without_chart(metric: str) -> dict[str, Any]:
    """Return a chart that MLflow takes for one of its own that the user has removed; else it adds one below ours."""
    chart = {"type": "BAR", "uuid": f"rbptrack-none-{metric}", "metricSectionId": _RUNS, "metricKey": metric}
    return chart | {"runsCountToCompare": 10, "deleted": True, "isGenerated": True}


def _size_section(dataset: str) -> str:
    return f"rbptrack-law-{dataset}"


def _training_section(dataset: str) -> str:
    return f"rbptrack-training-{dataset}"


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


def _scatter(section: str, x: str, y: str, label: str) -> dict[str, Any]:
    """Return a chart of one metric against another; MLflow makes its title of the axes' labels (`key`)."""
    return {
        **_chart("SCATTER", section, f"{y}-against-{x}", label),
        "xaxis": {"key": x.removeprefix(Metric.LAW), "type": "METRIC", "dataAccessKey": x},
        "yaxis": {"key": label, "type": "METRIC", "dataAccessKey": y},
    }
