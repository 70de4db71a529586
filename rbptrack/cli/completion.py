"""Complete words on the command line when the user presses Tab."""

from __future__ import annotations

from collections.abc import MutableMapping

import typer

from rbptrack.config.patterns import GROUP_BY_KEY, sizes_by_family


def complete_words(context: typer.Context, incomplete: str) -> list[str]:
    """Return completions of a word of `measure`, `plan` or `demo`: keys, or names of configs such as models.

    Bash splits `model=nano/` into the three words `model`, `=` and `nano/`, and asks to complete the last one. Other
    shells treat it as one word.

    The parameter `words` of Typer's context holds the words before the one to complete.
    """
    from rbptrack.config.hints import suggested_keys

    previous_words = context.params.get("words") or []
    if incomplete == "=":
        return _complete_value(previous_words[-1] if previous_words else "", "")
    if previous_words and previous_words[-1] == "=":
        return _complete_value(previous_words[-2] if len(previous_words) > 1 else "", incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={completed}" for completed in _complete_value(key, value)]
    return [f"{suggested}=" for suggested in suggested_keys() if suggested.startswith(incomplete)]


def complete_analyzers(incomplete: str) -> list[str]:
    """Return the names of the analyzers that begin with `incomplete`."""
    from rbptrack.discovery import ANALYZERS, find_plugins

    return [name for name in find_plugins(ANALYZERS).names if name.startswith(incomplete)]


def insert_measure(environment: MutableMapping[str, str]) -> None:
    """Insert `measure` into a command line that begins with a key, such as `rbptrack model=<Tab>`, to complete it.

    Shells pass the command line in environment variables. This function changes them.
    """
    for variable in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        program, _, words = environment.get(variable, "").replace("\n", " ").partition(" ")
        if words.partition("=")[0].strip() in GROUP_BY_KEY and "=" in words:
            environment[variable] = f"{program} measure {words}"
            environment["COMP_CWORD"] = str(int(environment.get("COMP_CWORD", "0")) + 1)


def _complete_value(key: str, value: str) -> list[str]:
    """Return completions of the value of a key. In a list with commas, the last element is completed."""
    if key not in GROUP_BY_KEY:
        return []
    from rbptrack.config.choices import config_names

    names = config_names(GROUP_BY_KEY[key])
    first_elements, comma, last_element = value.rpartition(",")
    options = [*names, *(f"{family}/*" for family in sizes_by_family(names))]
    return [f"{first_elements}{comma}{option}" for option in options if option.startswith(last_element)]
