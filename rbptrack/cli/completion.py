"""Complete words on the command line when the user presses Tab."""

from __future__ import annotations

from collections.abc import MutableMapping

import typer

from rbptrack.config.patterns import families

_GROUP_OF_KEY = {
    "model": "model",
    "dataset": "dataset",
    "reference": "model",
    "k": "k",
    "protocol": "protocol",
    "launch": "launch",
}


def words(context: typer.Context, incomplete: str) -> list[str]:
    """Return completions of a word of `measure` or `plan`: keys, or models and datasets that have a config.

    Bash splits `model=nano/` into the three words `model`, `=` and `nano/`, and asks to complete the last one. Other
    shells treat it as one word.

    Args:
        context: Typer's context; its parameter `words` holds the words before the one to complete.
        incomplete: the word to complete.

    """
    from rbptrack.config.keys import keys

    before = context.params.get("words") or []
    if incomplete == "=":
        return _values(before[-1] if before else "", "")
    if before and before[-1] == "=":
        return _values(before[-2] if len(before) > 1 else "", incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={completed}" for completed in _values(key, value)]
    options = [*_GROUP_OF_KEY, *(name for name in keys() if not name.startswith("reference."))]
    return [f"{option}=" for option in options if option.startswith(incomplete)]


def analyzers(incomplete: str) -> list[str]:
    """Return the names of the analyzers that begin with `incomplete`."""
    from rbptrack.discovery import ANALYZERS, find_plugins

    return [name for name in find_plugins(ANALYZERS).names if name.startswith(incomplete)]


def insert_measure(environment: MutableMapping[str, str]) -> None:
    """Insert `measure` into the command line to complete, if it begins with a key: `rbptrack model=<Tab>`.

    Shells pass the command line in environment variables, which this function changes.
    """
    for variable in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        program, _, rest = environment.get(variable, "").replace("\n", " ").partition(" ")
        if rest.partition("=")[0].strip() in _GROUP_OF_KEY and "=" in rest:
            environment[variable] = f"{program} measure {rest}"
            environment["COMP_CWORD"] = str(int(environment.get("COMP_CWORD", "0")) + 1)


def _values(key: str, value: str) -> list[str]:
    """Return completions of a key's value. If the value is a list with commas, only its last element is completed."""
    if key not in _GROUP_OF_KEY:
        return []
    from rbptrack.config.command_line import config_names

    names = config_names(_GROUP_OF_KEY[key])
    begun, comma, last = value.rpartition(",")
    options = [*names, *(f"{family}/*" for family in families(names))]
    return [f"{begun}{comma}{option}" for option in options if option.startswith(last)]
