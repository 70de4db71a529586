"""Reports in the order of their analyzers: the first ones are made here, the last ones by other processes meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rbptrack.analysis.contract import Analyzer, Report
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.console.progress import AnalyzerProgress
from rbptrack.reporting.broken import computed
from rbptrack.reporting.files import Draw, ReportFiles
from rbptrack.reporting.workers import Analysed, Workers, result_of


@dataclass(frozen=True)
class Made:
    """A report, with its tables written.

    Attributes:
        analyzer: whose it is.
        report: what it found.
        folder: where its files are.
        inline_svgs: gives every figure for the inside of a page, by name; draws what is not drawn yet.
        ready: whether that would return at once.

    """

    analyzer: Analyzer
    report: Report
    folder: Path
    inline_svgs: Callable[[], dict[str, str]]
    ready: Callable[[], bool]


@dataclass(frozen=True)
class Making:
    """A report to be made.

    Attributes:
        analyzer: whose it is.
        make: makes it, or waits for it; raises what `computed` raises.
        here: whether this process computes it.

    """

    analyzer: Analyzer
    make: Callable[[], Made]
    here: bool


def make(analyzer: Analyzer, runs: Runs, folder: Path, *, prefix: str = "f", draw: Draw | None = None) -> Made:
    """Compute an analyzer in this process; its figures may be drawn elsewhere."""
    with AnalyzerProgress(analyzer.name, len(runs)) as progress:
        runs.watch(progress)
        try:
            report = computed(analyzer, runs)
        finally:
            runs.watch(None)
    files = ReportFiles(report, folder, prefix=prefix, draw=draw)
    return Made(analyzer, report, folder, files.inline_svgs, files.ready)


def making(analyzers: Sequence[Analyzer], runs: Runs, folder: Path, workers: Workers) -> Iterator[Making]:
    """Each analyzer, in order, with what makes its report in folder/<its name>.

    Before each that is computed here, free workers are given those from the end that nobody has begun.
    """
    left, elsewhere = deque(enumerate(analyzers)), deque[Making]()

    def here(number: int, analyzer: Analyzer) -> Made:
        return make(analyzer, runs, folder / analyzer.name, prefix=f"f{number}", draw=workers.draw)

    def there(number: int, analyzer: Analyzer, sent: Future[Analysed | RbptrackError]) -> Made:
        found = result_of(sent)
        if found is None:
            return here(number, analyzer)
        return Made(analyzer, found.report, folder / analyzer.name, lambda: found.svgs, lambda: True)

    while left:
        while len(left) > 1 and workers.are_free(runs):
            last = left[-1]
            sent = workers.compute(last[1], runs, folder / last[1].name, f"f{last[0]}")
            if sent is None:
                break
            elsewhere.appendleft(Making(last[1], partial(there, *left.pop(), sent), here=False))
        first = left.popleft()
        yield Making(first[1], partial(here, *first), here=True)
    yield from elsewhere
