"""The configs of a sweep's cells: as Hydra composes each of them, and what they share is composed once.

A config has three pieces: the model, the dataset, and the rest. Where nothing in one names another, Hydra composes the
rest once for each choice of its groups; models and datasets are their files' keys, with the values that a cell gives,
and cells are put together of pieces. Everything else is composed by Hydra: interpolations between pieces, packages and
defaults lists in files, and group choices of unusual form; and refused options, because Hydra says why.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbptrack.base.errors import BadInput
from rbptrack.config.check import typed, typed_piece
from rbptrack.config.keys import flattened
from rbptrack.config.schema import Config, DatasetConfig, ModelConfig

if TYPE_CHECKING:
    from rbptrack.config.compose import Composer

_REST = ""
_PIECES = {"model": ModelConfig, "dataset": DatasetConfig}
_NAMED = ("model", "dataset", *(f"model.{key}" for key in ("family", "size", "seed", "revision")), "dataset.name")
_REFERENCE_MODEL = "+model@reference"
_LONGEST = 40  # characters of a value in a name
_OWN_RESOLVERS = ("embedded", "base_name", "family_of", "size_of", "oc.env", "oc.decode")  # read no other key
_REFERENCE = re.compile(r"\$\{\s*([^{}:]*?)\s*\}")
_RESOLVER = re.compile(r"\$\{\s*([\w.]+)\s*:")
_COMPUTED = re.compile(r"\$\{[^{}:]*\$\{")  # a reference to a key that another gives


def cells(composer: Composer, jobs: Sequence[Sequence[str]]) -> Iterator[Config]:
    """Yield the typed config of each job, in their order.

    Args:
        composer: of the command line.
        jobs: the overrides of each, as Hydra's sweeper makes them: all with the same keys.

    """
    pieces = _Pieces(composer, jobs[0])
    for job in jobs:
        config = pieces.config(job) if len(jobs) > 1 else None
        yield config or composer.compose_typed(job)


def swept_options(jobs: Sequence[Sequence[str]]) -> list[str]:
    """Return, for each job, the options in which jobs differ beyond the names of models and datasets.

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


@dataclass(frozen=True)
class _Base:
    """What Hydra composes of some choices of groups."""

    composed: DictConfig
    choices: dict[str, str]
    over: list[Any]  # files that give keys of any piece
    files: dict[tuple[str, ...], DictConfig]  # models and datasets alone, as their files have them


class _Pieces:
    def __init__(self, composer: Composer, first: Sequence[str]) -> None:
        self._composer = composer
        self._groups = composer.groups()
        self._first = [word for word in first if _piece_of(word) in _PIECES]
        self._bases: dict[tuple[str, ...], _Base | None] = {}
        self._made: dict[tuple[object, ...], Any] = {}

    def config(self, job: Sequence[str]) -> Config | None:
        """Return the config of a job; None where it cannot be made of pieces, or is refused."""
        keys = {word.partition("=")[0] for word in job} - {_REFERENCE_MODEL}
        if any(mark in key for key in keys for mark in "@/"):
            return None
        words: dict[str, list[str]] = {"model": [], "dataset": [], _REST: []}
        for word in job:
            words[_piece_of(word)].append(word)
        choices = tuple(word for word in words[_REST] if self._chooses(word))
        with suppress(BadInput, OmegaConfBaseException):
            if choices not in self._bases:
                self._bases[choices] = None
                self._bases[choices] = self._base(choices)
            if base := self._bases[choices]:
                parts = {name: self._piece(name, base, choices, words[name]) for name in (_REST, *_PIECES)}
                rest: Config = parts.pop(_REST)
                return replace(rest, **parts)
        return None

    def _chooses(self, word: str) -> bool:
        """Return whether an override chooses a config of a group, or is about Hydra."""
        key = word.partition("=")[0].lstrip("+~")
        return key in self._groups or key.startswith("hydra.") or word.startswith(_REFERENCE_MODEL)

    def _base(self, choices: Sequence[str]) -> _Base | None:
        """Return the config of these choices; None if it depends on values, or on files outside the choices."""
        composed, hydra = self._composer.whole([*self._first, *choices])
        base = _Base(composed, dict(hydra.runtime.choices), [], {})
        for group, choice in base.choices.items():
            if group in _PIECES or group.startswith("hydra/"):
                continue
            file = self._composer.file(group.partition("@")[0], choice)
            package = file.header.get("package") if file else None
            if file is None or file.defaults_list or package not in (None, "", "_global_"):
                return None
            base.over.extend([file.config] if package else [])
        return None if _depends(composed) or len([over for over in base.over if over]) > 1 else base

    def _piece(self, name: str, base: _Base, choices: tuple[str, ...], words: Sequence[str]) -> Any:
        """Return a piece of a job's config, typed; BadInput where it is refused, or depends on others."""
        key = (name, choices, *words)
        if key not in self._made:
            made = copy.deepcopy(self._of_file(name, base, words) if name else base.composed)
            self._composer.update(made, [word for word in words if not self._chooses(word)])
            if _depends(made):
                raise BadInput(f"{name} is no piece of its own")
            self._made[key] = typed_piece(made, name) if name else typed(made)
        return self._made[key]

    def _of_file(self, name: str, base: _Base, words: Sequence[str]) -> DictConfig:
        """Return a config of a model or dataset alone, as its file has it."""
        chosen = [word.partition("=")[2] for word in words if self._chooses(word)] or [base.choices[name]]
        if (name, *chosen) not in base.files:
            file = self._composer.file(name, chosen[-1])
            if len(chosen) > 1 or file is None or file.header.get("package") or file.defaults_list:
                raise BadInput(f"{name}={chosen} is no file of its own")
            made = base.files[name, *chosen] = OmegaConf.create({name: OmegaConf.structured(_PIECES[name])})
            OmegaConf.set_struct(made, True)
            for layer in ({name: file.config}, *({name: over[name]} for over in base.over if name in over)):
                made.merge_with(layer)
        return base.files[name, *chosen]


@cache
def _piece_of(word: str) -> str:
    first = re.split(r"[.=]", word.lstrip("+~"), maxsplit=1)[0]
    return first if first in _PIECES else _REST


def _depends(composed: DictConfig) -> bool:
    """Return whether a value may depend on a key of another piece."""
    values = flattened(OmegaConf.to_container(composed, resolve=False))
    return any("${" in text and _crosses(key, text) for key, text in values.items())


def _crosses(key: str, text: str) -> bool:
    if _COMPUTED.search(text) or any(name not in _OWN_RESOLVERS for name in _RESOLVER.findall(text)):
        return True
    named = (_piece_of(re.split(r"[.\[]", reference, maxsplit=1)[0]) for reference in _REFERENCE.findall(text))
    return any(first != _piece_of(key) for first in named)
