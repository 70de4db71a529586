"""Run analyzers: one after the other for few scored tokens, in parallel processes for many."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

from rbptrack.analysis import Analyzer, RbptrackError, Report, Runs
from rbptrack.analysis.plugin import plugin_summary
from rbptrack.base.errors import first_line
from rbptrack.discovery import call_plugin, run_analyzer
from rbptrack.reporting.tables import ResultsTable, results_tables, table_text

_TOKENS_PER_PROCESS = 10_000_000  # all analyzers together need as long for this many tokens as a process needs to start


@dataclass(frozen=True)
class Analysis:
    """The report of an analyzer, or the reason why it has none.

    Attributes:
        name: the name of the analyzer, or of the command that made the report.
        report: the report; None if the analyzer failed.
        problem: one line that says why the analyzer failed; empty if it did not fail.
        trace: the traceback of an unexpected error; empty if no such error occurred.
        leads: whether the page begins with the headline, first figure and results of this report.
        summary: the first line of the analyzer's docstring, which says what the analyzer computes.

    """

    name: str
    report: Report | None = None
    problem: str = ""
    trace: str = ""
    leads: bool = False
    summary: str = ""

    @property
    def has_results(self) -> bool:
        """Whether the report has results, tables or figures, not only notes."""
        return self.report is not None and bool(self.report.questions or self.report.tables or self.report.figures)

    @property
    def sentence(self) -> str:
        """The sentence that stands for the report on the page.

        It is the headline. If the report has no headline, it is the analyzer's summary, or the first note if the report
        has no results. If the analyzer failed, it is the reason.
        """
        if self.report is None:
            return self.problem
        if self.report.headline or self.has_results:
            return self.report.headline or self.summary
        return self.report.notes[0] if self.report.notes else "the analyzer found no results in these measurements"

    @cached_property
    def results_tables(self) -> list[ResultsTable]:
        """The results as tables of texts; empty if the analyzer failed."""
        return results_tables(self.report) if self.report else []

    @cached_property
    def results_csv(self) -> str:
        """The results as CSV; empty if the analyzer failed."""
        return table_text(self.report.results, "csv") if self.report else ""

    @cached_property
    def tables_csv(self) -> dict[str, str]:
        """The further tables of the report as CSV, by name."""
        tables = self.report.tables if self.report else {}
        return {name: table_text(table, "csv") for name, table in tables.items()}

    def written(self) -> bytes:
        """Return all tables as they are written to files and to the page."""
        csv = [self.results_csv, *self.tables_csv, *self.tables_csv.values()]
        return "".join([*csv, *(table_text(table.frame, "csv") for table in self.results_tables)]).encode()


def leading(analyses: Sequence[Analysis]) -> Analysis | None:
    """Return the analysis with which the page and the terminal begin. None if there is none, or if it failed."""
    return next((analysis for analysis in analyses if analysis.leads and analysis.report is not None), None)


def first_sentences(analyses: Sequence[Analysis], lead: Analysis | None) -> str:
    """Return the text with which the page and the terminal begin: openings of reports, and the sentence of the lead."""
    reports = [analysis.report for analysis in analyses if analysis.report is not None]
    sentence = lead.sentence if lead is not None else ""
    return " ".join(filter(None, [*(report.opening for report in reports), sentence]))


def run_analyzers(runs: Runs, analyzers: Sequence[Analyzer], *, processes: int | None = None) -> list[Analysis]:
    """Run analyzers over measurements.

    If an analyzer fails, its analysis says why, and the other analyzers still run.

    Args:
        runs: the measurements. Each process reads their ranks itself.
        analyzers: the analyzers with their options.
        processes: the largest number of processes that run at the same time. With 1, the analyzers run in this process.
            By default, the number grows with the number of scored tokens, because a process takes time to start.

    Returns:
        One analysis for each analyzer, in the order of `analyzers`.

    """
    if processes is None:
        tokens = runs.frame["num_tokens"].fillna(0).sum()
        processes = min(os.cpu_count() or 1, 1 + int(tokens // _TOKENS_PER_PROCESS))
    workers = min(processes, len(analyzers))
    if workers <= 1:
        with _limit_blas_threads():
            return [_analyze(analyzer, runs) for analyzer in analyzers]
    futures: dict[int, Future[Analysis]] = {}
    with _make_pool(workers) as pool:
        for index in sorted(range(len(analyzers)), key=lambda i: -analyzers[i].cost):  # the slowest first
            futures[index] = _submit(pool, analyzers[index], runs)
    analyses = []
    for index, analyzer in enumerate(analyzers):
        analysis = _await_analysis(analyzer, futures[index])
        if analysis is None:  # a killed process ends its whole pool, so each unfinished analyzer runs in a new pool
            with _make_pool(1) as pool:
                analysis = _await_analysis(analyzer, _submit(pool, analyzer, runs))
        if analysis is None:
            killed = f"{analyzer.name}: its process was killed, perhaps because memory ran out"
            analysis = _failed_analysis(analyzer, killed)
        analyses.append(analysis)
    return analyses


def _make_pool(workers: int) -> ProcessPoolExecutor:
    """Make a pool of processes. They have imported the library, and they inherit no thread or lock of this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rbptrack.figures.charts", "rbptrack.discovery", "scipy.optimize"])
    return ProcessPoolExecutor(workers, mp_context=context)


