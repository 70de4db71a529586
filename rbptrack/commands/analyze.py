"""`python -m rbptrack analyze`: run analyzers over the tracking store; no model, no torch."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import hydra
from omegaconf import DictConfig

from rbptrack.analysis.contract import Analyzer
from rbptrack.config.compose import Composer, cells, parse_flags
from rbptrack.config.paths import conf_folder, plugin_folders
from rbptrack.config.patterns import expand, lists_as_values
from rbptrack.config.schema import FILTERS, AnalyzeConfig, typed
from rbptrack.console import complain, say
from rbptrack.errors import RbptrackError
from rbptrack.reporting.discovery import discover
from rbptrack.reporting.runner import analyze, show
from rbptrack.tracking import Connection, Reader, Writer


def main(arguments: list[str]) -> int:
    """Analyse; returns the exit code: 0, 1 if an analyzer failed; raises BadInput for exit code 2."""
    arguments = lists_as_values(arguments, FILTERS)
    plugins = discover(plugin_folders(arguments))
    plugins.register()
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    composer = Composer("analyze", arguments)
    arguments, _ = expand(
        arguments, groups=("analyzer",), options=lambda group: sorted({*plugins.analyzers, *composer.options(group)})
    )
    flags, words, overrides = parse_flags(arguments)
    if flags.cfg or flags.info or flags.help or flags.hydra_help or flags.shell_completion:
        _hand_to_hydra([*words, *overrides])
        return 0
    configs = [composer.compose_typed(job) for job in cells(overrides)]
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


def _hand_to_hydra(arguments: list[str]) -> None:
    sys.argv = ["python -m rbptrack analyze", *arguments]
    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="analyze")(_job)()


def _job(composed: DictConfig) -> None:
    _run(typed(composed))
