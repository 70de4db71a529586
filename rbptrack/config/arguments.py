"""The words of a command line, before Hydra reads them: its flags, and unknown options."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn, Protocol

from rbptrack.base.errors import BadInput, nearest, unknown
from rbptrack.base.user_paths import user_path
from rbptrack.config.hydra_internals import flags_parser
from rbptrack.config.keys import Keys, no_flag, no_option, options_of
from rbptrack.config.patterns import as_value, chosen_by, families, lists_as_values, split_list
from rbptrack.config.registration import family_and_size
from rbptrack.config.schema import AnalyzeConfig, Config, ReportConfig
from rbptrack.console.output import program

SCHEMAS = {"config": (Config, "measure"), "analyze": (AnalyzeConfig, "analyze"), "report": (ReportConfig, "report")}
"""Of each primary config: what it composes to, and the command whose help explains its options."""


_CONFIGS = "rbptrack has configs of its own; --config-dir FOLDER adds yours"
_IGNORED = dict.fromkeys(("--config-name", "-cn", "--config-path", "-cp"), _CONFIGS)
_IGNORED["--experimental-rerun"] = "run the command again; it continues where it stopped"


OWN_FLAGS = ("--open", "--json", "--quiet")
"""Words with a dash that commands take beside Hydra's."""


class Choices(Protocol):
    """The available choices (`rbptrack.config.compose.Composer`)."""

    config_name: str

    def options(self, group: str) -> list[str]:
        """Return every name in a config group."""

    def groups(self) -> list[str]:
        """Return the config groups."""


def parse_flags(arguments: Sequence[str], keys: Collection[str] = ()) -> Namespace:
    """Read Hydra's own flags; `overrides` of the result: the other words, which Hydra takes in one stretch only.

    Args:
        arguments: the command line.
        keys: the options of the command, for the error where one is typed with a dash.

    """
    for word in arguments:
        if (name := word.partition("=")[0]) in _IGNORED:
            raise BadInput(f"{name} is not taken: {_IGNORED[name]}")
    parser = flags_parser()
    flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    for number, word in enumerate(arguments):
        if word.startswith("--") and not any(flag.startswith(word.partition("=")[0]) for flag in flags):
            raise no_flag(word, arguments[number + 1 :], keys, [*flags, *OWN_FLAGS])
    parser.error = _flag_error  # type: ignore[method-assign]
    return parser.parse_intermixed_args(list(arguments))


def _flag_error(message: str) -> NoReturn:
    raise BadInput(f"{message}; {program()} --hydra-help lists Hydra's flags")


def check_keys(overrides: Sequence[str], composer: Choices, chosen_by: Sequence[str], lists: Mapping[str, str]) -> None:
    """Raise BadInput for an unknown option, before Hydra proposes to add it with `+`, and for an unknown
    choice.
    """
    schema, command = SCHEMAS[composer.config_name]
    keys = Keys.of(schema)
    checked = {option.key: option for option in options_of(schema)}
    groups = composer.groups() if composer.config_name == "config" else list(chosen_by)
    options = [*groups, *lists, *keys.settable]
    compared = any(override.startswith(("reference=", "+model@reference=")) for override in overrides)
    for override in overrides:
        key, equals, value = override.partition("=")
        if key.startswith("reference.") and not compared:
            raise BadInput(f"{override}: which reference? Give reference=MODEL, too, such as reference=nano/2m")
        key = key.lstrip("+~").strip()
        if equals and not key:
            raise BadInput(f"{override}: expected key=value; the key is missing")
        if not equals and not override.startswith("~"):
            raise _no_value(override, composer, groups, options)
        if key in checked:
            checked[key].check(value)
        if key.startswith(("hydra.", "hydra/")) or "@" in key or "/" in key:
            _refuse_folders(key)
        elif key not in keys and key not in options:
            shown = [name for name in options if "." not in name]
            raise no_option(key, options, shown=shown, more=f"{program()} help {command}")
        elif key in groups and key not in (*chosen_by, "k") and value != "null" and "(" not in value:
            for name in split_list(value):
                if name not in composer.options(key):
                    raise unknown(key, name, composer.options(key))


def _no_value(word: str, composer: Choices, groups: Sequence[str], keys: Sequence[str]) -> BadInput:
    """Return the error for a word without `=`; it may be a key without its value, or a name whose key is missing."""
    if word in keys:
        return BadInput(f"{word}: expected {word}=...")
    for group in groups:
        if near := nearest(word, composer.options(group), most=1):
            return BadInput(f"{word}: expected key=value. Did you mean {group}={near[0]}?")
    near = nearest(word, keys, most=1)
    return BadInput(f"{word}: expected key=value, such as {near[0] if near else keys[0]}=...")


_OWN_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir", "hydra.job.chdir")


def _refuse_folders(key: str) -> None:
    """Refuse folders of Hydra's: a sweep finds its cells' outcomes in Hydra's own, and results go to the tracking
    store.
    """
    if key in _OWN_FOLDERS:
        raise BadInput(
            f"{key} cannot be set: what Hydra writes of a sweep lies in mlruns/hydra, where the sweep reads it again. "
            "tracking.uri=... says where results go"
        )


def reference_group(argument: str, composer: Choices) -> list[str]:
    """Return `reference=nano/2m`, several of them, a folder or a hub id, in the words with which Hydra puts a model
    there.
    """
    key, _, value = argument.partition("=")
    if key != "reference" or value in ("", "null"):
        return ["reference=null" if key == "reference" else argument]
    names = [name for name in composer.options("model") if name != "hf"]  # that one says what the model's own keys do
    folder = user_path(value)
    own = value not in names and value.partition("/")[0] not in families(names) and "*" not in value
    if own and (folder.is_dir() or re.fullmatch(r"[\w.-]+/[\w.-]+", value)):
        repo, path = ("", str(folder)) if folder.is_dir() else (value, "")
        family, size = family_and_size(repo, path)
        parts = {"family": family, "size": size, "repo": repo, "path": path}
        return ["+model@reference=hf", *(f"reference.{name}={as_value(text)}" for name, text in parts.items())]
    return [f"+model@reference={','.join(chosen_by('reference', value, names))}"]


def k_group(argument: str, composer: Choices) -> str:
    """Return `k=1,10` as the words that set a list of k; `k=paper`, a named list, as it is."""
    key, _, value = argument.partition("=")
    if key != "k" or value in composer.options("k"):
        return argument
    parts = value.strip("[]").split(",")
    if not all(part.strip().lstrip("-").isdigit() for part in parts):
        near = nearest(value, composer.options("k"))
        meant = f" Did you mean k={near[0]}?" if near else ""
        raise BadInput(
            f"k={value}: expected numbers such as k=1,10,100 or a named list.{meant} "
            f"Options: {', '.join(composer.options('k'))}"
        )
    return lists_as_values([argument], {"k": "k.values"})[0]
