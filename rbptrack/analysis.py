"""Run analyzers over measurements, keep what they find in the store, and show it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from html import unescape
from pathlib import Path

import numpy as np

from rbptrack.analyzer import Analyzer, Runs
from rbptrack.console import complain, say, say_wrapped, table
from rbptrack.discovery import Plugins
from rbptrack.errors import RbptrackError
from rbptrack.report import Section, render, write
from rbptrack.tracking import Store

ORDER = (
    "power_law",
    "k_law",
    "emergence",
    "lognormal",
    "error_entropy",
    "noise_floor",
    "position",
    "reproduction",
    "compare",
)
"""The paper's order, then what goes beyond it; analyzers that are not named follow by name."""


_MOST_ROWS = 40  # of a table on the terminal


@dataclass
class Findings:
    """What several analyzers made of the same measurements.

    Attributes:
        sections: of those that had something to say, in the report's order.
        silent: name and reason of those that had nothing to say.
        failed: how many failed by a bug of theirs.

    """

    sections: list[Section] = field(default_factory=list)
    silent: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0


def choose(plugins: Plugins, patterns: Sequence[str]) -> list[Analyzer]:
    """The analyzers whose names match, with their default options; BadInput for a name that matches none."""
    chosen: dict[str, Analyzer] = {}
    for pattern in patterns:
        matching = [name for name in sorted(plugins.analyzers) if fnmatchcase(name, pattern)]
        if not matching and pattern != "*":
            plugins.select(pattern)  # raises, with the options
        chosen |= {name: plugins.analyzers[name]() for name in matching}
    return [chosen[name] for name in sorted(chosen, key=_place)]


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def analyze(store: Store, runs: Runs, analyzer: Analyzer, *, folder: Path, sweep: str = "") -> tuple[Section, str]:
    """Run one analyzer, write its files under a folder, and log them as a run of its own, whose id is returned.

    Raises:
        RbptrackError: what the analyzer says of its input; anything else it raises is its own bug and passes through.

    """
    with np.errstate(divide="ignore", invalid="ignore"):  # an RBP_k of 0 is a finding, not a warning on the terminal
        report = analyzer.analyze(runs)
    scope = sweep or f"{len(runs)} measurements"
    tags = {
        "rbptrack.kind": "analysis",
        "rbptrack.analyzer": analyzer.name,
        "rbptrack.sweep": sweep,
        "rbptrack.sources": ",".join(runs.frame["run_id"])[:8000],
    }
    run_id = store.begin(f"{analyzer.name} / {scope}", tags)
    try:
        store.log(run_id, params={f.name: getattr(analyzer, f.name) for f in fields(analyzer)})
        store.log(run_id, metrics=report.metrics)
        drawn = write(report, folder)
        options = options_text(analyzer)
        section = Section(analyzer.name, first_line(analyzer), options, report, analyzer.columns, drawn)
        page = render(f"{analyzer.name}: {scope}", runs, [section], facts=[("store", store.shown)])
        (folder / "report.html").write_text(page, encoding="utf-8")
        store.log_folder(run_id, folder)
    except BaseException:
        store.end(run_id, "FAILED")
        raise
    store.end(run_id)
    return section, run_id


def analyze_all(store: Store, runs: Runs, analyzers: Sequence[Analyzer], *, folder: Path, sweep: str = "") -> Findings:
    """Run several analyzers, each into folder/<its name>; prints each in short. A failure never stops the others."""
    found = Findings()
    for analyzer in analyzers:
        try:
            section, _ = analyze(store, runs, analyzer, folder=folder / analyzer.name, sweep=sweep)
        except RbptrackError as error:
            reason = " ".join(str(error).split())
            found.silent.append((analyzer.name, reason))
            say_wrapped(f"{analyzer.name}: {reason}", lines=2)
        except Exception as error:  # a plugin's bug must not cost the sweep its report
            found.failed += 1
            found.silent.append((analyzer.name, f"failed: {type(error).__name__}: {error}"))
            complain(f"analyzer {analyzer.name} failed: {type(error).__name__}: {error}")
            if os.environ.get("HYDRA_FULL_ERROR"):
                traceback.print_exception(error)
        else:
            found.sections.append(section)
            _show_short(section, whole=not found.sections[:-1])
    return found


def show(section: Section) -> None:
    """Print a report's summary table and its sentences."""
    _show_table(section)
    for note in section.report.notes:
        say_wrapped(note)


def _show_short(section: Section, *, whole: bool) -> None:
    """The first analyzer's table; a line or two of every other."""
    report = section.report
    if whole and report.summary:
        _show_table(section)
        say("")
    else:
        line = report.headline or next(
            iter(report.notes), f"{len(report.tables)} tables, {len(report.figures)} figures"
        )
        say_wrapped(f"{section.name}: {line}", lines=2)


def _show_table(section: Section) -> None:
    report = section.report
    if report.summary:
        frame = report.tables[report.summary]
        rows = [[_text(value) for value in row] for row in frame.itertuples(index=False)]
        words = [not all(_is_number(row[i]) for row in rows) for i in range(len(frame.columns))]
        texts = words.index(False) if False in words else len(words)
        say("")
        cut = len(rows) - _MOST_ROWS
        if cut > 1:
            rows = rows[:_MOST_ROWS]
        table(list(frame.columns), rows, title=unescape(section.about), text_columns=texts)
        if cut > 1:
            say(f"and {cut} more rows in the report")


def first_line(analyzer: Analyzer) -> str:
    """The first line of an analyzer's docstring."""
    return (type(analyzer).__doc__ or analyzer.name).strip().splitlines()[0]


def options_text(analyzer: Analyzer) -> str:
    """Its options as `key=value` words."""
    return " ".join(f"{f.name}={getattr(analyzer, f.name)}" for f in fields(analyzer)) or "none"


def _is_number(text: str) -> bool:
    return not text or text[0] in "+-.0123456789"


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)
