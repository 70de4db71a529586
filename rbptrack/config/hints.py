"""Errors for options of `measure` that do not exist. They say what the user may have meant.

The errors for commands and their flags are in `rbptrack.cli.hints`.
"""

from __future__ import annotations

from rbptrack.base.errors import BadInput, nearest, suggestion, unknown_name
from rbptrack.config.keys import is_key, key_types
from rbptrack.config.patterns import GROUP_BY_KEY

_NAMES_ELSEWHERE = {
    "models": "model",
    "datasets": "dataset",
    "tasks": "dataset",
    "limit": "dataset.documents",
    "max_length": "dataset.seq_len",
    "batch_size": "engine.batch_tokens",
}
"""The option for a word that other programs use, such as lm-evaluation-harness."""

_COMMANDS_ELSEWHERE = {
    "dry_run": "The command plan estimates what a sweep costs, and measures nothing",
    "plot": "A sweep ends with a page of charts. The command report writes one about all measurements",
    "output": "Measurements are kept in MLflow. The commands list --format csv, report --out and export write files",
}
"""The commands for a word that other programs use for an option."""


def suggested_keys() -> list[str]:
    """Return the keys that completions and messages suggest. The keys of the section `reference` are left out."""
    return [*GROUP_BY_KEY, *(name for name in key_types() if not name.startswith("reference."))]


def unknown_option_error(key: str) -> BadInput:
    """Return the error for a key that does not exist, such as `seqlen` in `seqlen=512`."""
    if hint := _COMMANDS_ELSEWHERE.get(key):
        return BadInput(f"there is no option {key}. {hint}")
    suggested = suggestion([f"{name}=" for name in _similar_options(key)])
    return BadInput(f"there is no option {key}.{suggested} --cfg job shows all options and their values")


def _similar_options(key: str) -> list[str]:
    """Return the options that a key may mean, by its whole name or by its last part: `dataset.seq_len` for `seqlen`."""
    if key in _NAMES_ELSEWHERE:
        return [_NAMES_ELSEWHERE[key]]
    options = suggested_keys()
    if near := nearest(key, options):
        return near
    last_parts = {name: name.rpartition(".")[2] for name in options}
    near = nearest(key.rpartition(".")[2], last_parts.values())[:1]
    return [name for name, last_part in last_parts.items() if last_part in near]


def unknown_flag_error(word: str) -> BadInput:
    """Return the error for a flag that Hydra does not have, such as `--model=nano/6k`."""
    name, equals, value = word.lstrip("-").partition("=")
    if hint := _COMMANDS_ELSEWHERE.get(name.replace("-", "_")):
        return BadInput(f"unknown option {word}. {hint}")
    if name in GROUP_BY_KEY or is_key(name):
        return BadInput(f"unknown option {word}. Write {name}={value if equals else '...'}")
    flags = ["--multirun", "--config-dir", "--cfg", "--resolve", "--help"]
    if not nearest(word, flags) and (near := _similar_options(name)):
        return BadInput(f"unknown option {word}.{suggestion([f'{option}=' for option in near])}")
    return unknown_name("option", word, flags)
