"""An analyzer's own faults, said in two lines: where in which file, and the remedy."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from numbers import Real
from pathlib import Path

import numpy as np

from rbptrack import interrupts
from rbptrack.analysis.contract import Analyzer, Drawing, Report, Runs, Table
from rbptrack.console import short_path
from rbptrack.errors import RbptrackError, nearest, shortened
from rbptrack.ranks import parse_rbp_name


class AnalyzerFault(RbptrackError):
    """An analyzer does not do what the contract asks; its text names the file and the remedy."""


def computed(analyzer: Analyzer, runs: Runs) -> Report:
    """The analyzer's report.

    Raises:
        AnalyzerFault: it raised, or returned something else than a report.
        RbptrackError: what it says of its input.

    """
    try:
        with np.errstate(divide="ignore", invalid="ignore"):  # an RBP_k of 0 is a finding, no warning on the terminal
            report = analyzer.analyze(runs)
    except RbptrackError:
        raise
    except Exception as error:
        interrupts.again()
        if os.environ.get("HYDRA_FULL_ERROR"):
            traceback.print_exception(error)
        raise AnalyzerFault(f"{_place(analyzer, error)}: {_words(error, runs)}") from error
    if wrong := _broken_promise(report):
        raise AnalyzerFault(f"{_place(analyzer)}: {type(analyzer).__name__}.analyze {wrong}")
    return report


def _place(analyzer: Analyzer, error: Exception | None = None) -> str:
    """The analyzer's file, with the line where an error left it; the package's name where there is no file."""
    try:
        file = inspect.getfile(type(analyzer))
    except (TypeError, OSError):
        return type(analyzer).__module__
    lines = (
        [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file] if error else []
    )
    return short_path(str(Path(file))) + (f", line {lines[-1]}" if lines else "")


def _words(error: Exception, runs: Runs) -> str:
    """What went wrong and what to do about it."""
    columns = [str(column) for column in runs.frame.columns]
    name = _missing(error)
    if name and name not in columns:
        if k := parse_rbp_name(name):
            return (
                f"RBP_{k} was not logged for these measurements, so runs.frame has no column {name}\n"
                f"runs.histogram(run_id).rbp({k}) computes it for any k"
            )
        near = nearest(name, columns)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"runs.frame has no column {name}.{meant}\nColumns: {shortened(columns, most=len(columns))}"
    return f"{type(error).__name__}: {error}\nHYDRA_FULL_ERROR=1 shows the whole traceback"


def _missing(error: Exception) -> str:
    """The column that a KeyError of pandas, or an AttributeError of a frame, is about."""
    if isinstance(error, AttributeError):
        found = re.search(r"'DataFrame' object has no attribute '(\w+)'", str(error))
        return found[1] if found else ""
    by_pandas = any("pandas" in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))
    if not isinstance(error, KeyError) or not error.args or not by_pandas:
        return ""
    text = str(error.args[0])
    found = re.search(r"\['([^']+)'", text)  # "['a', 'b'] not in index", "None of [Index(['a'], dtype=...)] are in ..."
    return found[1] if found else text


def _broken_promise(report: object) -> str:
    """What a report lacks to be one, and what to write instead; empty where it is one."""
    if not isinstance(report, Report):
        given = "nothing" if report is None else f"a {type(report).__name__}"
        return f"returned {given}; a Report is expected\nreturn Report(tables={{'name': Table(frame)}})"
    for kind, expected, values in (("tables", Table, report.tables), ("drawings", Drawing, report.drawings)):
        for name, value in values.items():
            if not isinstance(value, expected):
                held = "frame" if expected is Table else "figure"
                return (
                    f"returned a report whose {kind}[{name!r}] is a {type(value).__name__}; a {expected.__name__} is "
                    f"expected\nReport({kind}={{{name!r}: {expected.__name__}({held})}})"
                )
    if report.summary and report.summary not in report.tables:
        return (
            f"returned a report whose summary names no table: {report.summary!r}\n"
            f"Tables: {', '.join(report.tables) or 'none'}; summary='' shows none"
        )
    for name, number in report.metrics.items():
        if not isinstance(number, Real):
            return f"returned a report whose metrics[{name!r}] is a {type(number).__name__}\na number is expected"
    return ""
