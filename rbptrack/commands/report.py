"""`python -m rbptrack report`: every analyzer over the tracking store, as one page; no model, no torch."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import hydra
from omegaconf import DictConfig

from rbptrack.config.compose import Composer, parse_flags
from rbptrack.config.paths import conf_folder, plugin_folders
from rbptrack.config.patterns import lists_as_values
from rbptrack.config.schema import FILTERS, ReportConfig, typed
from rbptrack.console import complain, say, short_path
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.reporting.discovery import discover
from rbptrack.reporting.page import render
from rbptrack.reporting.runner import analyze_all, choose
from rbptrack.tracking import Connection, Reader, Writer


def main(arguments: list[str]) -> int:
    """Report; returns the exit code: 0, 1 if an analyzer failed; raises BadInput for exit code 2."""
    arguments = lists_as_values(arguments, FILTERS | {"analyzers": "analyzers"})
    flags, words, overrides = parse_flags(arguments)
    if flags.cfg or flags.info or flags.help or flags.hydra_help or flags.shell_completion:
        _hand_to_hydra([*words, *overrides])
        return 0
    config: ReportConfig = Composer("report", arguments).compose_typed(overrides)
    plugins = discover(plugin_folders(arguments))
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    analyzers = choose(plugins, config.analyzers)
    out = Path(config.out) if config.out else None
    if out and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise BadInput(f"out={config.out}: give a file in a folder that exists, such as out=report.html")
    connection = Connection(config.tracking)
    reader, writer = Reader(connection), Writer(connection)
    runs = reader.runs(config.filter)
    sweep = config.filter.sweep[0] if len(config.filter.sweep) == 1 else ""
    of_sweep = reader.sweep_run(sweep) if sweep else None
    scope = f"Sweep {sweep}" if sweep else f"{len(runs)} measurements"
    say(f"{len(runs)} measurements, {len(analyzers)} analyzers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = analyze_all(writer, runs, analyzers, folder=folder, sweep=sweep)
        if not found.sections:
            raise RbptrackError("no analyzer had anything to say about these measurements; the lines above say why")
        command = " ".join(["python -m rbptrack report", *overrides])
        page = render(
            scope, runs, found.sections, facts=[("command", command), ("store", connection.shown)], silent=found.silent
        )
        (folder / "report.html").write_text(page, encoding="utf-8")
        tags = {"rbptrack.kind": "analysis", "rbptrack.analyzer": "report", "rbptrack.sweep": sweep}
        run_id = of_sweep or writer.begin(f"report / {scope}", tags)
        try:
            writer.log_folder(run_id, folder)
        finally:
            if not of_sweep:
                writer.end(run_id)
    if out:
        out.write_text(page, encoding="utf-8")
    say(f"report   {out or f'{short_path(reader.artifact_uri(run_id))}/report.html'}")
    return 1 if found.failed else 0


def _hand_to_hydra(arguments: list[str]) -> None:
    sys.argv = ["python -m rbptrack report", *arguments]
    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="report")(_job)()


def _job(composed: DictConfig) -> None:
    typed(composed)
