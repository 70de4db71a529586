"""Run analyzers over measurements and keep what they find in the store."""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rbptrack.analysis.contract import Analyzer, question
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.names import metric_name
from rbptrack.base.process import raise_if_stopped
from rbptrack.base.secrets import redact
from rbptrack.base.words import counted
from rbptrack.console.sentences import complain, say_wrapped
from rbptrack.reporting.broken import AnalyzerFault
from rbptrack.reporting.discovery import Plugins
from rbptrack.reporting.lead import lead_of
from rbptrack.reporting.making import Made, make, making
from rbptrack.reporting.page import InlineFigure, Section, render
from rbptrack.reporting.process import spare_memory_work
from rbptrack.reporting.telling import skipped
from rbptrack.reporting.terminal import show_lead, show_others
from rbptrack.reporting.workers import Workers
from rbptrack.tracking.live import working
from rbptrack.tracking.schema import analysis_tags
from rbptrack.tracking.writer import Writer

ORDER = (
    "power_law",
    "lack_of_fit",
    "compare",
    "rank_and_ce",
    "k_law",
    "emergence",
    "lognormal",
    "error_entropy",
    "tokens",
    "reproduction",
)
"""What the first page needs, then the paper's order; analyzers that are not named follow by name."""


@dataclass
class Findings:
    """What several analyzers made of the same measurements.

    Attributes:
        sections: of those that had something to say, in the report's order.
        silent: name and reason of those that had nothing to say.
        failed: how many failed by a bug of theirs.
        unsaid: the names by reason, of those that have not been said to have nothing to say.

    """

    sections: list[Section] = field(default_factory=list)
    silent: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0
    unsaid: dict[str, list[str]] = field(default_factory=dict)


def choose(plugins: Plugins, patterns: Sequence[str], *, ks: Sequence[int] = ()) -> list[Analyzer]:
    """The analyzers whose names match, with their default options; BadInput for a name that matches none.

    Args:
        plugins: that there are.
        patterns: over their names.
        ks: the k that the user asked for: the law in size is fitted at these. Other analyzers need k of their own.

    """
    chosen: dict[str, Analyzer] = {}
    for pattern in (name for given in patterns for name in plugins.now(given)):
        matching = [name for name in sorted(plugins.analyzers) if fnmatchcase(name, pattern)]
        if not matching and pattern != "*":
            plugins.select(pattern)  # raises, with the options
        for name in matching:
            asked: dict[str, Any] = {"ks": list(ks)} if ks and name == ORDER[0] else {}
            chosen[name] = plugins.analyzers[name](**asked)
    return [chosen[name] for name in sorted(chosen, key=_place)]


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def analyze(writer: Writer, runs: Runs, analyzer: Analyzer, *, folder: Path, sweep: str = "") -> tuple[Section, str]:
    """Run one analyzer, write its files under a folder, and log them as a run of its own.

    Returns:
        The section of the page, and the run's id; empty where the store cannot be written.

    Raises:
        AnalyzerFault: the analyzer has a fault of its own.
        RbptrackError: what it says of its input.

    """
    return _log(writer, runs, make(analyzer, runs, folder), sweep)


def analyze_all(
    writer: Writer, runs: Runs, analyzers: Sequence[Analyzer], *, folder: Path, sweep: str = ""
) -> Findings:
    """Run several analyzers, each into folder/<its name>; prints the laws, and what others' analyzers say. A
    failure never stops the others.
    """
    found, undrawn = Findings(), deque[Made]()
    spare_memory_work()

    def log(*, only_ready: bool) -> None:
        while undrawn and (not only_ready or undrawn[0].ready()):
            one = undrawn.popleft()
            with _caught(found, one.analyzer, logging=True):
                found.sections.append(_log(writer, runs, one, sweep)[0])

    with Workers(len(analyzers)) as workers:
        for one in making(analyzers, runs, folder, workers):
            log(only_ready=one.here)  # while another process computes, this one draws
            with _caught(found, one.analyzer):
                undrawn.append(one.make())
        log(only_ready=False)
    if lead := lead_of(finding for section in found.sections for finding in section.report.findings):
        show_lead(lead)
    show_others(found.sections, whole=not lead)
    for reason, names in found.unsaid.items():
        say_wrapped(f"skipped, {reason}: {', '.join(names)}", lines=3)
    return found


def _log(writer: Writer, runs: Runs, made: Made, sweep: str) -> tuple[Section, str]:
    """The analysis as a run of its own, with everything under its folder."""
    analyzer, report = made.analyzer, made.report
    drawn = {name: InlineFigure(svg, report.drawings[name].caption) for name, svg in made.inline_svgs().items()}
    report.drawings.clear()  # megabytes each, and drawn by now
    scope = f"sweep {sweep}" if sweep else counted(len(runs), "measurement")
    section = Section(analyzer.name, question(type(analyzer)), options_text(analyzer), report, drawn)
    if writer.connection.read_only:
        return section, ""
    tags = analysis_tags(analyzer.name, sweep, list(runs.frame["run_id"]))
    measured, writer = writer.connection, Writer(writer.connection.analyses())
    with working(writer, f"{analyzer.name} / {sweep or scope}", tags) as run_id:
        writer.log(run_id, params={f.name: getattr(analyzer, f.name) for f in fields(analyzer)})
        writer.log(run_id, metrics={metric_name(name): value for name, value in report.metrics.items()})
        facts, run_page = [("store", measured.shown)], measured.run_page
        page = render(f"{analyzer.name}, {scope}", runs, [section], facts=facts, run_page=run_page, tables="tables")
        (made.folder / "report.html").write_text(page, encoding="utf-8")
        writer.log_folder(run_id, made.folder)
    return section, run_id


@contextmanager
def _caught(found: Findings, analyzer: Analyzer, *, logging: bool = False) -> Iterator[None]:
    """Keep and print why an analyzer came to nothing; what it found and the store did not take is a failure."""
    try:
        yield
    except AnalyzerFault as error:  # a plugin's bug must not cost the sweep its report
        found.failed += 1
        found.silent.append((analyzer.name, f"failed: {' '.join(str(error).split())}"))
        complain(f"analyzer {analyzer.name} failed: {error}")
    except RbptrackError as error:
        reason = redact(skipped(error))
        if logging:
            found.failed += 1
            found.silent.append((analyzer.name, f"could not be logged: {reason}"))
            complain(f"analyzer {analyzer.name} could not be logged: {reason}")
            return
        found.silent.append((analyzer.name, reason))
        found.unsaid.setdefault(reason, []).append(analyzer.name)
    except Exception as error:  # of drawing or of writing what it found
        raise_if_stopped()
        found.failed += 1
        found.silent.append((analyzer.name, redact(f"failed: {type(error).__name__}: {error}")))
        complain(f"analyzer {analyzer.name} failed: {type(error).__name__}: {error}")
        if os.environ.get("HYDRA_FULL_ERROR"):
            traceback.print_exception(error)


def options_text(analyzer: Analyzer) -> str:
    """Its options as `key=value` words."""
    return " ".join(f"{f.name}={getattr(analyzer, f.name)}" for f in fields(analyzer)) or "none"
