"""The whole report as one call of a notebook: every analyzer over measurements, as a page that a cell shows."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rbptrack.analysis.discovery import ANALYZERS, discover
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.base.user_paths import check_writable_folder, user_path
from rbptrack.base.words import counted
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.reporting.page import Section, render
from rbptrack.reporting.runner import analyze_all, choose
from rbptrack.tracking.store import Store

_HIGH = 720  # pixels of the frame in a cell


@dataclass(frozen=True, repr=False)
class ReportPage:
    """A report as a page.

    Attributes:
        html: the page, one file with its figures and tables.
        headlines: analyzer -> what it found, in a sentence.
        skipped: analyzer -> why it came to nothing.

    """

    html: str
    headlines: dict[str, str]
    skipped: dict[str, str]

    def save(self, path: str) -> None:
        """Write the page to a file, whole or not at all.

        Raises:
            BadInput: no file can be written there.

        """
        out = user_path(path)
        check_writable_folder(out.absolute().parent)
        write_whole(out, self.html)

    def __repr__(self) -> str:
        """Return a line per analyzer: what it found."""
        return "\n".join(f"{name}: {headline}" for name, headline in self.headlines.items())

    def _repr_html_(self) -> str:
        look = f"width:100%;height:{_HIGH}px;border:1px solid #d0d7de"
        return f'<iframe srcdoc="{escape(self.html)}" style="{look}" title="rbptrack report"></iframe>'


def report(
    runs: Runs | None = None,
    *,
    analyzers: str | Sequence[str] = "*",
    again: bool = False,
    tracking_uri: str = "",
    experiment: str = "rbptrack",
) -> ReportPage:
    """Run every analyzer over measurements, as `python -m rbptrack report` does, and return the page.

    Each analysis is logged as a run of its own; an identical one is reused.

    Args:
        runs: of `rbptrack.runs`, from the same store; by default everything that was measured.
        analyzers: names or patterns, one or several; `!name` leaves one out.
        again: recompute even if an identical analysis exists.
        tracking_uri: the store; by default MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.
        experiment: MLflow's experiment.

    Raises:
        BadInput: the store cannot be read, or an analyzer is unknown.
        RbptrackError: no analyzer had anything to say.
        StoreAway: the store does not answer.

    """
    patterns = [analyzers] if isinstance(analyzers, str) else list(analyzers)
    chosen = choose(discover(ANALYZERS), patterns)
    reader = Store(TrackingConfig(uri=tracking_uri, experiment=experiment)).reader
    runs = reader.runs(FilterConfig()) if runs is None else runs
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):  # the page holds what it prints
        findings = analyze_all(reader, runs, chosen, folder=Path(folder), sweep="", formats=[], again=again)
        if not findings.sections:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in findings.silent)
            raise RbptrackError(f"no analyzer had anything to say about these measurements. {reasons}")
        scope = counted(len(runs), "measurement")
        facts = [("store", reader.connection.shown)]
        run_page = reader.connection.run_page
        html = render(
            scope, runs, findings.sections, facts=facts, silent=findings.silent, run_page=run_page, files=None
        )
    headlines = {section.name: _headline(section) for section in findings.sections}
    return ReportPage(html, headlines, dict(findings.silent))


def _headline(section: Section) -> str:
    return section.report.headline or next(iter(section.report.notes), "")
