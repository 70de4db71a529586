"""The executors behind `launch=NAME`: found, and made options of Hydra's group `launch`, before a sweep is composed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import get_origin, get_type_hints

from rbptrack.analysis.discovery import EXECUTORS, Plugins, discover
from rbptrack.analysis.executors import Executor
from rbptrack.base.errors import BadInput
from rbptrack.config.keys import no_option, removed
from rbptrack.config.paths import plugin_folders, working_conf
from rbptrack.config.registration import register_plugins
from rbptrack.config.request import Request, measuring
from rbptrack.console.output import complain, program

LOCAL = "local"


def requested(arguments: Sequence[str]) -> Request:
    """Understand a command line that asks for cells, and maybe for an executor that runs their jobs.

    Raises:
        BadInput: an executor cannot be used, or the one that is asked for has no such option; see also `measuring`.

    """
    plugins = discover(EXECUTORS, plugin_folders(arguments))
    name = next((word.partition("=")[2] for word in reversed(arguments) if word.startswith("launch=")), "")
    classes = _chosen(name, arguments, plugins)
    register_plugins("launch", classes)
    for line in plugins.broken:
        complain(f"plugin left out: {line}")
    if not classes or list(classes) == [name]:
        _check_options(arguments, name or LOCAL, classes, plugins)
    return measuring(arguments, lists=_lists(classes))


def _chosen(name: str, arguments: Sequence[str], plugins: Plugins[Executor]) -> Mapping[str, type[Executor]]:
    """Return the executors that may be asked for: the one that is named, or all where a config may name any of them."""
    if name in plugins.sources:
        return {name: plugins.select(name)}
    more_configs = any(word.startswith(("--config-dir", "hydra.searchpath=")) for word in arguments)
    if name == LOCAL or not (name or more_configs or working_conf()):
        return {}
    return plugins.load()


def _check_options(
    arguments: Sequence[str], name: str, classes: Mapping[str, type[Executor]], plugins: Plugins[Executor]
) -> None:
    """Raise BadInput for an option that the executor lacks: the login node would measure where `launch=` was
    forgotten.
    """
    options = _options(classes)
    for word in arguments:
        key = word.partition("=")[0].lstrip("+~")
        option = ".".join(key.split(".")[:2])
        if not key.startswith("launch.") or option in options:
            continue
        if sentence := removed(key):
            raise BadInput(sentence)
        others = [other for other, cls in plugins.load().items() if option in _options({other: cls})]
        if others:
            places = " or ".join(f"launch={other}" for other in others)
            raise BadInput(f"{word} is an option of {places}; this is launch={name}")
        options = options or _options(plugins.load())
        raise no_option(key, options, shown=options, more=f"{program()} plugins")


def _options(classes: Mapping[str, type[Executor]]) -> Collection[str]:
    return list(dict.fromkeys(f"launch.{option.name}" for cls in classes.values() for option in fields(cls)))


def _lists(classes: Mapping[str, type[Executor]]) -> list[str]:
    """Return the options that take lists, so that `a,b` is one value and no sweep."""
    return [
        f"launch.{option}"
        for cls in classes.values()
        for option, kind in get_type_hints(cls).items()
        if get_origin(kind) is list
    ]
