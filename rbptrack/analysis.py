"""Run analyzers over measurements, keep what they find in the store, and show it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from html import unescape
from pathlib import Path

from rbptrack.analyzer import Analyzer, Report, Runs
from rbptrack.console import complain, say, table
from rbptrack.discovery import Plugins
from rbptrack.errors import RbptrackError
from rbptrack.report import Section, render, write
from rbptrack.tracking import Store


@dataclass(frozen=True)
class Analysis:
    """One analyzer's finished work.

    Attributes:
        section: name, options and report.
        run_id: the analysis's run in the store.

    """

    section: Section
    run_id: str


def choose(plugins: Plugins, patterns: Sequence[str]) -> list[Analyzer]:
    """The analyzers whose names match, with their default options; BadInput for a name that matches none."""
    chosen: dict[str, Analyzer] = {}
    for pattern in patterns:
        matching = [name for name in sorted(plugins.analyzers) if fnmatchcase(name, pattern)]
        if not matching and pattern != "*":
            plugins.select(pattern)  # raises, with the options
        chosen |= {name: plugins.analyzers[name]() for name in matching}
    return list(chosen.values())


def analyze(store: Store, runs: Runs, analyzer: Analyzer, *, sweep: str = "") -> Analysis:
    """Run one analyzer, log its report as a run of its own, and print its summary.

    Raises:
        RbptrackError: what the analyzer says of its input; anything else it raises is its own bug and passes through.

    """
    report = analyzer.analyze(runs)
    section = Section(analyzer.name, first_line(analyzer), options_text(analyzer), report)
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
        with tempfile.TemporaryDirectory() as name:
            write(report, Path(name))
            page = render(f"{analyzer.name}: {scope}", runs, [section])
            Path(name, "report.html").write_text(page, encoding="utf-8")
            store.log_folder(run_id, Path(name))
    except BaseException:
        store.end(run_id, "FAILED")
        raise
    store.end(run_id)
    show(section)
    return Analysis(section, run_id)


def analyze_all(store: Store, runs: Runs, analyzers: Sequence[Analyzer], *, sweep: str) -> tuple[list[Analysis], int]:
    """Run several analyzers, one failure not stopping the others; also how many failed."""
    done: list[Analysis] = []
    failed = 0
    for analyzer in analyzers:
        try:
            done.append(analyze(store, runs, analyzer, sweep=sweep))
        except RbptrackError as error:
            say(f"{analyzer.name}: {error}")
        except Exception as error:  # a plugin's bug must not cost the sweep its report
            failed += 1
            complain(f"analyzer {analyzer.name} failed: {type(error).__name__}: {error}")
    return done, failed


def show(section: Section) -> None:
    """Print a report's summary table and its sentences."""
    report: Report = section.report
    if report.summary:
        frame = report.tables[report.summary]
        rows = [[_text(value) for value in row] for row in frame.itertuples(index=False)]
        texts = sum(not _is_number(frame[c].dtype.kind) for c in frame.columns)
        say("")
        table(list(frame.columns), rows, title=unescape(section.about), text_columns=texts)
    for note in report.notes:
        say(note)


def first_line(analyzer: Analyzer) -> str:
    """The first line of an analyzer's docstring."""
    return (type(analyzer).__doc__ or analyzer.name).strip().splitlines()[0]


def options_text(analyzer: Analyzer) -> str:
    """Its options as `key=value` words."""
    return " ".join(f"{f.name}={getattr(analyzer, f.name)}" for f in fields(analyzer)) or "none"


def _is_number(kind: str) -> bool:
    return kind in "iuf"


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)
