"""`python -m rbptrack analyze`: run analyzers over the tracking store; no model, no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from omegaconf import OmegaConf

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.discovery import Plugins
from rbptrack.base.errors import RbptrackError
from rbptrack.base.words import short_path
from rbptrack.commands.declared.closer import ANALYZE
from rbptrack.commands.runner import HydraCommand, complain_of_broken, find_analyzers
from rbptrack.config.keys import Option, no_option, options_of
from rbptrack.config.paths import conf_folder, plugin_folders
from rbptrack.config.patterns import match, split_list
from rbptrack.config.registration import register_plugins
from rbptrack.config.request import Request
from rbptrack.config.schema import AnalyzeConfig
from rbptrack.console.output import complain, program, say
from rbptrack.console.tables import Format, print_json
from rbptrack.reporting.page import Section
from rbptrack.reporting.runner import analyze, say_reused
from rbptrack.reporting.terminal import show
from rbptrack.tracking.store import Store


def _read(arguments: Sequence[str]) -> Request:
    plugins = find_analyzers(plugin_folders(arguments))
    words = [word if "=" in word or word.startswith("-") else f"analyzer={word}" for word in arguments]
    patterns = next((word.partition("=")[2] for word in words if word.startswith("analyzer=")), _default())
    classes = _register(split_list(patterns), plugins)
    complain_of_broken(plugins)
    options = [option for cls in classes.values() for option in options_of(cls, "analyzer.")]
    if classes:
        _check_options(words, options)
    lists = {option.key: option.key for option in options if option.takes_list}
    return Request.read("analyze", words, groups=("analyzer",), lists=ANALYZE.lists | lists)


def _default() -> str:
    """Return the analyzer that runs where none is asked for: that of conf/analyze.yaml."""
    defaults = OmegaConf.load(conf_folder() / "analyze.yaml").defaults
    return next(str(entry["analyzer"]) for entry in defaults if "analyzer" in entry)


def _register(patterns: Sequence[str], plugins: Plugins[Analyzer]) -> dict[str, type[Analyzer]]:
    """Make analyzers options of the group `analyzer`; returns them by name.

    A broken one is left out where a pattern matches it, and refused where it is named. A name that no plugin has may be
    a config of a package, a variant of any of them: then all are registered.
    """
    names = {name for pattern in patterns for name in match(pattern, plugins.names)}
    for name in names.intersection(patterns):
        plugins.select(name)
    classes = dict(plugins.load(names or None))
    register_plugins("analyzer", classes)
    return classes if names else {}


def _check_options(words: Sequence[str], options: Sequence[Option]) -> None:
    """Raise BadInput for an option that none of the analyzers asked for has, or a value that it does not take."""
    by_key = {option.key: option for option in options}
    for word in words:
        key, _, value = word.partition("=")
        key = ".".join(key.lstrip("+~").split(".")[:2])
        if key in by_key:
            by_key[key].check(value)
        elif key.startswith("analyzer."):
            raise no_option(key, list(by_key), shown=list(by_key), more=f"{program()} plugins")


def _analyze(request: Request, *, form: Format) -> int:
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


def _run(config: AnalyzeConfig, form: Format) -> None:
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
            formats=[format_.value for format_ in config.figures],
            again=config.again,
        )
    if form is Format.json:
        print_json(_document(section, run_id))
        return
    show(section)
    say_reused(int(reused), remedy="again=yes")
    if run_id:
        say(f"report   {short_path(store.analyses().reader.report_page(run_id))}")
    else:
        say(f"not logged: the tracking store {store.shown} cannot be written")


def _document(section: Section, run_id: str) -> dict[str, object]:
    """Return the result of an analyzer for programs: tables as lists of rows."""
    report = section.report
    tables = {name: table.frame.to_dict("records") for name, table in report.tables.items()}
    return {
        "analyzer": section.name,
        "run_id": run_id,
        "metrics": report.metrics,
        "findings": section.findings,
        "notes": [str(note) for note in report.notes],
        "tables": tables,
    }


def main(arguments: Sequence[str]) -> int:
    """Analyze; returns the exit code."""
    options, words = ANALYZE.split(arguments)
    return HydraCommand(_read, partial(_analyze, form=options.format))(words)
