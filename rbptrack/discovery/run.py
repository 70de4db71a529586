"""Call plugins, turn their failures into one-line errors, and check what they return."""

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
from rbptrack.base.formatting import short_path
from rbptrack.base.process import Stopped

T = TypeVar("T")
_MAX_FAULT_LENGTH = 300  # characters of a plugin's exception


def guarded(plugin: Plugin, call: Callable[[], object], expects: type[T]) -> T:
    """Call a function of a plugin and return its result. If it fails, raise an error with a message of one line.

    Args:
        plugin: the plugin, for the message.
        call: the function, without arguments.
        expects: the type that the function must return.

    Raises:
        RbptrackError: the call raised an exception (including SystemExit, but not KeyboardInterrupt or Stopped), or it
            returned a type other than `expects`. The error names the plugin, its file and the line in the file. `trace`
            holds the whole traceback. An RbptrackError that the plugin raised keeps its type and its `trace`, and the
            plugin's name is put in front of its text.

    """
    try:
        result = call()
    except (KeyboardInterrupt, Stopped):
        raise
    except RbptrackError as error:
        failure = type(error)(f"{plugin.name}: {error}")
        failure.trace = error.trace
        raise failure from error
    except BaseException as error:
        file = _plugin_file(plugin)
        failure = RbptrackError(f"{plugin.name} failed: {one_line(error)} ({short_path(file)}{line_in(error, file)})")
        failure.trace = "".join(format_exception(error))
        raise failure from error
    if not isinstance(result, expects):
        got = type(result).__name__
        place = short_path(_plugin_file(plugin))
        raise RbptrackError(f"{plugin.name} must return {expects.__name__}, but returned {got} ({place})")
    return result


def one_line(error: BaseException) -> str:
    """Return an exception of a plugin as one printable line. Reading its message may itself raise an exception."""
    try:
        text = first_line(error)
    except Exception:
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text[:_MAX_FAULT_LENGTH]}".encode(errors="backslashreplace").decode()


def line_in(error: BaseException, file: str) -> str:
    """Return the line of a plugin's file at which an exception was raised, as `, line 12`.

    Return an empty text if the traceback does not contain the file.
    """
    if isinstance(error, SyntaxError) and error.filename and _is_in_plugin(error.filename, file):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if _is_in_plugin(frame.filename, file)]
    return f", line {lines[-1]}" if lines else ""


def _is_in_plugin(filename: str, file: str) -> bool:
    """Return whether a file is a plugin's file, or in its folder."""
    return filename == file or Path(file) in Path(filename).parents


def run_analyzer(analyzer: Analyzer, runs: Runs) -> Report:
    """Run an analyzer on a copy of the runs' table, and check the types in its report.

    Raises:
        RbptrackError: the analyzer raised an exception, or its report holds a wrong type.

    """
    copy = runs.copy()

    def analyze() -> Report:
        report = analyzer.analyze(copy)
        if isinstance(report, Report):
            _check(report)
        return report

    return guarded(analyzer, analyze, Report)


def _check(report: Report) -> None:
    """Raise TypeError if a part of a report has a type that readers of reports do not accept."""
    if not isinstance(report.glossary, Mapping):
        raise TypeError("the glossary must be a dict")
    if not isinstance(report.headline, str):
        raise TypeError("the headline must be a text")
    if not isinstance(report.notes, list) or not all(isinstance(note, str) for note in report.notes):
        raise TypeError("the notes must be a list of texts")
    "".join([report.headline, *report.notes]).encode()  # UnicodeEncodeError for a half of a surrogate pair
    for name, table in report.tables.items():
        if not isinstance(name, str) or not isinstance(table, pd.DataFrame):
            raise TypeError(f"the table {name} must be a DataFrame, and its name a text")
    for name, figure in report.figures.items():
        import altair  # the plugin has already imported it

        if not isinstance(name, str) or not isinstance(figure, altair.TopLevelMixin):
            raise TypeError(f"the figure {name} must be an Altair chart, and its name a text")
    results = report.results
    for question in report.questions:
        cases = results.loc[results["question"] == question, report.case_columns(question)]
        for case in cases.itertuples(index=False, name=None):
            hash(case)  # TypeError for a list
        taken = {*report.case_columns(question), *report.beside_columns(question)}.intersection(COLUMNS)
        if taken:
            raise TypeError(f"{question}: {', '.join(taken)} is a column of every report")
    for name in [*report.glossary, *report.questions, *report.results.columns]:
        if not isinstance(name, str) or not isinstance(report.glossary.get(name, ""), str | Term):
            raise TypeError(f"{name!r} in results or glossary: names are texts, their meanings texts or Terms")
        format(1.0, report.term(name).form)


def _plugin_file(plugin: Plugin) -> str:
    """Return the path of the file that defines a plugin's class."""
    module = sys.modules.get(type(plugin).__module__)
    return str(getattr(module, "__file__", None) or inspect.getmodule(type(plugin)))
