"""`python -m rbptrack analyze`: run analyzers over the tracking store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

from rbptrack.analysis.contract import Analyzer
from rbptrack.base.errors import RbptrackError
from rbptrack.base.words import short_path
from rbptrack.commands.runner import HydraCommand, load_plugins, taken
from rbptrack.config.keys import no_option
from rbptrack.config.paths import plugin_folders
from rbptrack.config.patterns import match, split_list
from rbptrack.config.request import Request
from rbptrack.config.schema import FILTERS, AnalyzeConfig
from rbptrack.console.output import complain, program, say
from rbptrack.console.tables import print_json
from rbptrack.reporting.discovery import Plugins
from rbptrack.reporting.page import Section
from rbptrack.reporting.runner import analyze, say_reused
from rbptrack.reporting.terminal import show
from rbptrack.tracking.store import Store

DEFAULT = "power_law"
"""The analyzer of conf/analyze.yaml."""


def _read(arguments: Sequence[str]) -> Request:
    plugins = load_plugins(plugin_folders(arguments))
    plugins.register()  # they are options of the group analyzer
    arguments = [_as_now(word, plugins) for word in arguments]
    _check_options(arguments, plugins)
    return Request.read("analyze", arguments, groups=("analyzer",), lists={**FILTERS, "figures": "figures"})


def _as_now(word: str, plugins: Plugins) -> str:
    """A word, where it names analyzers as `analyzer=NAME,...` with the names of today."""
    key, equals, names = word.partition("=")
    if not equals and not word.startswith("-"):
        key, names = "analyzer", word
    if key != "analyzer":
        return word
    return f"analyzer={','.join(now for name in split_list(names) for now in plugins.now(name))}"


def _check_options(arguments: Sequence[str], plugins: Plugins) -> None:
    """BadInput for an option that none of the analyzers asked for has."""
    asked = next((a.partition("=")[2] for a in arguments if a.startswith("analyzer=")), DEFAULT)
    chosen = {name for pattern in split_list(asked) for name in match(pattern, list(plugins.analyzers))}
    known = [f"analyzer.{f.name}" for name in sorted(chosen) for f in fields(plugins.analyzers[name])]
    for word in arguments:
        key = word.partition("=")[0].lstrip("+~")
        if chosen and key.startswith("analyzer.") and ".".join(key.split(".")[:2]) not in known:
            raise no_option(key, known, shown=known, more=f"{program()} plugins")


def _analyze(request: Request, *, form: str) -> int:
    """Run each analyzer asked for; of several, one that fails does not stop the others."""
    configs: list[AnalyzeConfig] = [request.composer.compose_typed(job) for job in request.jobs()]
    failed = 0
    for config in configs:
        try:
            _run(config, form)
        except RbptrackError as error:
            if len(configs) == 1:
                raise
            complain(f"{config.analyzer.name}: {error}")
            failed += 1
    return 1 if failed else 0


def _run(config: AnalyzeConfig, form: str) -> None:
    store = Store(config.tracking)
    reader = store.reader
    runs = reader.runs(config.filter)
    analyzer: Analyzer = config.analyzer
    sweep = config.filter.sweep[0] if len(config.filter.sweep) == 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        section, run_id, reused = analyze(
            reader,
            runs,
            analyzer,
            folder=Path(folder),
            sweep=sweep,
            formats=[one.value for one in config.figures],
            again=config.again,
        )
    if form == "json":
        print_json(_document(section, run_id))
        return
    show(section)
    say_reused(int(reused), remedy="again=yes")
    if run_id:
        say(f"report   {short_path(store.analyses().reader.report_page(run_id))}")
    else:
        say(f"not logged: the tracking store {store.shown} cannot be written")


def _document(section: Section, run_id: str) -> dict[str, object]:
    """What an analyzer found, for programs: tables as lists of rows."""
    report = section.report
    tables = {name: table.frame.to_dict("records") for name, table in report.tables.items()}
    findings = [asdict(one) | {"verdict": one.verdict.value} for one in report.findings]
    return {
        "analyzer": section.name,
        "run_id": run_id,
        "metrics": report.metrics,
        "findings": findings,
        "notes": [str(note) for note in report.notes],
        "tables": tables,
    }


def main(arguments: Sequence[str]) -> int:
    """Analyze; returns the exit code."""
    form, words = taken(arguments, "format", ("table", "json"))
    return HydraCommand(_read, partial(_analyze, form=form))(words)
