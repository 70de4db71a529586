"""Call plugins so that none can harm the others, and check what they return."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

import pandas as pd

from rbptrack.analysis.plugin import Analyzer, Plugin
from rbptrack.analysis.report import COLUMNS, Report, Term
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.process import Stopped

T = TypeVar("T")
_MAX_FAULT_LENGTH = 300  # characters of a plugin's exception


def guarded(plugin: Plugin, call: Callable[[], object], expects: type[T]) -> T:
    """Call something of a plugin; whatever it does, an error of one line comes out.

    Raises:
        RbptrackError: the call raised anything (SystemExit, too) but KeyboardInterrupt and Stopped, or returned
            another type. The line names the plugin and its file; an RbptrackError of the plugin's own keeps its text.

    """
    try:
        result = call()
    except (KeyboardInterrupt, Stopped):
        raise
    except RbptrackError as error:
        raise type(error)(f"{plugin.name}: {error}") from error
    except BaseException as error:
        raise RbptrackError(f"{plugin.name} failed: {one_line(error)} ({_file_of(plugin)})") from error
    if not isinstance(result, expects):
        got = type(result).__name__
        raise RbptrackError(f"{plugin.name} returned {got} in place of {expects.__name__} ({_file_of(plugin)})")
    return result


def one_line(error: BaseException) -> str:
    """An exception of a plugin in a line that can be printed; its own text may raise, too."""
    try:
        text = first_line(error)
    except Exception:
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text[:_MAX_FAULT_LENGTH]}".encode(errors="backslashreplace").decode()


def run_analyzer(analyzer: Analyzer, runs: Runs) -> Report:
    """The report of an analyzer on a copy of the runs' table, complete and of the right types.

    Raises:
        RbptrackError: as `guarded` raises it.

    """
    own = runs.copy()

    def analyze() -> Report:
        report = analyzer.analyze(own)
        if isinstance(report, Report):
            _check(report)
        return report

    return guarded(analyzer, analyze, Report)


def _check(report: Report) -> None:
    """Raise TypeError where a part of a report has another type than readers of it take."""
    if not isinstance(report.glossary, Mapping):
        raise TypeError("the glossary is no dict")
    if not isinstance(report.headline, str):
        raise TypeError("the headline is no text")
    if not isinstance(report.notes, list) or not all(isinstance(note, str) for note in report.notes):
        raise TypeError("the notes are no list of texts")
    "".join([report.headline, *report.notes]).encode()  # UnicodeEncodeError for half characters
    for name, table in report.tables.items():
        if not isinstance(name, str) or not isinstance(table, pd.DataFrame):
            raise TypeError(f"the table {name} is no DataFrame with a text for a name")
    for name, figure in report.figures.items():
        import altair  # by now the plugin has waited for it

        if not isinstance(name, str) or not isinstance(figure, altair.TopLevelMixin):
            raise TypeError(f"the figure {name} is no Altair chart")
    for question in report.questions:
        for case in report.frame(question)[report.case_columns(question)].itertuples(index=False, name=None):
            hash(case)  # TypeError for a list
        taken = {*report.case_columns(question), *report.beside_columns(question)}.intersection(COLUMNS)
        if taken:
            raise TypeError(f"{question}: {', '.join(taken)} is a column of every report")
    for name in [*report.glossary, *report.questions, *report.results.columns]:
        if not isinstance(name, str) or not isinstance(report.glossary.get(name, ""), str | Term):
            raise TypeError(f"{name!r} in results or glossary: names are texts, their meanings texts or Terms")
        format(1.0, report.term(name).form)


def _file_of(plugin: Plugin) -> str:
    """The file of a plugin's class."""
    module = sys.modules.get(type(plugin).__module__)
    return str(getattr(module, "__file__", None) or inspect.getmodule(type(plugin)))
