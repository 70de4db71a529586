"""The view that `ui` saves, as MLflow's page reads it: the envelope, the charts and the columns. No browser."""

from __future__ import annotations

import base64
import json
import time
import zlib
from typing import Any

from rbptrack.config.schema import FilterConfig
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import law_name
from rbptrack.tracking.view import preset, search_filter, shown, view_key, view_name

ALL = FilterConfig()


def a_run(dataset: str, *, size: str = "1b", tokens: float = 0.0) -> LoggedRun:
    metrics = {"law/log10 S": 9.0, law_name(dataset, "ce"): 0.5, law_name(dataset, "rbp_10"): 0.1}
    if tokens:
        metrics["law/log10 training tokens"] = tokens
    tags = {"rbptrack.family": "pythia", "rbptrack.size": size, "rbptrack.dataset": dataset}
    return LoggedRun("r", "", 0, tags=tags, metrics=metrics)


def decoded(envelope: str) -> dict[str, Any]:
    """Return the state in an envelope, read as MLflow's page reads it."""
    packed = json.loads(envelope)["state"]
    assert packed.startswith("deflate;")
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed.removeprefix("deflate;"))))
    return state


def charts(runs: list[LoggedRun], section: str) -> list[tuple[str, str]]:
    """Return what the charts of a section show: the metrics of both axes."""
    state = decoded(preset(shown(runs, "", ALL)))
    (uuid,) = [s["uuid"] for s in state["compareRunSections"] if s["name"] == section]
    inside = [chart for chart in state["compareRunCharts"] if chart["metricSectionId"] == uuid]
    return [(chart["xaxis"]["dataAccessKey"], chart["yaxis"]["dataAccessKey"]) for chart in inside]


def sections(runs: list[LoggedRun]) -> list[str]:
    return [s["name"] for s in decoded(preset(shown(runs, "", ALL)))["compareRunSections"]]


def test_mlflow_lists_the_view_and_a_later_one_takes_its_place() -> None:
    """MLflow's page skips a value unless it has a name, the time of creation as a number, and a state."""
    view = shown([a_run("wiki")], search_filter(ALL), ALL)
    first = preset(view)
    envelope = json.loads(first)
    assert envelope["name"] == "rbptrack"
    assert abs(envelope["createdAt"] / 1000 - time.time()) < 60
    assert preset(view, first) == first, "nothing changed: nothing is written"
    later = json.loads(preset(shown([a_run("code")], search_filter(ALL), ALL), first))
    assert later["createdAt"] == envelope["createdAt"]
    assert later["state"] != envelope["state"]
    assert json.loads(preset(view, "deflate;of a release before"))["state"] == envelope["state"]


def test_each_filter_has_a_view_of_its_own_whatever_the_runs() -> None:
    some = FilterConfig(family=["nano"], dataset=["wiki", "code"])
    assert view_name(some) == "rbptrack: family=nano, dataset=wiki,code"
    assert len({view_key(view_name(chosen)) for chosen in (ALL, some, FilterConfig(family=["nano"]))}) == 3
    assert shown([a_run("wiki")], "", some).name == shown([], "", some).name


def test_the_table_opens_with_results_sorted_by_size() -> None:
    state = decoded(preset(shown([a_run("wiki")], "", ALL)))
    metrics = ("ce", "rbp_1", "rbp_10", "non_embedding_params")
    assert state["selectedColumns"] == [f"metrics.`{name}`" for name in metrics]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`non_embedding_params`", True)


def test_charts_show_what_was_measured_and_training_tokens_only_of_checkpoints() -> None:
    main = [a_run("wiki", tokens=11.0), a_run("wiki", size="2b", tokens=11.5)]
    assert charts(main, "wiki: law in size") == [
        ("law/log10 S", law_name("wiki", "ce")),
        ("law/log10 S", law_name("wiki", "rbp_10")),
    ]
    assert "wiki: while trained" not in sections(main), "sizes that saw different texts are no checkpoints"
    runs = [*main, a_run("wiki", tokens=10.0), a_run("code", tokens=10.0)]
    assert charts(runs, "wiki: while trained")[0] == ("law/log10 training tokens", law_name("wiki", "ce"))
    assert "code: while trained" not in sections(runs)


def test_a_large_store_fits_into_what_mlflow_keeps() -> None:
    """An experiment's tag holds 20,000 characters."""
    runs = [a_run(f"dataset-{i}", tokens=10.0 + j) for i in range(30) for j in range(2)]
    for run in runs:
        run.metrics |= {f"rbp_{k}{end}": 0.5 for k in range(1, 300) for end in ("", "_se")}
    assert len(preset(shown(runs, search_filter(ALL), ALL))) < 20_000
