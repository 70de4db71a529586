"""Runs analyzers: one after the other for small inputs, in parallel processes for large ones."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from rbptrack.analysis import Analyzer, RbptrackError, Report, Runs
from rbptrack.analysis.plugin import summary_of
from rbptrack.base.errors import first_line
from rbptrack.discovery import run_analyzer

_WORTH_A_PROCESS = 10_000_000  # tokens: all analyzers take about as long for them as a process to start


@dataclass(frozen=True)
class Analysis:
    """The report of an analyzer, or the reason why it has none.

    Attributes:
        name: the analyzer's, or of what else made the report.
        report: None where it failed.
        problem: one line where it failed.
        trace: the traceback of an unexpected error.
        leads: whether its headline, first figure and results open the page.
        seconds: of wall time.
        question: what it answers, a line.

    """

    name: str
    report: Report | None = None
    problem: str = ""
    trace: str = ""
    leads: bool = False
    seconds: float = 0.0
    question: str = ""

    @property
    def has_results(self) -> bool:
        """Whether there is anything to show but notes."""
        return self.report is not None and bool(self.report.questions or self.report.tables or self.report.figures)

    @property
    def sentence(self) -> str:
        """The headline of the report, or the reason why the analyzer gave no report."""
        if self.report is None:
            return self.problem
        if self.report.headline or self.has_results:
            return self.report.headline or self.question
        return self.report.notes[0] if self.report.notes else "nothing to say about these measurements"


def analyse(runs: Runs, analyzers: Sequence[Analyzer], *, processes: int | None = None) -> list[Analysis]:
    """Run analyzers over measurements; if one fails, its analysis says why, and the others go on.

    Args:
        runs: the measurements, which each process reads itself.
        analyzers: with their options; analyses come in their order.
        processes: how many run side by side; one is this process. By default more than one only where the tokens are
            so many that the start of processes pays.

    """
    if processes is None:
        tokens = runs.frame["num_tokens"].fillna(0).sum()
        processes = min(os.cpu_count() or 1, 1 + int(tokens // _WORTH_A_PROCESS))
    workers = min(processes, len(analyzers))
    if workers <= 1:
        return [_run(analyzer, runs) for analyzer in analyzers]
    futures: dict[int, Future[Analysis]] = {}
    with _pool(workers) as pool:
        for index in sorted(range(len(analyzers)), key=lambda i: -analyzers[i].cost):  # the longest first
            futures[index] = _submit(pool, analyzers[index], runs)
    analyses = []
    for index, analyzer in enumerate(analyzers):
        analysis = _analysis_of(analyzer, futures[index])
        if analysis is None:  # one process was killed, and the pool with it: each of the others has its turn alone
            with _pool(1) as pool:
                analysis = _analysis_of(analyzer, _submit(pool, analyzer, runs))
        killed = f"{analyzer.name}: its process was killed; was there too little memory?"
        analyses.append(analysis or _failed(analyzer, killed))
    return analyses


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes that begin with the library loaded, and with no thread or lock of this one."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more wait for each other, and lognormal takes thrice the time
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rbptrack.figures.charts", "rbptrack.discovery", "scipy.optimize"])
    return ProcessPoolExecutor(workers, mp_context=context)


def _analysis_of(analyzer: Analyzer, future: Future[Analysis]) -> Analysis | None:
    """What a process sent; None where it was killed."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:  # what cannot be sent to another process, or back
        return _failed(analyzer, f"{analyzer.name}: its report cannot be passed on: {first_line(error)}")


def _submit(pool: ProcessPoolExecutor, analyzer: Analyzer, runs: Runs) -> Future[Analysis]:
    """Hand an analyzer over as bytes: where the pool itself unpickles it, an error of its import ends the process."""
    try:
        return pool.submit(_run_pickled, pickle.dumps(analyzer), analyzer.name, runs)
    except Exception as error:  # an option that cannot be pickled
        failed: Future[Analysis] = Future()
        failed.set_exception(error)
        return failed


def _run_pickled(pickled: bytes, name: str, runs: Runs) -> Analysis:
    try:
        analyzer = pickle.loads(pickled)  # noqa: S301 - this program's own
    except BaseException as error:  # a plugin may raise anything
        fault = f"{type(error).__name__}: {first_line(error)}"
        return Analysis(name, problem=f"{name} cannot be imported in another process: {fault}")
    return _run(analyzer, runs)


def _run(analyzer: Analyzer, runs: Runs) -> Analysis:
    began = time.perf_counter()
    try:
        report = run_analyzer(analyzer, runs)
    except RbptrackError as error:
        return _failed(analyzer, str(error), error.trace)
    seconds = time.perf_counter() - began
    return Analysis(analyzer.name, report, leads=analyzer.leads, seconds=seconds, question=summary_of(type(analyzer)))


def _failed(analyzer: Analyzer, problem: str, trace: str = "") -> Analysis:
    return Analysis(analyzer.name, problem=" ".join(problem.split()), trace=trace, leads=analyzer.leads)
