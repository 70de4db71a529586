"""Turn the words of a command line into one typed and checked config per cell, with Hydra and OmegaConf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from enum import Enum
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig, ListConfig, OmegaConf

from rbptrack.base.errors import BadInput
from rbptrack.base.names import split_list
from rbptrack.config.check import check
from rbptrack.config.command_line import CommandLine, read_command_line
from rbptrack.config.composition_errors import readable_errors
from rbptrack.config.computed_values import training_steps
from rbptrack.config.keys import dotted_items, is_free_key, key_types
from rbptrack.config.overrides import overrides_of_cells, parse_override
from rbptrack.config.paths import conf_folder
from rbptrack.config.patterns import GROUP_BY_KEY, is_pattern, select_names
from rbptrack.config.registration import CELL_WITHOUT_HYDRA
from rbptrack.config.schema import CellConfig, Config

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

    Hydra takes 30 ms to compose a config, so cells that differ only in the values of single keys share one. The values
    of each cell are set in it.

    Raises:
        BadInput: a value is not allowed, there are more than 10,000 cells, or a key of the whole sweep has several
            values.

    """
    swept_keys = _swept_keys(command.overrides)
    composed_by_choices: dict[tuple[str, ...], DictConfig] = {}
    configs = []
    for overrides in overrides_of_cells(command.overrides):
        values = [override for override in overrides if override.partition("=")[0] in swept_keys]
        choices = tuple(override for override in overrides if override not in values)
        if choices not in composed_by_choices:
            composed_by_choices[choices] = _compose_cell(overrides, command)
        composed = composed_by_choices[choices]
        with readable_errors():
            for override in map(parse_override, values):
                OmegaConf.update(composed, override.key_or_group, override.value())
        configs.append(checked_config(composed))
    for key in _SWEEP_KEYS:
        if any(getattr(config, key) != getattr(configs[0], key) for config in configs):
            raise BadInput(f"{key} cannot be swept over: it belongs to the whole sweep, so give one value")
    return configs


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
    for overrides in overrides_of_cells(model_overrides):
        model = _compose_cell(overrides, command)[section]
        steps_of_models.append(set(training_steps(model.steps)))
    return sorted(set.intersection(*steps_of_models))


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
