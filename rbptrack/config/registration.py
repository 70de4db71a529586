"""What Hydra is told of rbptrack: the schema, and the resolvers that configs may use."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath

from omegaconf import OmegaConf

from rbptrack.base.secrets import spare
from rbptrack.config import schema
from rbptrack.config.paths import EMBEDDED


def _words() -> set[str]:
    """The names of all options, and those of their values that have one."""
    classes = [one for one in vars(schema).values() if isinstance(one, type)]
    named = [name for one in classes if issubclass(one, Enum) for name in one.__members__]
    return {*named, *(f.name for one in classes if is_dataclass(one) for f in fields(one))}


def register() -> None:
    """Make the schema and the resolvers known to Hydra; harmless when called again."""
    from hydra.core.config_store import ConfigStore  # here, because Tab completion reads the schema and cannot wait

    spare(_words())
    store = ConfigStore.instance()
    store.store(name="base_config", node=schema.Config)
    store.store(name="base_analyze", node=schema.AnalyzeConfig)
    store.store(name="base_report", node=schema.ReportConfig)
    OmegaConf.register_new_resolver("embedded", lambda name: str(EMBEDDED / name), replace=True)
    OmegaConf.register_new_resolver("base_name", base_name, replace=True)
    OmegaConf.register_new_resolver("family_of", lambda repo, path: family_and_size(repo, path)[0], replace=True)
    OmegaConf.register_new_resolver("size_of", lambda repo, path: family_and_size(repo, path)[1], replace=True)


def base_name(repo: str, path: str) -> str:
    """The last part of a repository's or folder's name: `org/news` -> `news`."""
    return PurePath(repo or path).name


def family_and_size(repo: str, path: str) -> tuple[str, str]:
    """Family and size as a name gives them: `org/Name-1.4B-base` -> (`name-base`, `1.4b`); no size: the whole name."""
    name = base_name(repo, path).lower()
    size = re.search(r"(?:^|[-_])(\d+(?:\.\d+)?[kmbt])(?=$|[-_])", name)
    rest = [part.strip("-_") for part in (name[: size.start()], name[size.end() :])] if size else []
    family = "-".join(filter(None, rest))
    return (family, size[1]) if size and family else (name, "")
