"""Words of a command line become the typed config of every cell: Hydra composes, OmegaConf types, `check` checks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from enum import Enum
from itertools import islice, product
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from rbptrack.base.errors import BadInput, first_line
from rbptrack.config.check import check
from rbptrack.config.keys import leaves
from rbptrack.config.paths import conf_folder
from rbptrack.config.patterns import choose, is_pattern, split_list
from rbptrack.config.registration import training_steps
from rbptrack.config.schema import CellConfig, Config
from rbptrack.config.words import Words, parse_override, read_words

MAX_CELLS = 10_000

_CELL_KEYS = {entry.name for entry in fields(CellConfig)}
_SWEEP_KEYS = [entry.name for entry in fields(Config) if entry.name not in _CELL_KEYS]
"""The keys of the whole sweep: every cell must have the same value."""


def compose(words: Sequence[str]) -> list[Config]:
    """Compose the config of every cell that words ask for: the product of what they sweep over.

    Args:
        words: of a command line, as `config.words.read_words` takes them.

    Raises:
        BadInput: words that cannot be read, a value that does not fit, more than 10,000 cells, or cells that differ in
            what belongs to the whole sweep.

    """
    command = _read_and_expand(words)
    configs = [checked_config(_compose_cell(cell, command)) for cell in _cells(command.overrides)]
    first = configs[0]
    for key in _SWEEP_KEYS:
        if any(getattr(config, key) != getattr(first, key) for config in configs):
            raise BadInput(f"{key} belongs to the whole sweep and takes one value: it cannot be swept over")
    return configs


def words_for_hydra(words: Sequence[str]) -> list[str]:
    """The words for `hydra.main`: patterns are expanded, and `--multirun` is there where they sweep.

    A flag that shows a config shows that of the first cell.
    """
    command = _read_and_expand(words)
    if command.show_flags:
        return [*command.show_flags, *next(_cells(command.overrides)), *command.search_path]
    sweeps = command.multirun or any(
        override.startswith("hydra/sweeper") or parse_override(override).is_sweep_override()
        for override in command.overrides
    )
    flags = ["--multirun"] if sweeps else []
    return [*flags, *command.overrides, *command.search_path]


def checked_config(composed: DictConfig | ListConfig) -> Config:
    """What Hydra composed as the checked dataclass."""
    with readable_errors():
        config = OmegaConf.to_object(composed)
    assert isinstance(config, Config)  # noqa: S101 - conf/config.yaml begins with base_config
    check(config)
    return config


def config_from_values(values: dict[str, Any]) -> Config:
    """The checked config of nested values that Python's callers gave; a text may name the member of an enum.

    Raises:
        BadInput: a value of another type than its key's (the text `64` is not a number here), or outside its range.

    """
    with readable_errors():
        config = checked_config(OmegaConf.merge(OmegaConf.structured(Config), values))
    converted = dict(leaves(asdict(config)))
    for key, value in leaves(values):
        same = value == converted[key]
        if isinstance(converted[key], Enum):
            same = same or value == converted[key].name
        if not same:  # OmegaConf has converted it
            raise BadInput(f"{key} must be of type {type(converted[key]).__name__}; got {value!r:.60}")
    return config


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn an error of Hydra, OmegaConf or YAML into a line: the key that it is about, and their own sentence."""
    try:
        yield
    except MissingMandatoryValue as error:
        raise BadInput(f"a value is missing: give {error.full_key}=...") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise BadInput(_sentence(error)) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"while composing: a config is not UTF-8 text; save it as UTF-8 ({error})") from error
    except (YAMLError, OSError, ValueError) as error:  # a file that is not YAML or cannot be read
        raise BadInput(f"while composing: {' '.join(str(error).split())}") from error


def _sentence(error: Exception) -> str:
    """What an error of Hydra or OmegaConf says, without the lines on their own classes that follow.

    - `Error merging override rank=strct` is caused by `Invalid value 'strct', expected one of [paper, strict]`, whose
      key is `rank`: the cause and its key are kept.
    - `In 'model/mine': ConfigKeyError raised while composing config:` ends in a colon: the next line belongs to it.
    - `BadInput raised while resolving interpolation: no such checkpoint`: a config's function raised the second half.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = first_line(cause)
    if text.endswith(":"):
        text = " ".join(str(cause).splitlines()[:2])
    text = text.rpartition("raised while resolving interpolation: ")[2]
    key = getattr(cause, "full_key", None) or ""
    return text if key in text else f"{key}: {text}"


def _read_and_expand(words: Sequence[str]) -> Words:
    """Read words, and expand `model.revision=step*` over the training steps that every model of them declares."""
    command = read_words(words)
    overrides = []
    for override in command.overrides:
        key, _, value = override.partition("=")
        if key in ("model.revision", "reference.revision") and is_pattern(value):
            steps = _common_steps(command, key.removesuffix(".revision"))
            chosen = choose(key, split_list(value), [f"step{step}" for step in steps])
            override = f"{key}={','.join(chosen)}"
        overrides.append(override)
    return replace(command, overrides=overrides)


def _common_steps(command: Words, part: str) -> list[int]:
    """The training steps that every model has which words name as their `model` or `reference`, whichever part says."""
    choices = [override for override in command.overrides if override.startswith(("model=", "+model@reference="))]
    declared = []
    for cell in _cells(choices):
        model = _compose_cell(cell, command)[part]
        declared.append(set(training_steps(model.steps)))
    return sorted(set.intersection(*declared))


def _cells(overrides: Sequence[str]) -> Iterator[list[str]]:
    """The overrides of each cell, as Hydra's basic sweeper makes them; BadInput for too many, before any is made."""
    axes = []
    for override in map(parse_override, overrides):
        if override.is_sweep_override():
            key = override.get_key_element()
            values = list(islice(override.sweep_string_iterator(), MAX_CELLS + 1))
            axes.append([f"{key}={value}" for value in values])
        else:
            axes.append([str(override.input_line)])
    if math.prod(map(len, axes)) > MAX_CELLS:
        raise BadInput(f"these words ask for more than {MAX_CELLS:,} cells: sweep over fewer values at a time")
    return (list(cell) for cell in product(*axes))


def _compose_cell(overrides: Sequence[str], command: Words) -> DictConfig:
    with readable_errors(), initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return hydra_compose("config", overrides=[*overrides, *command.search_path])
