"""Call plugins so that none can harm the others, and check what they return."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from traceback import extract_tb, format_exception
from typing import TypeVar

import pandas as pd

from rbptrack.analysis.plugin import Analyzer, Plugin
from rbptrack.analysis.report import COLUMNS, Report, Term
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.process import Stopped
from rbptrack.base.words import short_path

T = TypeVar("T")
_MAX_FAULT_LENGTH = 300  # characters of a plugin's exception


def guarded(plugin: Plugin, call: Callable[[], object], expects: type[T]) -> T:
    """Call something of a plugin. If it fails, raise an error of one line.

    Raises:
        RbptrackError: the call raised something, also SystemExit, but neither KeyboardInterrupt nor Stopped; or it
            returned another type. The line names the plugin, its file and the line in it, and `trace` is the whole
            traceback. An RbptrackError of the plugin's own keeps its text and type.

    """
    try:
        result = call()
    except (KeyboardInterrupt, Stopped):
        raise
    except RbptrackError as error:
        raise type(error)(f"{plugin.name}: {error}") from error
    except BaseException as error:
        file = _file_of(plugin)
        failure = RbptrackError(f"{plugin.name} failed: {one_line(error)} ({short_path(file)}{line_in(error, file)})")
        failure.trace = "".join(format_exception(error))
        raise failure from error
    if not isinstance(result, expects):
        got = type(result).__name__
        place = short_path(_file_of(plugin))
        raise RbptrackError(f"{plugin.name} must return {expects.__name__}, but returned {got} ({place})")
    return result


def one_line(error: BaseException) -> str:
    """An exception of a plugin in a line that can be printed; its own text may raise, too."""
    try:
        text = first_line(error)
    except Exception:
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text[:_MAX_FAULT_LENGTH]}".encode(errors="backslashreplace").decode()


def line_in(error: BaseException, file: str) -> str:
    """The last line of a plugin's file that an exception went through, as `, line 12`; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename and _is_of(error.filename, file):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if _is_of(frame.filename, file)]
    return f", line {lines[-1]}" if lines else ""


def _is_of(filename: str, file: str) -> bool:
    """Whether a file is a plugin's file, or in its folder."""
    return filename == file or Path(file) in Path(filename).parents


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
