"""Translate the words of a command line to Hydra's grammar: separate flags, expand patterns, and quote lists."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException

from rbptrack.base.errors import BadInput, nearest, suggestion, unknown_name
from rbptrack.base.secrets import shown_address
from rbptrack.config.check import refuse_secrets
from rbptrack.config.keys import is_free_key, is_key, key_types, suggested_keys
from rbptrack.config.paths import config_folders, user_path
from rbptrack.config.patterns import (
    GROUP_BY_KEY,
    is_pattern,
    natural_key,
    no_match_error,
    select_names,
    sizes_by_family,
    split_list,
)
from rbptrack.config.registration import add_config, register
from rbptrack.config.yaml_texts import refuse_altered_texts

_HYDRA_KEYS = ("hydra/", "hydra.")
_SEARCH_PATH = "hydra.searchpath="
_PATH_BEGINNINGS = ("./", "../", "/", "~")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
# Hydra reads other words as numbers, truth values or signs of its grammar: 123e4567 is infinity for it.
_NEEDS_NO_QUOTES = re.compile(r"(?!(?:true|false|null|nan|inf)$)[a-z_][\w./:-]*", re.ASCII | re.IGNORECASE)
# A value, or several to sweep over, which may also be written as choice(a,b).
_VALUES = re.compile(r"(?P<choice>choice\()?(?P<values>[^'\"()\[\]{}$]+)(?(choice)\))")

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

_INFO_VALUES = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_FLAGS = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_FLAGS.add_argument("-m", "--multirun", action="store_true")
_FLAGS.add_argument("-cd", "--config-dir", action="append", default=[])
_FLAGS.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
_FLAGS.add_argument("-i", "--info", nargs="?", const="all", choices=_INFO_VALUES)
_FLAGS.add_argument("-p", "--package")
_FLAGS.add_argument("--resolve", action="store_const", const="--resolve")
_FLAGS.add_argument("--hydra-help", action="store_const", const="--hydra-help")


@dataclass(frozen=True)
class CommandLine:
    """The content of a command line.

    Attributes:
        overrides: the settings of cells, in Hydra's grammar.
        for_hydra: flags of Hydra that print something, such as `--cfg=job`, and settings of its launchers and sweepers.
            If there are any, `hydra.main` must run the command line.
        search_path: a list with one override, which adds folders of configs to Hydra's search path; empty if there are
            no such folders.
        multirun: whether the command line has `-m`.

    """

    overrides: list[str]
    for_hydra: list[str]
    search_path: list[str]
    multirun: bool


@dataclass(frozen=True)
class Choices:
    """The configs that a command line may choose from.

    Attributes:
        folders: folders of configs, with `model/<family>/<size>.yaml`, `dataset/*.yaml` and so on.
        added: names of configs that were added for folders, files and repositories without a config.

    """

    folders: Sequence[Path]
    added: list[str] = field(default_factory=list)

    def names(self, group: str) -> list[str]:
        """Return the names of all configs of a group, such as `pythia/70m`, sorted by size."""
        names = set()
        for folder in self.folders:
            for path in (folder / group).rglob("*.yaml"):
                if path.is_file():
                    names.add(path.relative_to(folder / group).with_suffix("").as_posix())
        return sorted(names, key=natural_key)

    def check_texts(self, group: str, name: str) -> None:
        """Raise BadInput if YAML alters a text in the config of this name (`refuse_altered_texts`)."""
        for folder in self.folders:
            if (file := folder / group / f"{name}.yaml").is_file():
                refuse_altered_texts(file, group)

    def add(self, group: str, element: str, *, based_on: str, **values: object) -> str:
        """Add a config for a folder, file or repository without a config. Returns the name of the new config.

        Args:
            group: `model` or `dataset`.
            element: the folder, file or repository as the user wrote it.
            based_on: the config that sets the other keys.
            **values: the values that the config sets, by key.

        """
        name = f"given/{re.sub(r'[^A-Za-z0-9]+', '-', element).strip('-') or 'here'}"
        add_config(group, name, values, based_on=based_on)
        self.added.append(name)
        return name


def config_names(group: str) -> list[str]:
    """Return the names of a group's configs in the folders that are always searched."""
    return Choices(config_folders()).names(group)


