"""Every command: what `rbptrack --help`, shells' completion and the main program know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from rbptrack.commands.declaration import Command
from rbptrack.commands.declared import closer, exchange, housekeeping, start

GROUPS: Mapping[str, Sequence[Command[Any]]] = {
    "Start here": (start.DEMO, start.MEASURE, start.REPORT, start.UI),
    "Look closer": (closer.PLAN, closer.LIST, closer.SHOW, closer.COMPARE, closer.ANALYZE),
    "Extend and exchange": (exchange.PLUGINS, exchange.EXPORT, exchange.IMPORT),
    "Housekeeping": (
        housekeeping.VERIFY,
        housekeeping.RM,
        housekeeping.SYNC,
        housekeeping.CACHE,
        housekeeping.BENCH,
        housekeeping.COMPLETION,
        housekeeping.HELP,
    ),
}

COMMANDS: Mapping[str, Command[Any]] = {command.name: command for group in GROUPS.values() for command in group}
"""The commands, by the name that users type."""


def module_of(command: str) -> ModuleType:
    """Return the module of a command, with `main(arguments) -> exit code`; only what the command needs is imported."""
    name = f"{command}_" if command in ("help", "import", "list") else command
    return import_module(f"rbptrack.commands.{name}")
