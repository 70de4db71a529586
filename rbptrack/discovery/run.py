"""Call plugins, turn their failures into one-line errors, and check what they return."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb, format_exception
from typing import TypeVar

import pandas as pd

from rbptrack.analysis.plugin import Analyzer, Plugin
from rbptrack.analysis.report import Report, check_text
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.formatting import short_path
from rbptrack.base.process import Stopped
from rbptrack.base.secrets import without_password

T = TypeVar("T")
_MAX_FAULT_LENGTH = 300  # characters of a plugin's exception


def call_plugin(plugin: Plugin, call: Callable[[], object], expects: type[T]) -> T:
    """Call a function of a plugin, and return its result. If the function fails, raise an error of one line.

    Args:
        plugin: the plugin, for the message.
        call: the function. It is called without arguments.
        expects: the type that the function must return.

    Raises:
        RbptrackError: the function raised an exception, or it did not return the type `expects`. If the exception was
            an RbptrackError, the new error has the same type and `trace`, and its text begins with the plugin's name.
            Otherwise the error names the plugin, its file and the line in the file, and `trace` holds the traceback.
            SystemExit counts as an exception. KeyboardInterrupt and Stopped are not caught.

    """
    try:
        result = call()
    except (KeyboardInterrupt, Stopped):
        raise
    except RbptrackError as error:
        failure = type(error)(without_password(f"{plugin.name}: {error}"))
        failure.trace = error.trace
        raise failure from error
    except BaseException as error:
        file = _plugin_file(plugin)
        failure = RbptrackError(
            f"{plugin.name} failed: {describe_error(error)} ({short_path(file)}{line_text(error, file)})"
        )
        failure.trace = "".join(format_exception(error))
        raise failure from error
    if not isinstance(result, expects):
        returned = type(result).__name__
        file = short_path(_plugin_file(plugin))
        raise RbptrackError(f"{plugin.name} must return {expects.__name__}, but returned {returned} ({file})")
    return result


def describe_error(error: BaseException) -> str:
    """Return the type and the first line of a plugin's exception as one printable line without secrets."""
    try:
        text = first_line(error)
    except Exception:  # the `__str__` of a plugin's exception may fail
        text = "its message cannot be read"
    text = without_password(f"{type(error).__name__}: {text}")
    return text[:_MAX_FAULT_LENGTH].encode(errors="backslashreplace").decode()


def line_text(error: BaseException, file: str) -> str:
    """Return the line of a plugin's file at which an exception was raised, as `, line 12`.

    The text is empty if the traceback does not contain the file.
    """
    if isinstance(error, SyntaxError) and error.filename and _is_in_plugin(error.filename, file):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if _is_in_plugin(frame.filename, file)]
    return f", line {lines[-1]}" if lines else ""


def _is_in_plugin(file: str, plugin_path: str) -> bool:
    """Return whether a file is a plugin's file, or is in a plugin's folder."""
    return file == plugin_path or Path(plugin_path) in Path(file).parents


def run_analyzer(analyzer: Analyzer, runs: Runs) -> Report:
    """Run an analyzer on a copy of the runs' table, and check the types in its report.

    Raises RbptrackError if the analyzer raises an exception, or if its report holds a wrong type.
    """
    copy = runs.copy()

    def analyze() -> Report:
        report = analyzer.analyze(copy)
        if isinstance(report, Report):
            _check_types(report)
            report.unreadable = runs.unreadable
        return report

    return call_plugin(analyzer, analyze, Report)


def _check_types(report: Report) -> None:
    """Raise an exception if a part of a report has a type that the page, the terminal or the store does not accept.

    `Report.add` has checked the results.
    """
    kinds = {"glossary": Mapping, "tables": Mapping, "figures": Mapping, "leading_columns": Sequence, "notes": Sequence}
    for name, kind in kinds.items():
        if not isinstance(getattr(report, name), kind) or isinstance(getattr(report, name), str):
            raise TypeError(f"{name} must be a {'dict' if kind is Mapping else 'list'}")
    names = [*report.glossary, *report.questions, *report.results.columns, *report.tables, *report.figures]
    for text in [report.headline, report.opening, *report.notes, *report.leading_columns, *names]:
        check_text("a headline, a note or a name", text)
    for name in names:
        term = report.term(name)
        check_text(f"the meaning of {name}", term.meaning)
        check_text(f"the title of {name}", term.title)
        format(1.0, term.form)  # raises an exception if the format specification is wrong
    for name, table in report.tables.items():
        if not isinstance(table, pd.DataFrame):
            raise TypeError(f"the table {name} must be a DataFrame")
        if not table.columns.is_unique:
            raise TypeError(f"the table {name} has two columns with one name")
    for name, figure in report.figures.items():
        import altair  # fast, because a plugin that draws charts has already imported it

        if not isinstance(figure, altair.TopLevelMixin):
            raise TypeError(f"the figure {name} must be an Altair chart")


def _plugin_file(plugin: Plugin) -> str:
    """Return the path of the file that defines a plugin's class."""
    module = sys.modules.get(type(plugin).__module__)
    return str(getattr(module, "__file__", None) or inspect.getmodule(type(plugin)))
