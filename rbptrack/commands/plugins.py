"""`python -m rbptrack plugins`: every analyzer there is, where it comes from, its options, and what failed to load."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from rbptrack.analysis.contract import question
from rbptrack.base.words import short_path
from rbptrack.commands.options import OptionsCommand
from rbptrack.config.paths import builtin_folder, config_packages
from rbptrack.console.output import complain, say, say_wrapped
from rbptrack.console.tables import Format, print_json
from rbptrack.reporting.discovery import Plugins, discover


@dataclass
class PluginsConfig:
    """Options of the command."""

    plugins: dict[str, list[str]] = field(default_factory=lambda: {"path": []})
    format: Format = Format.table


def _plugins(config: PluginsConfig) -> int:
    """List; returns 1 if something failed to load."""
    plugins = discover(config.plugins.get("path", []))
    if config.format is Format.json:
        print_json(
            {"analyzers": [_entry(name, plugins) for name in sorted(plugins.analyzers)], "broken": plugins.broken}
        )
        return 1 if plugins.broken else 0
    for name in sorted(plugins.analyzers):
        _show(name, plugins)
    for package, owner in config_packages()[0].items():
        say(f"configs {package} (of {owner})")
    for line in plugins.broken:
        complain(f"failed to load: {line}")
    return 1 if plugins.broken else 0


def _entry(name: str, plugins: Plugins) -> dict[str, object]:
    options = {f.name: _default(f) for f in fields(plugins.analyzers[name])}
    made = {"origin": plugins.origin[name], "version": plugins.version[name]}
    return {"name": name, "question": question(plugins.analyzers[name]), **made, "options": options}


def _show(name: str, plugins: Plugins) -> None:
    cls = plugins.analyzers[name]
    origin, version = plugins.origin[name], plugins.version[name]
    if Path(origin).parent == builtin_folder().resolve():
        origin = "rbptrack"
    elif Path(origin).is_absolute():
        origin = short_path(origin)
    say(f"{name}  ({origin}{' ' * bool(version)}{version})")
    say_wrapped(f"  {question(cls)}", lines=2)
    given = " ".join(f"{f.name}={_default(f)}" for f in fields(cls)) or "none"
    say_wrapped(f"  options: {given}", lines=4)


def _default(option: Field[Any]) -> object:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return "(required)" if option.default is MISSING else option.default


main = OptionsCommand("plugins", PluginsConfig, _plugins, lists={"plugins.path": "plugins.path"})
