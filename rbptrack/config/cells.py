"""The configs of a sweep's cells: as Hydra composes each of them, and what they share is composed once.

A config has three pieces: the model, the dataset, and the rest. Where nothing in one names another, each piece is
composed once for each choice of its groups, plain values are set in it, and cells are put together of pieces. Hydra
composes whole what is not so: interpolations between pieces, packages and defaults lists in a model's or a dataset's
file, and group choices of unusual form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from rbptrack.config.check import typed, typed_piece
from rbptrack.config.keys import flattened
from rbptrack.config.schema import Config

if TYPE_CHECKING:
    from rbptrack.config.compose import Composer

_REST = ""
_PIECES = ("model", "dataset", _REST)
_NAMED = ("model", "dataset", *(f"model.{key}" for key in ("family", "size", "seed", "revision")), "dataset.name")
_REFERENCE_MODEL = "+model@reference"
_LONGEST = 40  # characters of a value in a name
_OWN_RESOLVERS = ("embedded", "base_name", "family_of", "size_of", "oc.env", "oc.decode")  # read no other key
_REFERENCE = re.compile(r"\$\{\s*([^{}:]*?)\s*\}")
_RESOLVER = re.compile(r"\$\{\s*([\w.]+)\s*:")
_COMPUTED = re.compile(r"\$\{[^{}:]*\$\{")  # a reference to a key that another gives


def cells(composer: Composer, jobs: Sequence[Sequence[str]]) -> Iterator[Config]:
    """The typed config of each job, in their order.

    Args:
        composer: of the command line.
        jobs: the overrides of each, as Hydra's sweeper makes them: all with the same keys.

    """
    pieces = _Pieces(composer, jobs[0])
    for job in jobs:
        config = pieces.config(job) if len(jobs) > 1 else None
        yield config or composer.compose_typed(job)


def swept_options(jobs: Sequence[Sequence[str]]) -> list[str]:
    """Of each job, the options in which jobs differ and which the names of models and datasets do not tell.

    Examples:
        >>> swept_options([["model=a", "dataset.seed=1"], ["model=b", "dataset.seed=2"]])
        ['seed=1', 'seed=2']

    """
    given = [{key: value for key, _, value in (word.partition("=") for word in job)} for job in jobs]
    swept = [
        key for key in given[0] if key not in (*_NAMED, _REFERENCE_MODEL) and len({job.get(key) for job in given}) > 1
    ]
    short = {key: key.rpartition(".")[2].lstrip("+") for key in swept}
    names = {key: name if list(short.values()).count(name) == 1 else key for key, name in short.items()}
    return [", ".join(f"{name}={_short(job.get(key, ''))}" for key, name in names.items()) for job in given]


def _short(value: str) -> str:
    value = value.strip("'\"")
    return value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."


class _Pieces:
    def __init__(self, composer: Composer, first: Sequence[str]) -> None:
        self._composer, self._first = composer, first
        self._composed: dict[tuple[object, ...], DictConfig | None] = {}
        self._typed: dict[tuple[object, ...], Any] = {}
        self._plain: dict[str, bool] = {}

    def config(self, job: Sequence[str]) -> Config | None:
        """The config of a job; None where it cannot be made of pieces."""
        keys = {word.partition("=")[0] for word in job} - {_REFERENCE_MODEL}
        if any(mark in key for key in keys for mark in "@/"):
            return None
        base = self._piece(_REST, job)
        parts = {name: self._piece(name, job) for name in ("model", "dataset")} if base else {}
        return replace(base, **parts) if base and all(parts.values()) else None

    def _piece(self, name: str, job: Sequence[str]) -> Any:
        """A piece of a job's config, typed; None where it depends on others."""
        rest = tuple(word for word in _words(_REST, job) if not self._is_plain(word))
        own = _words(name, job)
        plain = [word for word in own if self._is_plain(word)]
        kind = (name, rest, *(word.partition("=")[0] if word in plain else word for word in own))
        if kind not in self._composed:
            others = [word for each in _PIECES if each != name for word in _words(each, self._first)]
            others = others if name == _REST else [*rest, *(word for word in others if _piece_of(word) != _REST)]
            self._composed[kind] = self._compose(name, [*others, *own])
        composed = self._composed[kind]
        if composed is None:
            return None
        if (name, rest, own) not in self._typed:
            self._composer.update(composed, plain)
            self._typed[name, rest, own] = typed_piece(composed, name) if name else typed(composed)
        return self._typed[name, rest, own]

    def _compose(self, name: str, words: Sequence[str]) -> DictConfig | None:
        """A config in which a piece is as its own words and the rest's say, if that depends on no other words."""
        composed = self._composer.compose(words)
        chosen = (word.split("=", 1) for word in words if word.startswith(("model=", "dataset=")))
        if not all(self._composer.lands_in_its_group(group, choice) for group, choice in chosen):
            return None
        values = flattened(OmegaConf.to_container(composed, resolve=False))
        return None if any("${" in text and _crosses(key, text) for key, text in values.items()) else composed

    def _is_plain(self, word: str) -> bool:
        """Whether an override gives one key a number, a text or a list."""
        if word not in self._plain:
            key = word.partition("=")[0]
            self._plain[word] = (
                ("." in key or key in ("candidates", "rank"))
                and not key.startswith(("+", "~", "hydra."))
                and "${" not in word
                and not isinstance(OverridesParser.create().parse_override(word).value(), dict)
            )
        return self._plain[word]


def _words(piece: str, job: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in job if _piece_of(word) == piece)


def _piece_of(word: str) -> str:
    first = re.split(r"[.=]", word.lstrip("+~"), maxsplit=1)[0]
    return first if first in _PIECES else _REST


def _crosses(key: str, text: str) -> bool:
    """Whether a value may depend on a key of another piece."""
    if _COMPUTED.search(text) or any(name not in _OWN_RESOLVERS for name in _RESOLVER.findall(text)):
        return True
    named = (re.split(r"[.\[]", reference, maxsplit=1)[0] for reference in _REFERENCE.findall(text))
    return any((first if first in _PIECES[:2] else _REST) != _piece_of(key) for first in named)
