"""Register the schema of the configuration, and the functions that configs may call, with Hydra and OmegaConf."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from rbptrack.config.computed_values import base_name, checkpoint_of, family_of, size_of, tokens_seen, training_tokens
from rbptrack.config.paths import embedded
from rbptrack.config.schema import Config

CELL_WITHOUT_HYDRA = "cell_without_hydra"
"""The name of the config `conf/cell.yaml` without the configs of Hydra's own launchers, sweepers, logs and help.

Hydra composes it in half the time. It is for programs that do not let Hydra run the cell.
"""

_GROUPS_OF_HYDRA = ("output", "launcher", "sweeper", "help", "hydra_help", "hydra_logging", "job_logging", "env")


@cache
def register() -> None:
    """Register the schema and the functions that configs may call. Later calls in the same process do nothing."""
    ConfigStore.instance().store("base_config", Config)
    without_hydra = [{f"override hydra/{group}": None} for group in _GROUPS_OF_HYDRA]
    ConfigStore.instance().store(CELL_WITHOUT_HYDRA, {"defaults": ["cell", "_self_", *without_hydra]})
    resolvers: dict[str, Callable[..., object]] = {
        "embedded": lambda path: str(embedded(path)),
        "base_name": base_name,
        "family_of": family_of,
        "size_of": size_of,
        "training_tokens": training_tokens,
        "checkpoint_of": checkpoint_of,
        "tokens_seen": tokens_seen,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def add_config(group: str, name: str, values: dict[str, Any], *, based_on: str) -> None:
    """Add a config to a group, as if the file `<group>/<name>.yaml` existed.

    Args:
        group: `model` or `dataset`.
        name: the name of the config. It may hold slashes.
        values: the values that the config sets, by key.
        based_on: the name of the config of the group that sets the other keys.

    """
    folder, _, file_name = f"{group}/{name}".rpartition("/")
    config = {"defaults": [f"/{group}/{based_on}@_here_", "_self_"], **values}
    ConfigStore.instance().store(file_name, config, group=folder)
