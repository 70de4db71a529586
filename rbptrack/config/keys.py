"""The options that a command takes, as the schema has them; and what is said of one that it does not take."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass
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
    "output": "output= was removed; format=csv gives CSV",
}
"""Keys of earlier versions, and the sentence that their user gets; those of `model` hold for `reference` too."""


@dataclass(frozen=True)
class Keys:
    """The keys of a schema, flat.

    Attributes:
        leaves: `model.dtype`.
        folders: keys that hold others: `model`.
        free: keys below which users name their own: `dataset.where`.
        flags: those leaves that are true or false.

    """

    leaves: list[str]
    folders: list[str]
    free: list[str]
    flags: list[str]

    @classmethod
    def of(cls, schema: type) -> Keys:
        """Those of a dataclass."""
        keys = cls([], [], [], [])
        for key, kind in _walk(schema, ""):
            {"leaf": keys.leaves, "flag": keys.leaves, "folder": keys.folders, "free": keys.free}[kind].append(key)
            if kind == "flag":
                keys.flags.append(key)
        return keys

    def __contains__(self, key: str) -> bool:
        return key in self.leaves or key in self.folders or any(key == f or key.startswith(f + ".") for f in self.free)

    def check_flag(self, key: str, value: str) -> None:
        """BadInput where a key that is true or false is given a number, which OmegaConf takes for true."""
        if key in self.flags and value.strip("'\"") not in ("0", "1") and re.fullmatch(r"['\"]?[-+.\de]+['\"]?", value):
            raise BadInput(f"{key}={value}: expected true or false")

    @property
    def settable(self) -> list[str]:
        """The keys that take a value."""
        return [*self.leaves, *self.free]


def _walk(schema: type, prefix: str) -> Iterator[tuple[str, str]]:
    hints = get_type_hints(schema)
    for field in fields(schema):
        kind: Any = hints[field.name]
        key = f"{prefix}{field.name}"
        kind = next(filter(is_dataclass, get_args(kind)), kind)  # one that may be left out
        if is_dataclass(kind) and isinstance(kind, type):
            yield key, "folder"
            yield from _walk(kind, f"{key}.")
        else:
            is_free = kind is Any or get_origin(kind) is dict
            yield key, "free" if is_free else "flag" if kind is bool else "leaf"


def removed(key: str) -> str | None:
    """Return the sentence about a key that was removed; None for every other key."""
    return REMOVED.get(f"model.{key.removeprefix('reference.')}" if key.startswith("reference.") else key)


def no_option(key: str, known: Collection[str], *, shown: Collection[str], more: str) -> BadInput:
    """The error for an option that a command does not take.

    Args:
        key: what was typed before `=`.
        known: every option.
        shown: those that are listed; for an option within a folder, its neighbours are.
        more: the command that explains them.

    """
    if sentence := removed(key):
        return BadInput(sentence)
    folder, _, leaf = key.rpartition(".")
    near = nearest(key, known)
    if not near:  # the right word in the wrong place: `documents` for `dataset.documents`
        by_leaf = {name.rpartition(".")[2]: name for name in reversed(list(known))}
        near = [by_leaf[name] for name in nearest(leaf, by_leaf)]
    meant = f" Did you mean {' or '.join(f'{name}=' for name in near)}?" if near else ""
    siblings = [name for name in known if folder and name.startswith(folder + ".")]
    listed = shortened(list(dict.fromkeys(siblings or shown)), most=_FEW if near else _MOST)
    return BadInput(f"no option {key}.{meant}\nOptions: {listed}. More: {more}")


def flat(config: Config) -> dict[str, str]:
    """The config as flat `a.b.c: text` pairs: what a run logs as params, which says nothing of what is None."""
    values: Any = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    return flattened({key: value for key, value in values.items() if value is not None})


def flattened(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested values as flat `a.b.c: text` pairs."""
    if isinstance(value, dict) and value:
        return {k: v for key, inner in value.items() for k, v in flattened(inner, f"{prefix}{key}.").items()}
    return {prefix[:-1]: str(value)}
