"""Read measurements of a tracking store, fit laws to them and analyse them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rbptrack.analysis.family import read_families
from rbptrack.analysis.filters import Filters
from rbptrack.analysis.plugin import make_plugin
from rbptrack.analysis.report import Report
from rbptrack.analysis.runs import Runs
from rbptrack.api.arguments import list_patterns, names_keywords
from rbptrack.base.errors import BadInput
from rbptrack.base.files import write_whole
from rbptrack.console.output import print_problem
from rbptrack.discovery import ANALYZERS, find_plugins, run_analyzer
from rbptrack.figures.charts import themed
from rbptrack.ranks.names import HEADLINE_KS, check_ks
from rbptrack.reporting import render, run_analyzers
from rbptrack.reporting.vega import show_without_network
from rbptrack.stats.laws import laws_by_metric
from rbptrack.tracking import Store


@names_keywords
def runs(
    where: str = "",
    *,
    family: str | Sequence[str] = (),
    size: str | Sequence[str] = (),
    model: str | Sequence[str] = (),
    dataset: str | Sequence[str] = (),
    sweep: str | Sequence[str] = (),
    tracking_uri: str = "",
    experiment: str = "",
) -> StoredRuns:
    """Select measurements from a tracking store.

    The attribute `frame` of the result has one row for each measurement. The method `ranks("nano-6k/stdlib")` of the
    result reads a rank table. Each filter takes one or several patterns, such as `pythia*`. A pattern that begins with
    `!`, such as `!pythia-old`, excludes.

    Args:
        where: a condition on the columns of `frame`, such as `seq_len == 256 and ce < 4`.
        family: patterns of families.
        size: patterns of sizes.
        model: patterns of models; `nano-6k` and `nano/6k` name the same model.
        dataset: patterns of datasets.
        sweep: patterns of sweeps. A sweep includes the measurements that it reused.
        tracking_uri: the address of the tracking store; default: MLFLOW_TRACKING_URI, or else MLflow's own store in
            the working folder.
        experiment: the name of the MLflow experiment; default: MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.

    Raises:
        BadInput: the store cannot be read, or no measurement passes the filters.
        StoreAway: the store does not answer.

    """
    if not isinstance(where, str):
        raise BadInput(f"where must be a text with a condition, such as 'ce < 4'; got {where!r:.60}")
    filters = Filters(
        where,
        list_patterns("family", family),
        list_patterns("size", size),
        list_patterns("model", model),
        list_patterns("dataset", dataset),
        list_patterns("sweep", sweep),
    )
    selected = Store(tracking_uri, experiment).runs(filters)
    return StoredRuns(selected.frame, selected.store)


@names_keywords
def laws(runs: Runs, k: int | Sequence[int] = HEADLINE_KS) -> pd.DataFrame:
    """Fit the law y = A S^-alpha over the sizes S of each family, for y = CE and y = -ln RBP_k.

    Args:
        runs: measurements that `rbptrack.runs` selected.
        k: one or several k of RBP_k.

    Returns:
        One row for each family, dataset and metric. `low` and `high` are the ends of the 95% interval of alpha, and
        `sizes` is the number of sizes. Families with a single size are left out.

    Raises:
        BadInput: `runs` is not a result of `rbptrack.runs`, or a k is not a positive integer.

    """
    _check_runs(runs)
    rows = []
    for family, counts in read_families(runs, check_ks(k), min_sizes=2):
        for metric, law in laws_by_metric(family.s, counts).items():
            low, high = law.alpha.interval()
            exponent = {"alpha": law.alpha.value, "low": low, "high": high}
            rows.append({**family.keys, "metric": metric, **exponent, "A": law.a, "R2": law.r2, "sizes": law.sizes})
    return pd.DataFrame(rows, columns=["family", "dataset", "metric", "alpha", "low", "high", "A", "R2", "sizes"])


@names_keywords
def report(runs: Runs, path: str | Path = "", *, analyzers: str | Sequence[str] = ()) -> dict[str, Report]:
    """Run the analyzers on measurements, and write the page with their results. The reports are not logged.

    Args:
        runs: measurements that `rbptrack.runs` selected.
        path: the file of the page, such as `report.html`; empty for no page.
        analyzers: the analyzers to run, one or several patterns of names; by default all.

    Returns:
        The reports with results, by the name of the analyzer. A report has `results` and `tables` (DataFrames) and
        `figures` (charts).

    Raises:
        BadInput: no analyzer has such a name, or the name of the page does not end in .html.

    """
    _check_runs(runs)
    if path and Path(path).suffix != ".html":
        raise BadInput(f"the name of a page must end in .html; got {str(path)!r:.60}")
    classes = find_plugins(ANALYZERS).load_matching(list_patterns("analyzers", analyzers))
    analyses = run_analyzers(runs, [analyzer() for analyzer in classes], processes=1)
    for analysis in analyses:
        if analysis.problem:
            print_problem(analysis.problem)
    if path:
        write_whole(Path(path), render(runs, analyses))
    return {each.name: with_themed_figures(each.report) for each in analyses if each.report and each.has_results}


def _check_runs(runs: object) -> None:
    if not isinstance(runs, Runs):
        raise BadInput(f"runs must be the result of rbptrack.runs(); got {type(runs).__name__}")


def with_themed_figures(report: Report) -> Report:
    show_without_network()
    report.figures = {name: themed(figure) for name, figure in report.figures.items()}
    return report


class StoredRuns(Runs):
    """Measurements that `runs` read from a tracking store.

    A selection, such as `runs[runs["ce"] < 4]`, has the same methods.
    """

    def analyze(self, analyzer: str, **options: object) -> Report:
        """Run an analyzer and return its report. The report is not logged.

        Args:
            analyzer: the name of the analyzer, as `rbptrack plugins` lists it.
            **options: values for the analyzer's options, such as `k=[1, 10]`.

        Raises:
            BadInput: the analyzer or an option does not exist, or an option has a value that is not allowed.
            RbptrackError: the analyzer cannot use these measurements, or it failed.

        """
        plugin = make_plugin(find_plugins(ANALYZERS).load(str(analyzer)), options)
        return with_themed_figures(run_analyzer(plugin, self))
