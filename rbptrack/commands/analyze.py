"""`python -m rbptrack analyze`: run analyzers over the tracking store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rbptrack.analysis.contract import Analyzer
from rbptrack.commands.runner import HydraCommand, load_plugins
from rbptrack.config.compose import Request
from rbptrack.config.paths import plugin_folders
from rbptrack.config.schema import FILTERS, AnalyzeConfig
from rbptrack.console import complain, say
from rbptrack.errors import RbptrackError
from rbptrack.reporting.runner import analyze
from rbptrack.reporting.terminal import show
from rbptrack.tracking import Connection, Reader, Writer


def _read(arguments: Sequence[str]) -> Request:
    load_plugins(plugin_folders(arguments)).register()  # they are options of the group analyzer
    return Request.read("analyze", arguments, groups=("analyzer",), lists=FILTERS)


def _analyze(request: Request) -> int:
    """Run each analyzer asked for; of several, one that fails does not stop the others."""
    configs: list[AnalyzeConfig] = request.configs()
    failed = 0
    for config in configs:
        try:
            _run(config)
        except RbptrackError as error:
            if len(configs) == 1:
                raise
            complain(f"{config.analyzer.name}: {error}")
            failed += 1
    return 1 if failed else 0


def _run(config: AnalyzeConfig) -> None:
    connection = Connection(config.tracking)
    reader, writer = Reader(connection), Writer(connection)
    runs = reader.runs(config.filter)
    analyzer: Analyzer = config.analyzer
    sweep = config.filter.sweep[0] if len(config.filter.sweep) == 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        section, run_id = analyze(writer, runs, analyzer, folder=Path(folder), sweep=sweep)
    show(section)
    say(f"report   {reader.artifact_uri(run_id)}/report.html")


main = HydraCommand(_read, _analyze)
