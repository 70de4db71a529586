"""An analyzer's own faults, said in two lines: where in which file, and the remedy."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path

import numpy as np
import pandas as pd

from rbptrack.analysis.contract import Analyzer, Drawing, Report, Table
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.analysis.resampling import without_few
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError, nearest, shortened
from rbptrack.base.process import raise_if_stopped
from rbptrack.base.secrets import holds_known, redact
from rbptrack.base.words import short_path
from rbptrack.ranks import parse_rbp_name
from rbptrack.reporting.telling import tell


class AnalyzerFault(RbptrackError):
    """An analyzer does not do what the contract asks; its text names the file and the remedy."""


def computed(analyzer: Analyzer, runs: Runs) -> Report:
    """Return the analyzer's report, with the sentences and leads of its findings. Each class is asked once.

    Raises:
        AnalyzerFault: it or its findings raised, or it returned something else than a report.
        RbptrackError: what it says of its input.

    """
    with _faults(analyzer, runs), np.errstate(divide="ignore", invalid="ignore"):  # an RBP_k of 0 is a finding
        report = analyzer.analyze(runs.own_copy())
    if wrong := _broken_promise(report):
        raise AnalyzerFault(f"{_place(analyzer)}: {type(analyzer).__name__}.analyze {wrong}")
    without_few(report, runs.frame)
    with _faults(analyzer, runs):
        tell(report)
    if wrong := _wrong_names(report) or _wrong_leads(report):
        raise AnalyzerFault(f"{_place(analyzer)}: {type(analyzer).__name__}.analyze {wrong}")
    _hide_secrets(report)
    return report


@contextmanager
def _faults(analyzer: Analyzer, runs: Runs) -> Iterator[None]:
    """Turn what a plugin's code raises into an AnalyzerFault; errors in words, and Ctrl-C, pass."""
    try:
        yield
    except (RbptrackError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit(0), too: else a report would end with success and no file
        raise_if_stopped()
        if os.environ.get("HYDRA_FULL_ERROR"):
            traceback.print_exception(error)
        raise AnalyzerFault(f"{_place(analyzer, error)}: {_words(error, runs)}") from error


def _place(analyzer: Analyzer, error: BaseException | None = None) -> str:
    """Return the analyzer's file, with the line where an error left it; the package's name without a file."""
    try:
        file = inspect.getfile(type(analyzer))
    except (TypeError, OSError):
        return type(analyzer).__module__
    lines = (
        [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file] if error else []
    )
    return short_path(str(Path(file))) + (f", line {lines[-1]}" if lines else "")


def _words(error: BaseException, runs: Runs) -> str:
    """Return the error in words and its remedy."""
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


def _missing(error: BaseException) -> str:
    """Return the column that a KeyError of pandas, or an AttributeError of a frame, is about."""
    if isinstance(error, AttributeError):
        column = re.search(r"'DataFrame' object has no attribute '(\w+)'", str(error))
        return column[1] if column else ""
    by_pandas = any("pandas" in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))
    if not isinstance(error, KeyError) or not error.args or not by_pandas:
        return ""
    text = str(error.args[0])
    # "['a', 'b'] not in index", "None of [Index(['a'], dtype=...)] are in ..."
    column = re.search(r"\['([^']+)'", text)
    return column[1] if column else text


def _broken_promise(report: object) -> str:
    """Say which part of a report is missing, and what to write instead; empty if it is complete."""
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
    if holds_known(repr(report.findings)):
        return "returned a report whose findings hold a secret of the environment\nnone is ever altered: leave it out"
    return _wrong_names(report) or _wrong_tables(report.tables)


def _wrong_names(report: Report) -> str:
    """Return the entries whose names are empty or not texts."""
    for kind, names in (("tables", report.tables), ("drawings", report.drawings), ("metrics", report.metrics)):
        for name in names:
            if not isinstance(name, str) or not name.strip() or not name.isprintable():
                return f"returned a report whose {kind} have the name {name!r}\na name is a text that can be printed"
    texts = ("notes", report.notes), ("overview", report.overview), ("headline", [report.headline])
    for kind, values in texts:
        if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
            return f"returned a report whose {kind} are no texts\n{kind}=['...'] is expected"
    shown = [*report.tables, *report.drawings]
    if absent := [name for name in report.overview if name not in shown]:
        return (
            f"returned a report whose overview names no table or drawing: {absent[0]!r}\n"
            f"It has: {', '.join(shown) or 'none'}"
        )
    return ""


def _wrong_leads(report: Report) -> str:
    """Return the parts of a lead that are no lead, or have no text to show."""
    for lead in report.leads:
        if not isinstance(lead, Lead):
            return f"returned a report with a {type(lead).__name__} as a lead\na Lead is expected"
        texts = [lead.sentence, *lead.facts, *lead.facts.values()]
        for cell in lead.cells:
            if not isinstance(cell, Cell):
                return f"returned a lead with a {type(cell).__name__} as a cell\na Cell is expected"
            texts += [cell.line, cell.text, cell.family, cell.dataset, cell.metric]
        if not all(isinstance(text, str) for text in texts):
            return "returned a lead whose texts are no texts\nCell(line='...', text='...') is expected"
        if holds_known("\n".join(texts)):
            return "returned a lead that holds a secret of the environment\nnone is ever altered: leave it out"
    return ""


def _wrong_tables(tables: Mapping[str, Table]) -> str:
    """Return the parts of a table that cannot be shown or kept."""
    for name, table in tables.items():
        if not isinstance(table.frame, pd.DataFrame):
            return f"returned a report whose tables[{name!r}] holds a {type(table.frame).__name__}\nTable(a DataFrame)"
        columns = list(table.frame.columns)
        if not all(isinstance(column, str) for column in columns) or len(set(columns)) < len(columns):
            return f"returned a report whose tables[{name!r}] has columns {columns}\ncolumns are texts, each once"
        if unknown := [column for column in table.columns if column not in columns]:
            return (
                f"returned a report whose tables[{name!r}] explains a column that it has not: {unknown[0]!r}\n"
                f"Columns: {', '.join(columns)}"
            )
        texts = table.frame.select_dtypes(exclude=["number", "bool"])
        if holds_known("\n".join([*columns, *map(str, texts.to_numpy().ravel())])):
            return (
                f"returned a report whose tables[{name!r}] holds a secret of the environment\n"
                "a table is never altered: leave it out"
            )
    return ""


def _hide_secrets(report: Report) -> None:
    """Hide secrets in prose; tables that hold one were refused."""
    report.notes[:] = [redact(note) if holds_known(note) else note for note in report.notes]  # a Remark stays one
    report.headline = redact(report.headline)
    for name, table in report.tables.items():
        report.tables[name] = replace(table, caption=redact(table.caption))
    for name, drawing in report.drawings.items():
        report.drawings[name] = replace(drawing, caption=redact(drawing.caption))
