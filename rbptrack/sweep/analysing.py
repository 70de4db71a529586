"""Analyse the measurements of a sweep at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rbptrack.analysis import Analyzer
from rbptrack.analysis.plugin import make_plugin_with_ks
from rbptrack.base.errors import RbptrackError
from rbptrack.base.formatting import short_path
from rbptrack.config.schema import Config
from rbptrack.console.output import print_problem, print_text
from rbptrack.console.progress import spinner
from rbptrack.discovery import ANALYZERS, find_plugins
from rbptrack.sweep.outcomes import Failed, Found, Measured, Outcome
from rbptrack.tracking import Store


def analyse(
    store: Store,
    outcomes: Sequence[Outcome],
    analyzers: Sequence[Analyzer],
    *,
    name: str,
    command: str,
    ks: Sequence[int],
    began: float,
) -> int:
    """Run analyzers on a sweep in which all cells have ended. Prints their results, and saves them as a run.

    Args:
        store: the tracking store.
        outcomes: the outcomes of all cells.
        analyzers: the analyzers.
        name: the name of the sweep.
        command: the command line.
        ks: the values of k that were measured.
        began: when the sweep began, in seconds since 1970.

    Returns:
        The number of analyzers that failed, plus the number of measurements with unreadable files.

    """
    from rbptrack import reporting

    run_ids = [outcome.run_id for outcome in outcomes if isinstance(outcome, Measured | Found) and outcome.run_id]
    runs = store.runs(run_ids=run_ids)
    with spinner("analysing"):
        analyses = reporting.run_analyzers(runs, analyzers)
    print_text("")
    reporting.print_summary(analyses)
    page, reading_page, problem = reporting.render_with_texts(runs, analyses, command=command, filters={"sweep": name})
    if problem:
        print_text(problem)
    params = {
        "k": ",".join(map(str, ks)),
        "cells": len(outcomes),
        "cells_measured": sum(isinstance(outcome, Measured) for outcome in outcomes),
        "cells_failed": sum(isinstance(outcome, Failed) for outcome in outcomes),
        "seconds": round(time.time() - began, 1),
    }
    try:
        address = reporting.save_report(
            store, runs, analyses, page, command=command, reading=reading_page, sweep=name, params=params, began=began
        )
        print_text(f"report   {short_path(address)}")
        store.save_view()
    except RbptrackError as error:  # the measurements are in the store, and `report` can repeat the analysis
        print_problem(f"the report is not logged: {error}")
    num_failed = sum(analysis.report is None for analysis in analyses)
    return num_failed + reporting.print_unreadable(runs, analyses)


def make_analyzers(settings: Config, ks: Sequence[int]) -> list[Analyzer]:
    """Make the analyzers that a configuration names. They show the k that the command line chooses."""
    if not settings.analyzers:
        return []
    plugins = find_plugins(ANALYZERS, settings.plugins.path)
    analyzers = [
        make_plugin_with_ks(analyzer_class, ks) for analyzer_class in plugins.load_matching(settings.analyzers)
    ]
    for error in plugins.broken:
        print_problem(f"{error}; the other plugins are used", error.trace)
    return analyzers
