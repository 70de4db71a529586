"""Translate the words of a command line to Hydra's grammar: separate flags, expand patterns, and quote lists."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_origin

from rbptrack.base.errors import BadInput, nearest, suggestion
from rbptrack.base.names import split_list
from rbptrack.config.check import refuse_secrets
from rbptrack.config.choices import Choices
from rbptrack.config.hints import unknown_flag_error, unknown_option_error
from rbptrack.config.keys import is_free_key, is_key, key_types
from rbptrack.config.overrides import overrides_of_cells, parse_override, quote
from rbptrack.config.paths import config_folders, user_path
from rbptrack.config.patterns import GROUP_BY_KEY
from rbptrack.config.registration import register

_HYDRA_KEYS = ("hydra/", "hydra.")
# A value, or several to sweep over, which may also be written as choice(a,b).
_VALUES = re.compile(r"(?P<choice>choice\()?(?P<values>[^'\"()\[\]{}$]+)(?(choice)\))")

_FLAGS = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_FLAGS.add_argument("-m", "--multirun", action="store_true")
_FLAGS.add_argument("-cd", "--config-dir", action="append", default=[])
_FLAGS.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
_FLAGS.add_argument("--resolve", action="store_true")


@dataclass(frozen=True)
class CommandLine:
    """The content of a command line.

    Attributes:
        overrides: the settings of cells, in Hydra's grammar.
        for_hydra: the flags `--cfg` and `--resolve`, which print the config, and settings of Hydra's launchers and
            sweepers. If there are any, `hydra.main` must run the command line.
        search_path: a list with one override, which adds folders of configs to Hydra's search path; empty if there are
            no such folders.
        multirun: whether the command line has `-m`.

    """

    overrides: list[str]
    for_hydra: list[str]
    search_path: list[str]
    multirun: bool

    def words_for_hydra(self) -> list[str]:
        """Return the words that `hydra.main` needs.

        `--multirun` is added if a key has several values. A flag that shows a config, such as `--cfg=job`, shows the
        config of the first cell.
        """
        if any(word.startswith("--") for word in self.for_hydra):
            return [*self.for_hydra, *next(overrides_of_cells(self.overrides)), *self.search_path]
        sweeps = (
            self.multirun
            or any(word.startswith("hydra/sweeper") for word in self.for_hydra)
            or any(parse_override(override).is_sweep_override() for override in self.overrides)
        )
        flags = ["--multirun"] if sweeps else []
        return [*flags, *self.for_hydra, *self.overrides, *self.search_path]


def read_command_line(words: Sequence[str]) -> CommandLine:
    """Read the words of a command line: Hydra's overrides and flags, and some forms that Hydra does not have.

    - Models and datasets may be patterns (`model=pythia/*,!pythia/12b`), sizes without their family
      (`model=nano/6k,15k`), or have no config (`model=org/name`, `dataset=./texts`).
    - The reference may be a model (`reference=nano/2m`).
    - Lists need no brackets (`k=1,10`, `dataset.fields=question,answer`).
    - Texts need no quotes, and keys that the user invents need no `+` (`dataset.where.lang=C++`).

    Raises:
        BadInput: a word is neither key=value nor a flag, a key or name does not exist, or a key appears twice.

    """
    register()
    try:
        flags, other_words = _FLAGS.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise BadInput(str(error)) from error
    folders = [*config_folders(), *map(_config_folder, flags.config_dir)]
    choices = Choices(folders)
    overrides = [_translate_word(word, choices) for word in other_words]
    keys = [override.partition("=")[0].lstrip("+") for override in overrides]
    _check_keys(keys)
    if "dataset.seq_len" in keys and "dataset.shorten" not in keys:
        overrides.append("dataset.shorten=false")  # a length that the user sets is not changed
    # Hydra searches the first folder anyway.
    further_folders = [quote(f"file://{folder}") for folder in folders[1:]]
    flags_for_hydra = [f"--cfg={flags.cfg}"] if flags.cfg else []
    if flags.resolve:
        flags_for_hydra.append("--resolve")
    of_hydra = [override for override in overrides if override.lstrip("+").startswith(_HYDRA_KEYS)]
    return CommandLine(
        overrides=[override for override in overrides if override not in of_hydra],
        for_hydra=[*flags_for_hydra, *of_hydra],
        search_path=[f"hydra.searchpath=[{','.join(further_folders)}]"] if further_folders else [],
        multirun=flags.multirun,
    )


def _check_keys(keys: Sequence[str]) -> None:
    """Raise BadInput if a key is set twice, or if a key of the reference is set without a reference."""
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"{key}= is given twice: to sweep over several values, give them as a list, {key}=a,b")
        if key.startswith("reference.") and "model@reference" not in keys:
            raise BadInput(f"{key}= is given without a reference: give reference=MODEL too, such as reference=nano/2m")


def _config_folder(text: str) -> Path:
    folder = user_path(text)
    if not folder.is_dir():
        raise BadInput(f"{text}: this folder of configs does not exist")
    return folder.absolute()


def _translate_word(word: str, choices: Choices) -> str:
    if word.startswith("-"):
        raise unknown_flag_error(word)
    prefixed_key, _, value = word.partition("=")
    key = prefixed_key.lstrip("+").strip()
    _check_key(word, key, choices)
    if value == "null":
        return word
    if key == "k" and value not in choices.names("k"):
        return _override_for_ks(value, choices.names("k"))
    if key == "reference":
        prefixed_key = "+model@reference"
    if key in GROUP_BY_KEY:
        match = _VALUES.fullmatch(value)
        names = split_list(match["values"] if match else value)
        return f"{prefixed_key}={','.join(map(quote, choices.select(key, names)))}"
    key_type = key_types().get(key)
    if get_origin(key_type) is list:  # `a,b` is one list, not two values to sweep over
        return f"{prefixed_key}=[{','.join(map(quote, split_list(value)))}]"
    if (key_type is str or is_free_key(key)) and (match := _VALUES.fullmatch(value)):
        value = ",".join(map(quote, split_list(match["values"])))
    if is_free_key(key):
        return f"++{key}={value}"
    return f"{prefixed_key}={value}"


def _check_key(word: str, key: str, choices: Choices) -> None:
    """Raise BadInput if a word has no key, or if its key does not exist. The message suggests similar names."""
    if not key or "=" not in word:
        for group in ("model", "dataset"):
            if near := nearest(word, choices.names(group)):
                raise BadInput(f"{word}: expected key=value.{suggestion([f'{group}={near[0]}'])}")
        raise BadInput(f"{word}: expected key=value, such as model=nano/6k")
    refuse_secrets({key: word.partition("=")[2]})
    if key.startswith(_HYDRA_KEYS) and "chdir" in word:
        raise BadInput(f"{word}: cells cannot change the folder, because all of them use the same store and paths")
    if key in GROUP_BY_KEY or is_key(key) or key.startswith(_HYDRA_KEYS) or "@" in key:
        return
    raise unknown_option_error(key)


def _override_for_ks(value: str, k_config_names: Sequence[str]) -> str:
    """Return the override `k.values=[...]`. The list of k is one value, which is not swept over."""
    numbers = split_list(value)
    if not numbers or not all(re.fullmatch(r"-?\d+", number) for number in numbers):
        raise BadInput(f"k={value}: give numbers such as k=1,10,100, or one of the names {', '.join(k_config_names)}")
    return f"k.values=[{','.join(numbers)}]"
