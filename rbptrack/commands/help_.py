"""`python -m rbptrack help [COMMAND]`, `--help`: every command in a line, or what one of them does."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from rbptrack.base.errors import unknown
from rbptrack.commands.catalogue import COMMANDS, GROUPS
from rbptrack.commands.usage import Help, asks_for_help, entries, write
from rbptrack.console.sentences import program

EVERYWHERE = {
    "-h, --help": "this page, or the help of a command",
    "-q, --quiet": "print only errors, and what was asked for",
    "--version": "the version",
}

EXAMPLES = {
    "'model=nano/*' dataset=stdlib,pydocs": "measure a family of small embedded models on two corpora, fit its law",
    "report dataset=stdlib": "the analyses of what was measured, as one page",
    "ui": "the same in MLflow",
}

HELP = Help("help [COMMAND]", "Shows every command in a line each, or what a command does, its options and examples.")


def main(arguments: Sequence[str]) -> int:
    """Show the overview, or a command's help; returns exit code 0; raises BadInput for a name that is none."""
    if asks_for_help(arguments):
        HELP.show()
        return 0
    words = [word for word in arguments if not word.startswith("-")]
    if not words:
        overview()
        return 0
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS, label="Commands", most=len(COMMANDS))
    module = import_module(f"rbptrack.commands.{COMMANDS[words[0]].module}")
    return int(module.main(["--help"]))


def overview() -> None:
    """Print every command in a line, in groups."""
    write("rbptrack measures how families of language models rank the right next token.")
    width = max(map(len, COMMANDS))
    for title, commands in GROUPS.items():
        entries(title, {name: command.summary for name, command in commands.items()}, word_width=width)
    entries("Options of every command", EVERYWHERE)
    entries("Examples", {f"{program()} {words}": meaning for words, meaning in EXAMPLES.items()}, stacked=True)
    write("")
    write(f"{program()} help COMMAND explains a command. Without a command, it measures.")