def _await_analysis(analyzer: Analyzer, future: Future[Analysis]) -> Analysis | None:
    """Wait for the analysis of another process. Returns None if that process was killed."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:  # the analyzer or its report cannot be pickled
        problem = f"{analyzer.name}: the analyzer or its report cannot be sent to another process: {first_line(error)}"
        return _failed_analysis(analyzer, problem)


def _submit(pool: ProcessPoolExecutor, analyzer: Analyzer, runs: Runs) -> Future[Analysis]:
    """Send an analyzer to a process of the pool.

    The analyzer is sent as bytes, and `_analyze_pickled` unpickles it. If the pool unpickled the analyzer, an error in
    the import of a plugin would end the process.
    """
    try:
        return pool.submit(_analyze_pickled, pickle.dumps(analyzer), analyzer.name, runs)
    except Exception as error:  # an option cannot be pickled
        future: Future[Analysis] = Future()
        future.set_exception(error)
        return future


def _analyze_pickled(pickled: bytes, name: str, runs: Runs) -> Analysis:
    """Run a pickled analyzer. If it cannot be unpickled, the analysis says why."""
    try:
        analyzer = pickle.loads(pickled)  # noqa: S301 - this program pickled it
    except BaseException as error:  # a plugin may raise anything
        fault = f"{type(error).__name__}: {first_line(error)}"
        return Analysis(name, problem=f"{name} cannot be imported in another process: {fault}")
    with _limit_blas_threads():
        return _analyze(analyzer, runs)


def _limit_blas_threads() -> AbstractContextManager[object]:
    """Let BLAS use one thread while the returned context is open.

    Products with a single row then take a third of the processor time, and their last digits do not depend on the
    number of processes.
    """
    from threadpoolctl import threadpool_limits  # it sets an environment variable when it is imported

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


def _analyze(analyzer: Analyzer, runs: Runs) -> Analysis:
    """Run an analyzer in this process. If it fails, the analysis says why."""
    try:
        report = run_analyzer(analyzer, runs)
        analysis = Analysis(analyzer.name, report, leads=analyzer.leads, summary=plugin_summary(type(analyzer)))
        # What cannot be written, such as a cell of a table, is a fault of this analyzer and of no other.
        call_plugin(analyzer, analysis.written, bytes)
    except RbptrackError as error:
        return _failed_analysis(analyzer, str(error), error.trace)
    return analysis


def _failed_analysis(analyzer: Analyzer, problem: str, trace: str = "") -> Analysis:
    return Analysis(analyzer.name, problem=" ".join(problem.split()), trace=trace, leads=analyzer.leads)
