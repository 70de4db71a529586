"""`python -m rbptrack plugins`: every plugin, its source and options, and load errors."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from rbptrack.analysis.discovery import KINDS, Plugins, discover
from rbptrack.analysis.plugin import help_line
from rbptrack.base.words import short_path
from rbptrack.commands.declared.exchange import PLUGINS, PluginsConfig
from rbptrack.config.paths import config_packages
from rbptrack.console.output import complain, say, say_wrapped
from rbptrack.console.tables import Format, print_json


def _plugins(config: PluginsConfig) -> int:
    """List; returns 1 if something failed to load."""
    catalogues = [discover(kind, config.plugins.get("path", [])) for kind in KINDS]
    for plugins in catalogues:
        plugins.load()
    packages, wrong = config_packages()
    broken = list(dict.fromkeys([*(line for plugins in catalogues for line in plugins.broken), *wrong]))
    if config.format is Format.json:
        lists = {
            f"{catalogue.kind.word}s": [_entry(name, catalogue) for name in catalogue.names] for catalogue in catalogues
        }
        print_json({**lists, "broken": broken})
        return 1 if broken else 0
    for plugins in catalogues:
        for name in plugins.names:
            _show(name, plugins)
    for package, owner in packages.items():
        say(f"configs {package} (of {owner})")
    for line in broken:
        complain(f"failed to load: {line}")
    return 1 if broken else 0


def _entry(name: str, plugins: Plugins[Any]) -> dict[str, object]:
    cls = plugins.select(name)
    source = plugins.sources[name]
    options = {option.name: _value(option) for option in fields(cls)}
    return {
        "name": name,
        "question": help_line(cls),
        "origin": source.origin,
        "version": source.version,
        "options": options,
    }


def _show(name: str, plugins: Plugins[Any]) -> None:
    cls = plugins.select(name)
    source = plugins.sources[name]
    origin = source.origin
    if source.is_built_in:
        origin = "rbptrack"
    elif Path(origin).is_absolute():
        origin = short_path(origin)
    say(f"{name}  ({' '.join(filter(None, [plugins.kind.word, origin, source.version]))})")
    say_wrapped(f"  {help_line(cls)}", lines=2)
    options = " ".join(f"{option.name}={_value(option)}" for option in fields(cls)) or "none"
    say_wrapped(f"  options: {options}", lines=4)


def _value(option: Field[Any]) -> object:
    """Return the default of an option."""
    if option.default_factory is not MISSING:
        return option.default_factory()
    return "(required)" if option.default is MISSING else option.default


main = PLUGINS.running(_plugins)
