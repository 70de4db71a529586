"""Turn the words of a command line into one typed and checked config per cell, with Hydra and OmegaConf."""

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
from rbptrack.config.command_line import CommandLine, parse_override, read_command_line
from rbptrack.config.keys import dotted_items, is_free_key, key_types
from rbptrack.config.paths import conf_folder
from rbptrack.config.patterns import GROUP_BY_KEY, is_pattern, select_names, split_list
from rbptrack.config.registration import CELL_WITHOUT_HYDRA, training_steps
from rbptrack.config.schema import CellConfig, Config

MAX_CELLS = 10_000
"""The largest number of cells that one command line may ask for."""

_CELL_KEYS = {field.name for field in fields(CellConfig)}
_SWEEP_KEYS = [field.name for field in fields(Config) if field.name not in _CELL_KEYS]  # equal in all cells of a sweep


def compose(words: Sequence[str]) -> list[Config]:
    """Compose the config of each cell that the words of a command line ask for, such as `model=pythia/*`.

    Raises BadInput if a word cannot be read, or if a cell breaks a rule.
    """
    return compose_cells(read_words(words))


def compose_cells(command: CommandLine) -> list[Config]:
    """Compose the config of each cell that a command line asks for. Settings of Hydra's launchers are ignored.

    A key may have several values. There is one cell for each combination of values.

    Raises:
        BadInput: a value is not allowed, there are more than 10,000 cells, or a key of the whole sweep has several
            values.

    """
    configs = [checked_config(composed) for composed in _compose_cells(command)]
    first = configs[0]
    for key in _SWEEP_KEYS:
        if any(getattr(config, key) != getattr(first, key) for config in configs):
            raise BadInput(f"{key} cannot be swept over: it belongs to the whole sweep, so give one value")
    return configs


def words_for_hydra(command: CommandLine) -> list[str]:
    """Return the words that `hydra.main` needs for a command line.

    `--multirun` is added if a key has several values. A flag that shows a config, such as `--cfg=job`, shows the config
    of the first cell.
    """
    if any(word.startswith("--") for word in command.for_hydra):
        return [*command.for_hydra, *next(_overrides_of_cells(command.overrides)), *command.search_path]
    sweeps = (
        command.multirun
        or any(word.startswith("hydra/sweeper") for word in command.for_hydra)
        or any(parse_override(override).is_sweep_override() for override in command.overrides)
    )
    flags = ["--multirun"] if sweeps else []
    return [*flags, *command.for_hydra, *command.overrides, *command.search_path]


def checked_config(composed: DictConfig | ListConfig) -> Config:
    """Convert a config that Hydra composed to a `Config`, and check it. Raises BadInput if a value is not allowed."""
    with readable_errors():
        config = OmegaConf.to_object(composed)
    assert isinstance(config, Config)  # noqa: S101 - conf/cell.yaml begins with base_config
    check(config)
    return config


def config_from_values(values: dict[str, Any]) -> Config:
    """Make a checked config from nested dictionaries, for callers in Python. A member of an enum may be a text.

    Raises:
        BadInput: a value is outside its range or has another type than its key. The text `"64"` is not accepted as a
            number.

    """
    with readable_errors():
        config = checked_config(OmegaConf.merge(OmegaConf.structured(Config), values))
    value_by_key = dict(dotted_items(asdict(config)))
    for key, value in dotted_items(values):
        converted = value_by_key[key]
        accepted_values = [converted, converted.name] if isinstance(converted, Enum) else [converted]
        if value not in accepted_values:  # OmegaConf has converted the value to the type of the key
            raise BadInput(f"{key} must be of type {type(converted).__name__}; got {value!r:.60}")
    return config


@contextmanager
def readable_errors() -> Iterator[None]:
    """While a block runs, turn errors of Hydra, OmegaConf and YAML into BadInput with one line that names the key."""
    try:
        yield
    except MissingMandatoryValue as error:
        raise BadInput(f"a value is missing: give {error.full_key}=...") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise BadInput(_useful_line(error)) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"while composing: a config is not UTF-8 text. Save it as UTF-8 ({error})") from error
    except (YAMLError, OSError, ValueError) as error:  # a file is not YAML or cannot be read
        raise BadInput(f"while composing: {' '.join(str(error).split())}") from error


