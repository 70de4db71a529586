"""`python -m rbptrack help [COMMAND]`, `--help`: every command in a line, or what one of them does."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.base.errors import unknown
from rbptrack.commands.catalogue import COMMANDS, GROUPS
from rbptrack.commands.usage import HELP_FLAGS, entries, write
from rbptrack.console.output import program

EVERYWHERE = {
    "-h, --help": "this page, or the help of a command",
    "-q, --quiet": "print only errors and requested output",
    "--json": "format=json, where a command has it",
    "--version": "the version",
}

EXAMPLES = {
    "'model=nano/*' dataset=stdlib,pydocs": "measure a family of small embedded models on two corpora, fit its law",
    "report dataset=stdlib": "the analyses of the measurements, as one page",
    "ui": "the same in MLflow",
}


def main(arguments: Sequence[str]) -> int:
    """Show the overview, or a command's help; returns exit code 0; raises BadInput for a name that is none."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words:
        overview()
        return 0
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS, label="Commands", most=len(COMMANDS))
    explain(words[0], [])
    return 0


def explain(command: str, arguments: Sequence[str]) -> None:
    """Print the help of a command, and the names it takes; other arguments may name more folders of it."""
    COMMANDS[command].show_help()
    arguments = [word for word in arguments if word not in HELP_FLAGS]
    if command == "measure":
        _show_models(arguments)
    elif command == "analyze":
        _show_analyzers(arguments)


def overview() -> None:
    """Print every command in a line, in groups."""
    write("rbptrack measures how families of language models rank the right next token.")
    width = max(map(len, COMMANDS))
    for title, commands in GROUPS.items():
        entries(title, {command.name: command.summary for command in commands}, word_width=width)
    entries("Options of every command", EVERYWHERE)
    entries("Examples", {f"{program()} {words}": meaning for words, meaning in EXAMPLES.items()}, stacked=True)
    write("")
    write(f"{program()} help COMMAND explains a command. Without a command, it measures.")


def _show_models(arguments: Sequence[str]) -> None:
    from rbptrack.config.compose import Composer
    from rbptrack.config.patterns import families, size_key, some

    composer = Composer("config", arguments)
    models = composer.options("model")
    folders = {f"{name}/": " ".join(some(sizes)) for name, sizes in families(models).items()}
    entries("Models (model=FAMILY/SIZE)", folders)
    plain = {"Models, others": [name for name in models if "/" not in name], "Datasets": composer.options("dataset")}
    for title, names in plain.items():
        write("")
        write(title, style="bold")
        write(", ".join(sorted(names, key=size_key)), indent=2)


def _show_analyzers(arguments: Sequence[str]) -> None:
    from rbptrack.analysis.plugin import help_line
    from rbptrack.commands.runner import complain_of_broken, find_analyzers
    from rbptrack.config.paths import plugin_folders

    plugins = find_analyzers(plugin_folders(arguments))
    entries("Analyzers", {name: help_line(analyzer) for name, analyzer in plugins.load().items()})
    complain_of_broken(plugins)
