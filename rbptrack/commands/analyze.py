"""`python -m rbptrack analyze`: run analyzers over the tracking store; no model, no torch."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from rbptrack.analysis import analyze
from rbptrack.analyzer import Analyzer
from rbptrack.composition import Composer, cells
from rbptrack.config import AnalyzeConfig, typed
from rbptrack.console import complain, say
from rbptrack.discovery import Plugins, conf_folder, discover
from rbptrack.errors import RbptrackError
from rbptrack.overrides import expand, lists_as_values
from rbptrack.tracking import Store

_FILTERS = {key: f"filter.{key}" for key in ("family", "size", "dataset", "sweep")}


def main(arguments: list[str]) -> int:
    """Analyse; returns the exit code: 0, 1 if an analyzer failed; raises BadInput for exit code 2."""
    arguments = lists_as_values(arguments, _FILTERS)
    plugins = discover(_plugin_folders(arguments))
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    composer = Composer("analyze", arguments)
    arguments, _ = expand(arguments, groups=("analyzer",), options=lambda group: _names(plugins))
    if any(a.startswith("-") for a in arguments):
        _hand_to_hydra(arguments)
        return 0
    _reject_unknown(arguments, plugins)
    configs = [composer.compose_typed(job) for job in cells(arguments)]
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


def _names(plugins: Plugins) -> list[str]:
    return sorted(plugins.analyzers)


def _reject_unknown(arguments: list[str], plugins: Plugins) -> None:
    for argument in arguments:
        if argument.startswith("analyzer="):
            for name in argument.partition("=")[2].split(","):
                plugins.select(name)


def _plugin_folders(arguments: list[str]) -> list[str]:
    from rbptrack.overrides import split_list

    for argument in arguments:
        if argument.startswith("plugins.path="):
            return split_list(argument.partition("=")[2])
    return []


def _run(config: AnalyzeConfig) -> None:
    store = Store(config.tracking)
    runs = store.runs(config.filter)
    analyzer: Analyzer = config.analyzer
    sweep = config.filter.sweep[0] if len(config.filter.sweep) == 1 else ""
    done = analyze(store, runs, analyzer, sweep=sweep)
    say(f"report   {store.artifact_uri(done.run_id)}/report.html")


def _hand_to_hydra(arguments: list[str]) -> None:
    sys.argv = ["python -m rbptrack analyze", *arguments]
    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="analyze")(_job)()


def _job(composed: DictConfig) -> None:
    _run(typed(composed))