def _useful_line(error: Exception) -> str:
    """Return the line of an error of Hydra or OmegaConf that a user needs.

    These errors have a chain of causes, and lines about classes of Hydra. The rules:

    - The first cause is kept, after the key that it names. For example, `Error merging override rank=strct` is caused
      by `Invalid value 'strct', expected one of [paper, strict]`, and the key is `rank`.
    - If the first line ends in a colon (`In 'model/mine': ConfigKeyError raised while composing config:`), the second
      line is added.
    - Only the text after `raised while resolving interpolation: ` is kept. A function of rbptrack raised it.
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


def read_words(words: Sequence[str]) -> CommandLine:
    """Read the words of a command line, and expand patterns of revisions such as `model.revision=step*`.

    A pattern selects from the training steps that all models of the command line list in their configs.
    """
    command = read_command_line(words)
    overrides = []
    for override in command.overrides:
        key, _, value = override.partition("=")
        if key in ("model.revision", "reference.revision") and is_pattern(value):
            steps = _common_steps(command, section=key.removesuffix(".revision"))
            chosen = select_names(key, split_list(value), [f"step{step}" for step in steps])
            override = f"{key}={','.join(chosen)}"
        overrides.append(override)
    return replace(command, overrides=overrides)


def _common_steps(command: CommandLine, section: str) -> list[int]:
    """Return the training steps that all models in one section of a command line have: `model` or `reference`."""
    prefixes = ("model=", "+model@reference=")
    model_overrides = [override for override in command.overrides if override.startswith(prefixes)]
    steps_of_models = []
    for overrides in _overrides_of_cells(model_overrides):
        model = _compose_cell(overrides, command)[section]
        steps_of_models.append(set(training_steps(model.steps)))
    return sorted(set.intersection(*steps_of_models))


def _overrides_of_cells(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Return the overrides of each cell, in the order of Hydra's basic sweeper.

    Raises BadInput immediately if there are more than 10,000 cells.
    """
    alternatives_by_position = []  # for each override: its settings, one for each value
    for override in map(parse_override, overrides):
        if override.is_sweep_override():
            key = override.get_key_element()
            values = list(islice(override.sweep_string_iterator(), MAX_CELLS + 1))
            alternatives_by_position.append([f"{key}={value}" for value in values])
        else:
            alternatives_by_position.append([str(override.input_line)])
    if math.prod(map(len, alternatives_by_position)) > MAX_CELLS:
        raise BadInput(f"this command asks for more than {MAX_CELLS:,} cells: sweep over fewer values at a time")
    return (list(cell) for cell in product(*alternatives_by_position))


def _compose_cells(command: CommandLine) -> Iterator[DictConfig]:
    """Compose the config of each cell. Use a config before you take the next one, which may be the same object.

    Hydra takes 30 ms to compose a config, so cells that differ only in the values of single keys share one. The values
    of each cell are set in it.
    """
    swept_keys = _swept_keys(command.overrides)
    composed_by_choices: dict[tuple[str, ...], DictConfig] = {}
    for overrides in _overrides_of_cells(command.overrides):
        if not swept_keys:
            yield _compose_cell(overrides, command)
            continue
        values = [override for override in overrides if override.partition("=")[0] in swept_keys]
        choices = tuple(override for override in overrides if override not in values)
        if choices not in composed_by_choices:
            composed_by_choices[choices] = _compose_cell(overrides, command)
        composed = composed_by_choices[choices]
        with readable_errors():
            for override in map(parse_override, values):
                OmegaConf.update(composed, override.key_or_group, override.value())
        yield composed


def _swept_keys(overrides: Sequence[str]) -> list[str]:
    """Return the keys with several values that can be set in a config after Hydra has composed it.

    The list is empty if an override does more than choose a config or set one key. For example, it may set a section.
    """
    keys = [override.partition("=")[0] for override in overrides]
    choices = (*GROUP_BY_KEY.values(), "+model@reference")
    if not all(key in choices or key in key_types() or is_free_key(key.lstrip("+")) for key in keys):
        return []
    parsed = zip(keys, map(parse_override, overrides), strict=True)
    return [key for key, override in parsed if key in key_types() and override.is_sweep_override()]


def _compose_cell(overrides: Sequence[str], command: CommandLine) -> DictConfig:
    with readable_errors(), initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return hydra_compose(CELL_WITHOUT_HYDRA, overrides=[*overrides, *command.search_path])
