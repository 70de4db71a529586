"""Registers rbptrack with Hydra: the schema, and the resolvers that configs may use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

from omegaconf import OmegaConf, __version__

from rbptrack.base.secrets import spare
from rbptrack.config import schema
from rbptrack.config.paths import EMBEDDED


def _words() -> set[str]:
    """Return the names of all options, and those of their values that have one."""
    classes = [value for value in vars(schema).values() if isinstance(value, type)]
    named = [name for cls in classes if issubclass(cls, Enum) for name in cls.__members__]
    return {*named, *(f.name for cls in classes if is_dataclass(cls) for f in fields(cls))}


def register() -> None:
    """Make the schema and the resolvers known to Hydra; harmless when called again."""
    spare(_words())
    register_config("base_config", schema.Config)
    register_config("base_analyze", schema.AnalyzeConfig)
    register_config("base_report", schema.ReportConfig)
    register_resolver("embedded", lambda name: str(EMBEDDED / name))
    register_resolver("base_name", base_name)
    register_resolver("family_of", lambda repo, path: family_and_size(repo, path)[0])
    register_resolver("size_of", lambda repo, path: family_and_size(repo, path)[1])


def register_config(name: str, node: type, *, group: str | None = None) -> None:
    """Make a dataclass known to Hydra as a config, in place of one of that name."""
    import hydra  # here, because Tab completion reads the schema and cannot wait
    from hydra.core.config_store import ConfigStore

    store: Any = ConfigStore.instance().store
    how = {} if hydra.__version__.startswith("1.3.") else {"replace": True}  # 1.4 warns where it is not said
    store(name, node, group=group, **how)


def register_resolver(name: str, resolver: Callable[..., str]) -> None:
    """Make a resolver known to OmegaConf: 2.4 has a new function for it, under a name that meant another in 2.3."""
    register: Any = OmegaConf.register_resolver
    if __version__.startswith("2.3."):
        register = OmegaConf.register_new_resolver
    register(name, resolver, replace=True)


def register_plugins(group: str, classes: Mapping[str, type[Any]]) -> None:
    """Make plugins options of a config group: `analyzer=NAME`, with the fields of the class as its options.

    Launchers that start other processes send them Hydra's config store, and the modules of plugins' files cannot be
    imported there: only requested plugins are registered.
    """
    for name, cls in classes.items():
        register_config(name, cls, group=group)


def base_name(repo: str, path: str) -> str:
    """Return the last part of a repository's or folder's name: `org/news` -> `news`."""
    return PurePath(repo or path).name


def family_and_size(repo: str, path: str) -> tuple[str, str]:
    """Return family and size as a name gives them: `org/Name-1.4B-base` -> (`name-base`, `1.4b`); no size: the whole
    name.
    """
    name = base_name(repo, path).lower()
    size = re.search(r"(?:^|[-_])(\d+(?:\.\d+)?[kmbt])(?=$|[-_])", name)
    rest = [part.strip("-_") for part in (name[: size.start()], name[size.end() :])] if size else []
    family = "-".join(filter(None, rest))
    return (family, size[1]) if size and family else (name, "")
