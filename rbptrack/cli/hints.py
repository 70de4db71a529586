"""Errors for commands, options and words that do not exist. They say what the user may have meant.

The errors for options of `measure`, such as `model=`, are in `rbptrack.config.hints`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.exceptions import TyperException

from rbptrack.base.errors import BadInput, nearest, suggestion
from rbptrack.console.output import program_name

_OTHER_COMMANDS = {
    **dict.fromkeys(("eval", "evaluate", "run", "compute"), "measure model=MODEL dataset=DATASET"),
    **dict.fromkeys(("runs", "results", "ls", "status"), "list"),
    **dict.fromkeys(("fit", "law", "plot"), "analyze power_law"),
    **dict.fromkeys(("model", "dataset"), "model=MODEL dataset=DATASET"),
    "config": "--cfg job",
}
"""What to write for a word that is not a command."""

_OTHER_WORDS = {
    ("list", "models"): "models",
    ("list", "datasets"): "datasets",
    ("plugins", "list"): "plugins",
    ("models", "family"): "models 'FAMILY/*'",
    ("export", "format"): "list --format csv",
    ("report", "html"): "report --out FILE.html",
    ("analyze", "--out"): "report --analyzers ANALYZER --out FILE.html",
}
"""What to write for a word or option that a command does not have, by the command and the word."""


def unknown_command_error(word: str, commands: Sequence[str]) -> BadInput:
    """Return the error for a word that is not a command. It suggests a similar command, model or dataset."""
    if word in _OTHER_COMMANDS:
        return BadInput(f"no command {word}.{suggestion([f'{program_name()} {_OTHER_COMMANDS[word]}'])}")
    if word in ("delete", "remove", "rm"):
        return BadInput(f"no command {word}: delete runs in MLflow, on its page or with mlflow runs delete --run-id ID")
    if near := nearest(word, commands):
        quoted = f"'{near[0]}'"
        return BadInput(f"no command {word}.{suggestion([quoted])}")
    from rbptrack.config.choices import config_names

    for key in ("model", "dataset"):
        if near := nearest(word, config_names(key)):
            return BadInput(f"no command {word}.{suggestion([f'{key}={near[0]}'])}")
    return BadInput(f"no command {word}. To list the commands: {program_name()} --help")


def usage_error_text(error: TyperException) -> str:
    """Return the text for an error of Typer: what was wrong, what the user may have meant, and an example."""
    context = getattr(error, "ctx", None)
    if context is None:
        return " ".join(f"{error.format_message().rstrip('.')}.".split())
    example = str(context.get_usage())
    for line in (context.command.help or "").splitlines():
        if line.startswith("Example: "):
            example = line
            break
    problem = _explain(error, context.command).replace("Value error, ", "")  # Typer gives the type of Python's error
    return " ".join(f"{problem} {example}".split())


def _explain(error: TyperException, command: Any) -> str:
    """Return what was wrong and what the user may have meant: another option, or a condition on a column."""
    option = getattr(error, "option_name", "")
    if len(option) == 2:  # a single letter, such as -f
        flags = [flag for parameter in command.params for flag in parameter.opts]
        if near := [flag for flag in flags if flag.startswith(f"--{option[1]}")]:
            return f"{error.message}.{suggestion(near)}"
    for (name, word), instead in _OTHER_WORDS.items():
        if command.name == name and word in error.message:
            return f"{error.message}.{suggestion([f'{program_name()} {instead}'])}"
    if any(parameter.name == "where" for parameter in command.params):
        from rbptrack.measurement.columns import DTYPE_BY_COLUMN

        if "extra argument" in error.message:
            return f"{error.message}. Options select measurements: --family, --size, --model or --dataset."
        column = option.lstrip("-").replace("-", "_")
        if column in DTYPE_BY_COLUMN:
            value = "'VALUE'" if DTYPE_BY_COLUMN[column] == "string" else "VALUE"
            condition = f'--where "{column} == {value}"'
            return f"{error.message}.{suggestion([condition])}"
    return f"{error.format_message().rstrip('.')}."
