"""Every command in a line: what `rbptrack --help`, shells' completion and the main program know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes:
        module: in rbptrack/commands, with `main(arguments) -> exit code` and, as `HELP`, what `-h` shows.
        summary: what it does, in a line.
        keys: its options, where they are not those of a config.

    """

    module: str
    summary: str
    keys: tuple[str, ...] = ()


_FILTERS = ("family", "size", "dataset", "sweep")
_STORE = ("tracking.uri", "tracking.experiment")
_BENCH = ("model", "dataset", "tokens", "seq_len", "vocabulary", "rounds", "ways", "dtype", "tf32", "device", "out")


GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Start here": {
        "demo": Command("demo", "seven embedded models on two embedded corpora, and their law"),
        "measure": Command("measure", "measure models on datasets and fit their laws"),
        "report": Command("report", "every analysis of what was measured, as one page"),
        "ui": Command("ui", "compare measurements in MLflow, in the browser", ("port", "host", *_FILTERS, *_STORE)),
    },
    "Look closer": {
        "plan": Command("plan", "what a sweep would cost, before it costs anything"),
        "list": Command(
            "list_",
            "measurements as a table, also as CSV, Markdown, LaTeX, JSON",
            (*_FILTERS, "sort", "columns", "k", "format", *_STORE),
        ),
        "show": Command("show", "one measurement: its numbers, its ranks, its files", ("k", *_STORE)),
        "analyze": Command("analyze", "one analysis, with its options"),
    },
    "Extend and exchange": {
        "plugins": Command("plugins", "the analyzers there are, and their options", ("plugins.path",)),
        "export": Command(
            "export", "measurements as one file for others", ("out", "tokens", "ranks", "documents", *_FILTERS, *_STORE)
        ),
        "import": Command(
            "import_",
            "measurements of others: bundles, tables, the authors' results",
            ("sizes", "vocab_size", "without_s", *_STORE),
        ),
    },
    "Housekeeping": {
        "verify": Command(
            "verify",
            "check the store: files, checksums, numbers, database",
            ("read_data", "repair", *_FILTERS, *_STORE),
        ),
        "sync": Command("sync", "deliver what waits for a store; repair one that was moved", ("moved", *_STORE)),
        "cache": Command("cache", "the cache of texts and tokens: its size, clearing it"),
        "bench": Command(
            "bench", "what measuring costs here, what half precision changes", (*_BENCH, "engine.threads")
        ),
        "completion": Command("completion", "Tab completion for bash and zsh"),
        "help": Command("help_", "this page, or what a command does"),
    },
}

COMMANDS: Mapping[str, Command] = {name: command for group in GROUPS.values() for name, command in group.items()}
"""By the name that users type."""