def read_command_line(words: Sequence[str]) -> CommandLine:
    """Read the words of a command line: Hydra's overrides and flags, and four forms that Hydra does not have.

    The four forms are patterns (`model=pythia/*,!pythia/12b`), a list of k (`k=1,10`), a model as the reference
    (`reference=nano/2m`), and models and datasets without a config (`model=org/name`, `dataset=./texts`).

    Raises:
        BadInput: a word is neither key=value nor a flag, a key or name does not exist, or a key appears twice.

    """
    register()
    try:
        flags, other_words = _FLAGS.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise BadInput(str(error)) from error
    folders = [_config_folder(text) for text in flags.config_dir]
    setting_words = []
    for word in other_words:
        if word.startswith(_SEARCH_PATH):
            folders.extend(map(_config_folder, split_list(word.removeprefix(_SEARCH_PATH))))
        else:
            setting_words.append(word)
    choices = Choices([*config_folders(), *folders])
    overrides = [_translate_word(word, choices) for word in setting_words]
    keys = [override.partition("=")[0].lstrip("+~") for override in overrides]
    _check_keys(keys)
    if "dataset.seq_len" in keys and "dataset.shorten" not in keys:
        overrides.append("dataset.shorten=false")  # a length that the user sets is not changed
    # Hydra searches the first folder anyway.
    further_folders = [_quote(f"file://{folder}") for folder in choices.folders[1:]]
    of_hydra = [override for override in overrides if override.lstrip("+~").startswith(_HYDRA_KEYS)]
    return CommandLine(
        overrides=[override for override in overrides if override not in of_hydra],
        for_hydra=[*_format_show_flags(flags), *of_hydra],
        search_path=[f"{_SEARCH_PATH}[{','.join(further_folders)}]"] if further_folders else [],
        multirun=flags.multirun,
    )


def parse_override(override: str) -> Override:
    """Parse an override with Hydra's parser. Raises BadInput if it cannot be read."""
    try:
        override.encode()  # raises UnicodeEncodeError if the word holds bytes that are not text
        return OverridesParser.create().parse_override(override)
    except (HydraException, UnicodeEncodeError) as error:
        key, equals, value = override.partition("=")
        shown = key + equals + (shown_address(value) if key == "tracking.uri" else value)
        raise BadInput(
            f"{shown} cannot be read: quote a value with special characters, as in \"key='a(b)'\""
        ) from error


def _check_keys(keys: Sequence[str]) -> None:
    """Raise BadInput if a key is set twice, or if a key of the reference is set without a reference."""
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"{key}= is given twice: to sweep over several values, give them as a list, {key}=a,b")
        if key.startswith("reference.") and "model@reference" not in keys:
            raise BadInput(f"{key}= is given without a reference: give reference=MODEL too, such as reference=nano/2m")


def _format_show_flags(flags: argparse.Namespace) -> list[str]:
    flags_with_value = {"cfg": flags.cfg, "info": flags.info, "package": flags.package}
    words = [f"--{name}={value}" for name, value in flags_with_value.items() if value]
    return [*words, *filter(None, (flags.resolve, flags.hydra_help))]


def _config_folder(text: str) -> Path:
    folder = user_path(text.removeprefix("file://"))
    if not folder.is_dir():
        raise BadInput(f"{text}: this folder of configs does not exist")
    return folder.absolute()


def _translate_word(word: str, choices: Choices) -> str:
    if word.startswith("-"):
        raise _unknown_flag_error(word)
    prefixed_key, equals, value = word.partition("=")
    key = prefixed_key.lstrip("+~").strip()
    _check_key(word, key, choices)
    if prefixed_key.startswith("~") and key in key_types() and not is_free_key(key):
        raise BadInput(f"{word}: an option with a fixed name cannot be removed. To change its value, give {key}=VALUE")
    if not equals or prefixed_key.startswith("~") or value == "null":
        return word
    if key == "k" and value not in choices.names("k"):
        return _override_for_ks(value, choices.names("k"))
    if key == "reference":
        return f"+model@reference={_expand_names(word, key, value, choices)}"
    if key in GROUP_BY_KEY:
        return f"{prefixed_key}={_expand_names(word, key, value, choices)}"
    key_type = key_types().get(key)
    if get_origin(key_type) is list:  # `a,b` is one list, not two values to sweep over
        return f"{prefixed_key}=[{','.join(map(_quote, split_list(value)))}]"
    if (key_type is str or is_free_key(key)) and (match := _VALUES.fullmatch(value)):
        value = ",".join(map(_quote, split_list(match["values"])))
    if is_free_key(key):
        return f"++{key}={value}"
    return f"{prefixed_key}={value}"


def _check_key(word: str, key: str, choices: Choices) -> None:
    """Raise BadInput if a word has no key, or if its key does not exist. The message suggests similar names."""
    if not key or ("=" not in word and not word.startswith("~")):
        for group in ("model", "dataset"):
            if near := nearest(word, choices.names(group)):
                raise BadInput(f"{word}: expected key=value.{suggestion([f'{group}={near[0]}'])}")
        raise BadInput(f"{word}: expected key=value, such as model=nano/6k")
    refuse_secrets({key: word.partition("=")[2]})
    if key.startswith(_HYDRA_KEYS) and "chdir" in word:
        raise BadInput(f"{word}: cells cannot change the folder, because all of them use the same store and paths")
    if key in GROUP_BY_KEY or is_key(key) or key.startswith(_HYDRA_KEYS) or "@" in key:
        return
    if hint := _COMMANDS_ELSEWHERE.get(key):
        raise BadInput(f"there is no option {key}. {hint}")
    suggested = suggestion([f"{name}=" for name in _similar_options(key)])
    raise BadInput(f"there is no option {key}.{suggested} --cfg job shows all options and their values")


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


