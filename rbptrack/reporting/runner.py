"""Run analyzers over measurements and keep what they find in the store."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.discovery import Plugins
from rbptrack.analysis.plugin import help_line
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.names import metric_name
from rbptrack.base.process import raise_if_stopped
from rbptrack.base.secrets import redact
from rbptrack.base.words import counted
from rbptrack.config.patterns import fits
from rbptrack.console.output import complain, say_wrapped
from rbptrack.console.progress import AnalyzerProgress
from rbptrack.reporting.computing import AnalyzerFault, computed
from rbptrack.reporting.files import read_report, write_report
from rbptrack.reporting.page import Section, first_page_of, render
from rbptrack.reporting.reuse import Analyses
from rbptrack.reporting.telling import skipped
from rbptrack.reporting.terminal import show_first_page, show_others
from rbptrack.reporting.workers import computed_apart, shared, spare_memory_work
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.schema import analysis_tags

_MOST_REASONS = 2  # why analyzers came to nothing, on the terminal


@dataclass
class Findings:
    """What several analyzers made of the same measurements.

    Attributes:
        sections: of those that had something to say, in the report's order.
        silent: name and reason of those that had nothing to say.
        failed: how many failed by a bug of theirs.
        unsaid: the names by reason, of those that have not been said to have nothing to say.
        reused: the names of those that were there already.

    """

    sections: list[Section] = field(default_factory=list)
    silent: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0
    unsaid: dict[str, list[str]] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)

    def be_silent(self, analyzer: Analyzer, reason: str) -> None:
        """Take note of why an analyzer has nothing to say."""
        self.silent.append((analyzer.name, reason))
        self.unsaid.setdefault(reason, []).append(analyzer.name)

    def sort(self) -> None:
        """Bring what ended in any order into the report's: by the sections' leads, then by name."""
        self.sections.sort(key=lambda section: section.place)
        self.silent.sort()
        self.unsaid = {reason: sorted(names) for reason, names in sorted(self.unsaid.items())}


def choose(plugins: Plugins[Analyzer], patterns: Sequence[str], *, ks: Sequence[int] = ()) -> list[Analyzer]:
    """Return the analyzers whose names match, with their default options; BadInput for a name that matches none.

    Args:
        plugins: all analyzers.
        patterns: over their names.
        ks: the k that the user asked for, for analyzers with a `k_option`. Others need k of their own.

    """
    chosen: dict[str, Analyzer] = {}
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")]
    for pattern in excluded:
        _named(plugins, pattern)
    for pattern in included or (["*"] if excluded else []):
        names = _named(plugins, pattern)
        is_name = pattern in names
        for name in (name for name in names if not fits([name], excluded)):
            if cls := plugins.select(name) if is_name else plugins.load().get(name):
                options: dict[str, Any] = {cls.k_option: list(ks)} if ks and cls.k_option else {}
                chosen[name] = cls(**options)
    return [chosen[name] for name in sorted(chosen)]


def _named(plugins: Plugins[Analyzer], pattern: str) -> list[str]:
    """Return the names that fit a pattern; BadInput where none does."""
    names = [name for name in plugins.names if fits([name], [pattern])]
    if not names and pattern != "*":
        plugins.select(pattern)  # raises, with the options
    return names


def analyze(
    reader: Reader, runs: Runs, analyzer: Analyzer, *, folder: Path, sweep: str, formats: Sequence[str], again: bool
) -> tuple[Section, str, bool]:
    """Run one analyzer, write its files under a folder, and log them as a run of its own.

    Args:
        reader: of the store.
        runs: the measurements.
        analyzer: with its options.
        folder: where its files are laid.
        sweep: that the measurements are of; empty where they are of more than one.
        formats: of the figures, beside SVG.
        again: whether a cached analysis is computed anew.

    Returns:
        The section of the page; the run's id, empty where the store cannot be written; whether it was there already.

    Raises:
        AnalyzerFault: the analyzer has a fault of its own.
        RbptrackError: what it says of its input.

    """
    analyses = Analyses(reader, runs, formats)
    if not again and (run_id := analyses.find(analyzer, folder)):
        return _section(analyzer, folder), run_id, True
    _make(analyzer, runs, folder, formats)
    section, run_id = _log(analyses, analyzer, folder, sweep)
    return section, run_id, False


def analyze_all(
    reader: Reader,
    runs: Runs,
    analyzers: Sequence[Analyzer],
    *,
    folder: Path,
    sweep: str,
    formats: Sequence[str],
    again: bool,
) -> Findings:
    """Run several analyzers, each into folder/<its name>; prints the laws, and what others' analyzers say. A
    failure never stops the others. See `analyze`.
    """
    findings = Findings()
    analyses = Analyses(reader, runs, formats)
    findings.reused = [
        analyzer.name for analyzer in analyzers if not again and analyses.find(analyzer, folder / analyzer.name)
    ]
    findings.sections = [
        _section(analyzer, folder / analyzer.name) for analyzer in analyzers if analyzer.name in findings.reused
    ]
    for analyzer in analyzers:
        if analyzer.name not in findings.reused and not again and (reason := analyses.silence(analyzer)):
            findings.be_silent(analyzer, reason)
    left = [
        analyzer
        for analyzer in analyzers
        if analyzer.name not in {*findings.reused, *(name for name, _ in findings.silent)}
    ]
    if left:
        spare_memory_work()
    with shared(left, runs, folder, formats) as turns:
        for analyzer, outcome in turns:
            with _caught(findings, analyzer), analyses.noting_silence(analyzer):
                if isinstance(outcome, RbptrackError):
                    raise outcome
                if not outcome:
                    _make(analyzer, runs, folder / analyzer.name, formats)
                with _caught(findings, analyzer, logging=True):
                    findings.sections.append(_log(analyses, analyzer, folder / analyzer.name, sweep)[0])
    findings.sort()
    if page := first_page_of(findings.sections):
        show_first_page(page)
    show_others(findings.sections, whole=not page)
    _say_unsaid(findings.unsaid)
    return findings


def _say_unsaid(unsaid: dict[str, list[str]]) -> None:
    """Say why analyzers came to nothing: the reasons that most share; of others the page has the reasons."""
    reasons = sorted(unsaid, key=lambda reason: -len(unsaid[reason]))
    for reason in reasons[:_MOST_REASONS]:
        say_wrapped(f"skipped, {reason}: {', '.join(unsaid[reason])}", lines=3)
    if others := [name for reason in reasons[_MOST_REASONS:] for name in unsaid[reason]]:
        say_wrapped(f"skipped (reasons in the report): {', '.join(others)}")


def _make(analyzer: Analyzer, runs: Runs, folder: Path, formats: Sequence[str]) -> None:
    """Compute an analyzer, that of others in a process of its own, and write its report."""
    with AnalyzerProgress(analyzer.name, len(runs)) as progress:
        if computed_apart(analyzer, runs, folder, formats):
            return
        runs.watch(progress)
        try:
            write_report(computed(analyzer, runs), folder, formats)
        finally:
            runs.watch(None)


def _section(analyzer: Analyzer, folder: Path) -> Section:
    return Section(analyzer.name, help_line(type(analyzer)), options_text(analyzer), *read_report(folder))


def _log(analyses: Analyses, analyzer: Analyzer, folder: Path, sweep: str) -> tuple[Section, str]:
    """Return the analysis as a run of its own, with everything under its folder."""
    section = _section(analyzer, folder)
    runs = analyses.runs
    measured = analyses.connection
    if measured.read_only:
        return section, ""
    from rbptrack.tracking.live import working  # MLflow: not before other processes have begun
    from rbptrack.tracking.writer import Writer

    scope = f"sweep {sweep}" if sweep else counted(len(runs), "measurement")
    tags = analysis_tags(analyzer.name, sweep, list(runs.frame["run_id"]), headline=section.report.headline)
    writer = Writer(measured.analyses())
    with working(writer, f"{analyzer.name} / {sweep or scope}", tags) as run_id:
        writer.log(run_id, params={f.name: getattr(analyzer, f.name) for f in fields(analyzer)})
        writer.log(run_id, metrics={metric_name(name): value for name, value in section.report.metrics.items()})
        facts = [("store", measured.shown)]
        run_page = measured.run_page
        title = f"{analyzer.name}, {scope}"
        page = render(title, runs, [section], facts=facts, run_page=run_page, files="{folder}", live=False)
        (folder / "report.html").write_text(page, encoding="utf-8")
        writer.log_folder(run_id, folder)
    analyses.remember(analyzer, folder, run_id)
    return section, run_id


@contextmanager
def _caught(findings: Findings, analyzer: Analyzer, *, logging: bool = False) -> Iterator[None]:
    """Keep and print why an analyzer came to nothing; what it found and the store did not take is a failure."""
    try:
        yield
    except AnalyzerFault as error:  # a plugin's bug must not cost the sweep its report
        findings.failed += 1
        findings.silent.append((analyzer.name, f"failed: {' '.join(str(error).split())}"))
        complain(f"analyzer {analyzer.name} failed: {error}")
    except RbptrackError as error:
        reason = redact(skipped(error))
        if logging:
            findings.failed += 1
            findings.silent.append((analyzer.name, f"could not be logged: {reason}"))
            complain(f"analyzer {analyzer.name} could not be logged: {reason}")
            return
        findings.be_silent(analyzer, reason)
    except Exception as error:  # of drawing or of writing what it found
        raise_if_stopped()
        findings.failed += 1
        findings.silent.append((analyzer.name, redact(f"failed: {type(error).__name__}: {error}")))
        complain(f"analyzer {analyzer.name} failed: {type(error).__name__}: {error}")
        if os.environ.get("HYDRA_FULL_ERROR"):
            traceback.print_exception(error)


def say_reused(analyses: int, *, remedy: str) -> None:
    """Say in one line which analyses were reused."""
    if analyses:
        exist = "the analysis exists" if analyses == 1 else f"{analyses} analyses exist"
        say_wrapped(f"{exist} already, of the same measurements, options and code; {remedy} recomputes")


def options_text(analyzer: Analyzer) -> str:
    """Return its options as `key=value` words."""
    return " ".join(f"{f.name}={getattr(analyzer, f.name)}" for f in fields(analyzer)) or "none"
