"""Every command in a line: what `rbptrack --help`, shells' completion and the main program know of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Start here": {
        "demo": "seven embedded models on two embedded corpora, and their law",
        "measure": "measure models on datasets and fit their laws",
        "report": "every analysis of what was measured, as one page",
        "ui": "compare measurements in MLflow, in the browser",
    },
    "Look closer": {
        "plan": "what a sweep would cost, before it costs anything",
        "list": "measurements as a table, also as CSV, Markdown, LaTeX, JSON",
        "show": "one measurement: its numbers, its ranks, its files",
        "analyze": "one analysis, with its options",
    },
    "Extend and exchange": {
        "plugins": "the analyzers there are, and their options",
        "export": "measurements as one file for others",
        "import": "measurements of others: bundles, tables, the authors' results",
    },
    "Housekeeping": {
        "verify": "check the store: files, checksums, numbers, database",
        "sync": "deliver what waits for a store; repair one that was moved",
        "cache": "the cache of texts and tokens: its size, clearing it",
        "bench": "how fast measuring is here",
        "completion": "Tab completion for bash and zsh",
        "help": "this page, or what a command does",
    },
}

COMMANDS: Mapping[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}
"""What each command does, by the name that users type."""


def module_of(command: str) -> ModuleType:
    """The module of a command, with `main(arguments) -> exit code`; only what the command needs is imported."""
    name = f"{command}_" if command in ("help", "import", "list") else command
    return import_module(f"rbptrack.commands.{name}")