def _unknown_flag_error(word: str) -> BadInput:
    name, equals, value = word.lstrip("-").partition("=")
    if hint := _COMMANDS_ELSEWHERE.get(name.replace("-", "_")):
        return BadInput(f"unknown option {word}. {hint}")
    if name in GROUP_BY_KEY or is_key(name):
        return BadInput(f"unknown option {word}. Write {name}={value if equals else '...'}")
    flags = ["--multirun", "--config-dir", "--cfg", "--info", "--hydra-help", "--help"]
    if not nearest(word, flags) and (near := _similar_options(name)):
        return BadInput(f"unknown option {word}.{suggestion([f'{option}=' for option in near])}")
    return unknown_name("option", word, flags)


def _override_for_ks(value: str, k_config_names: Sequence[str]) -> str:
    """Return the override `k.values=[...]`. The list of k is one value, which is not swept over."""
    numbers = split_list(value)
    if not numbers or not all(re.fullmatch(r"-?\d+", number) for number in numbers):
        raise BadInput(f"k={value}: give numbers such as k=1,10,100, or one of the names {', '.join(k_config_names)}")
    return f"k.values=[{','.join(numbers)}]"


def _expand_names(word: str, key: str, value: str, choices: Choices) -> str:
    """Expand the value of a key such as `model` to a list of config names in Hydra's grammar.

    Names, patterns and Hydra's `glob(a/*,exclude=a/b)` are expanded. For models and datasets without a config, a config
    is added. Other functions of Hydra, such as `choice(a,b)`, are not changed.
    """
    if re.match(r"\w+\(", value):
        function = parse_override(word).value()
        if not isinstance(function, Glob):
            return value
        elements = [*function.include, *(f"!{pattern}" for pattern in function.exclude)]
    else:
        elements = split_list(value)
    group = GROUP_BY_KEY[key]
    names = choices.names(group)
    elements = [path for element in elements for path in _expand_folders(group, element)]
    elements = [_find_or_add_config(group, element, names, choices) for element in _add_families(elements, names)]
    chosen = select_names(key, elements, [*names, *(element for element in elements if element in choices.added)])
    for name in chosen:
        choices.check_texts(group, name)
    return ",".join(map(_quote, chosen))


def _add_families(elements: Sequence[str], names: Sequence[str]) -> list[str]:
    """Add the family to sizes without one: `nano/6k,15k` becomes `nano/6k,nano/15k`."""
    completed: list[str] = []
    family = ""
    for element in elements:
        with_family = f"{family}/{element}"
        if family and element not in names and with_family in names:
            element = with_family
        if element in names:
            family = element.rpartition("/")[0]
        completed.append(element)
    return completed


def _expand_folders(group: str, element: str) -> list[str]:
    """Expand a pattern of model folders, such as `./out/*/checkpoint-*`. Any other element stands for itself.

    Raises BadInput if no folder matches.
    """
    if group != "model" or not element.startswith(_PATH_BEGINNINGS) or not is_pattern(element):
        return [element]
    path = user_path(element).absolute()
    folders = [str(found) for found in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if found.is_dir()]
    if not folders:
        raise BadInput(f"model={element}: no folder matches")
    return sorted(folders, key=natural_key)


def _find_or_add_config(group: str, element: str, names: Sequence[str], choices: Choices) -> str:
    """Return the config name for an element of a list of models or datasets.

    Names and patterns are returned unchanged. For a folder, file or repository, a config is added, and its name is
    returned.
    """
    if element in names or group not in ("model", "dataset"):
        return element
    if element.startswith(_PATH_BEGINNINGS) or element in (".", ".."):
        path = user_path(element)
        if group == "model" or path.is_dir():
            return choices.add(group, element, based_on="hf", path=str(path))
        name = re.sub(r"[*?\[\]]+", "", path.stem).strip("-_.") or "files"
        return choices.add(group, element, based_on="files", files=[str(path)], name=name)
    if is_pattern(element) or not _REPOSITORY.fullmatch(element):
        return element
    family, _, size = element.partition("/")
    known_sizes = sizes_by_family(names)
    similar_families = nearest(family, known_sizes)
    has_similar_config = any(size.lower() in known_sizes[name] for name in similar_families)
    if family in known_sizes or has_similar_config:  # then it is a misspelled config, not a repository
        raise no_match_error(group, element, names)
    return choices.add(group, element, based_on="hf", repo=element)


def _quote(text: str) -> str:
    """Quote a text as a value in Hydra's grammar, if it needs quotes.

    A backslash escapes a quote. Other backslashes are doubled only before a quote and at the end.
    """
    if _NEEDS_NO_QUOTES.fullmatch(text):
        return text
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f"'{escaped}'"
