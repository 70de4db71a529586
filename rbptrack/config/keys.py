"""The options that a command takes, as the schema has them; and the errors about others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf

from rbptrack.base.errors import BadInput, nearest, shortened
from rbptrack.config.schema import Config

_MOST = 16  # options in an error
_FEW = 5  # options that are listed where the nearest are named already: the error fits two lines

REMOVED = {
    "model.parallel": "model.parallel was removed; model.device_map=auto spreads a model over several GPUs",
    "model.processes": "model.processes was removed; model.device_map=auto spreads a model over several GPUs",
    "launch.where": "launch.where was removed; give launch=NAME, or begin the file with defaults: [NAME]",
    "launch.group": "launch.group was removed; each job pulls cells until none is left",
    "scores": "scores= was removed; import FILE takes scores, too",
    "scores_map": "scores_map was renamed: names=FILE.csv",
    "scores_metric": "scores_metric was renamed: metric=NAME",
    "hub": "hub=FOLDER was removed; write to=hub out=FOLDER",
    "output": "output= was removed; format=csv gives CSV",
}
"""Keys of earlier versions, and the sentence that their user gets; those of `model` hold for `reference` too."""


@dataclass(frozen=True)
class Option:
    """An option of a command, as the field of a dataclass declares it (`rbptrack.base.options.option`).

    Attributes:
        key: as it is typed: `family`, `model.dtype`.
        target: the key that it sets: `filter.family`.
        kind: the type of its values.
        meaning: its help; empty for one that stands on no page.
        shown: how help writes it: `family=NAME,...`.
        values: what Tab completes: words, or the name of a kind of words.

    """

    key: str
    target: str
    kind: Any
    meaning: str
    shown: str
    values: Sequence[str] | str

    @property
    def takes_list(self) -> bool:
        """Whether `a,b` is one value."""
        return get_origin(self.kind) is list

    def check(self, value: str) -> None:
        """Raise BadInput where an option that is true or false is given a number, which OmegaConf takes for true."""
        bare = value.strip("'\"")
        if self.kind is bool and bare not in ("0", "1") and re.fullmatch(r"[-+.\de]+", bare):
            raise BadInput(f"{self.key}={value}: expected true or false")


def options_of(schema: type, prefix: str = "") -> list[Option]:
    """List the options that a dataclass and those in it declare; filters are typed without a prefix."""
    options: list[Option] = []
    for field, kind in _fields(schema):
        target = f"{prefix}{field.name}"
        if is_dataclass(kind) and isinstance(kind, type):
            options += options_of(kind, f"{target}.")
            continue
        shown = field.metadata.get("shown", "")
        typed = shown.partition("=")[0] if get_origin(kind) is dict and shown else target  # plugins.path=FOLDER
        kind = list[str] if typed != target else kind
        key = typed.removeprefix("filter.")
        values = field.metadata.get("values", ()) or _values(kind)
        form = shown or f"{key}={'|'.join(values) if values and not isinstance(values, str) else 'VALUE'}"
        options.append(Option(key, typed, kind, field.metadata.get("help", ""), form, values))
    return options


def _values(kind: Any) -> Sequence[str]:
    """Return the values of an enum or a boolean."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    return ["true", "false"] if kind is bool else []


@dataclass(frozen=True)
class Keys:
    """The keys of a schema, flat.

    Attributes:
        leaves: `model.dtype`.
        folders: keys that hold others: `model`.
        free: keys below which users name their own: `dataset.where`.

    """

    leaves: list[str]
    folders: list[str]
    free: list[str]

    @classmethod
    def of(cls, schema: type) -> Keys:
        """Return the keys of a dataclass."""
        keys = cls([], [], [])
        for key, kind in _walk(schema, ""):
            {"leaf": keys.leaves, "folder": keys.folders, "free": keys.free}[kind].append(key)
        return keys

    def __contains__(self, key: str) -> bool:
        return key in self.leaves or key in self.folders or any(key == f or key.startswith(f + ".") for f in self.free)

    @property
    def settable(self) -> list[str]:
        """The keys that take a value."""
        return [*self.leaves, *self.free]


def _fields(schema: type) -> Iterator[tuple[Field[Any], Any]]:
    """Yield the fields of a dataclass with their types; of a dataclass that may be left out, that dataclass."""
    hints = get_type_hints(schema)
    for field in fields(schema):
        kind: Any = hints[field.name]
        yield field, next(filter(is_dataclass, get_args(kind)), kind)


def _walk(schema: type, prefix: str) -> Iterator[tuple[str, str]]:
    for field, kind in _fields(schema):
        key = f"{prefix}{field.name}"
        if is_dataclass(kind) and isinstance(kind, type):
            yield key, "folder"
            yield from _walk(kind, f"{key}.")
        else:
            yield key, "free" if kind is Any or get_origin(kind) is dict else "leaf"


def no_flag(word: str, following: Sequence[str], keys: Collection[str], flags: Collection[str]) -> BadInput:
    """Return the error for an option that is typed as other programs have theirs: `--model nano/6k`.

    Args:
        word: the one that begins with a dash.
        following: the words after it.
        keys: the options that the command takes.
        flags: the words that it takes with a dash.

    """
    name, equals, value = word.lstrip("-").partition("=")
    value = value if equals else next((other for other in following[:1] if "=" not in other), "...")
    if name in keys:
        return BadInput(f"unknown option {word!r}. Write {name}={value}")
    near = nearest(f"--{name}", [*flags, *(f"--{key}" for key in keys)], most=1)
    if near and near[0] not in flags:
        return BadInput(f"unknown option {word!r}. Did you mean {near[0].lstrip('-')}={value}?")
    remedy = f"Did you mean {near[0]}?" if near else f"Options with a dash: {', '.join(flags)}"
    return BadInput(f"unknown option {word!r}. {remedy}")


def removed(key: str) -> str | None:
    """Return the sentence about a key that was removed; None for every other key."""
    return REMOVED.get(f"model.{key.removeprefix('reference.')}" if key.startswith("reference.") else key)


def no_option(key: str, options: Collection[str], *, shown: Collection[str], more: str) -> BadInput:
    """Return the error for an option that a command does not take.

    Args:
        key: the text before `=`.
        options: every option.
        shown: those that are listed; for an option within a folder, its neighbours are.
        more: the command that explains them.

    """
    if sentence := removed(key):
        return BadInput(sentence)
    folder, _, leaf = key.rpartition(".")
    near = nearest(key, options)
    if not near:  # the right word in the wrong place: `documents` for `dataset.documents`
        by_leaf = {name.rpartition(".")[2]: name for name in reversed(list(options))}
        near = [by_leaf[name] for name in nearest(leaf, by_leaf)]
    meant = f" Did you mean {' or '.join(f'{name}=' for name in near)}?" if near else ""
    siblings = [name for name in options if folder and name.startswith(folder + ".")]
    listed = shortened(list(dict.fromkeys(siblings or shown)), most=_FEW if near else _MOST)
    return BadInput(f"no option {key}.{meant}\nOptions: {listed}. More: {more}")


def flat(config: Config) -> dict[str, str]:
    """Return the config as flat `a.b.c: text` pairs: the params of a run, without those that are None."""
    values: Any = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    return flattened({key: value for key, value in values.items() if value is not None})


def flattened(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested values as flat `a.b.c: text` pairs."""
    if isinstance(value, dict) and value:
        return {k: v for key, inner in value.items() for k, v in flattened(inner, f"{prefix}{key}.").items()}
    return {prefix[:-1]: str(value)}
