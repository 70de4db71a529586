"""The end of a sweep: a run of its own with the command line, the table of cells, and every analyzer's findings."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.display import as_csv
from rbptrack.base.errors import RbptrackError
from rbptrack.base.words import counted, short_path
from rbptrack.config.schema import Again, FilterConfig, SweepConfig
from rbptrack.console.output import program, say
from rbptrack.reporting.page import render
from rbptrack.reporting.runner import Findings, analyze_all, say_reused
from rbptrack.sweep.outcome import Outcome, cells_frame
from rbptrack.tracking.live import Heartbeat
from rbptrack.tracking.schema import sweep_tags
from rbptrack.tracking.store import Store


def analyze_sweep(
    settings: SweepConfig,
    name: str,
    outcomes: Sequence[Outcome],
    *,
    analyzers: Sequence[Analyzer],
    overrides: Sequence[str],
    began: float,
) -> int:
    """Analyse what a sweep measured and found measured, and log it as the sweep's run; returns how many failed."""
    command = shlex.join(["python", "-m", "rbptrack", "-m", *overrides])
    store = Store(settings.tracking)
    reader = store.reader
    writer = store.writer
    run_ids = [o.run_id for o in outcomes if o.run_id and o.status in ("measured", "skipped")]
    run_id = writer.begin(f"sweep {name}", sweep_tags(name, command))  # newer than its cells: above them in the UI
    status = "FAILED"
    findings = Findings()
    try:
        with tempfile.TemporaryDirectory() as temporary, Heartbeat(writer, run_id):
            folder = Path(temporary)
            if run_ids:
                runs = reader.runs(FilterConfig(), run_ids=run_ids)
                findings = analyze_all(
                    reader,
                    runs,
                    analyzers,
                    folder=folder,
                    sweep=name,
                    formats=[figure_format.value for figure_format in settings.figures],
                    again=settings.again is Again.analyses,
                )
                say_reused(len(findings.reused), remedy="again=analyses")
                facts = [("command", command), ("store", store.shown)]
                title = f"Sweep {name}"
                run_page = store.run_page
                page = render(title, runs, findings.sections, facts=facts, silent=findings.silent, run_page=run_page)
                (folder / "report.html").write_text(page, encoding="utf-8")
            (folder / "cells.csv").write_text(as_csv(cells_frame(outcomes)), encoding="utf-8")
            (folder / "command.txt").write_text(command + "\n", encoding="utf-8")
            writer.log_folder(run_id, folder)
        failures = sum(o.status == "failed" for o in outcomes)
        spent = time.time() - began
        writer.log(run_id, metrics={"cells": len(outcomes), "cells_failed": failures, "seconds": spent})
        status = "FAILED" if failures else "FINISHED"
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        say(
            f"interrupted; {'all ' if len(run_ids) > 1 else ''}{counted(len(run_ids), 'measurement')} saved. "
            f"To finish: {program()} report sweep={name}"
        )
        raise
    finally:
        with suppress(RbptrackError):  # repaired at the next start
            writer.end(run_id, status)
    if run_ids:
        say(f"report   {short_path(reader.report_page(run_id))}")
    return findings.failed
