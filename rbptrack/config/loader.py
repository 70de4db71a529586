"""Hydra's own loader of configs, for a sweep: what the configs of its cells have in common is made once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

_MOST = 16  # choices of models and datasets whose merged files are kept


class Loader(ConfigLoaderImpl):
    """Reads each file once, and merges the files of a choice of model, dataset and the like once.

    What it composes is what Hydra composes. Files that change while it is in use are not read again.
    """

    def __init__(self, of: ConfigLoaderImpl) -> None:
        super().__init__(config_search_path=of.config_search_path)
        self._files: dict[tuple[str | None, tuple[str, ...]], CachingConfigRepository] = {}
        self._merged: dict[tuple[int, str], DictConfig] = {}

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: Sequence[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        path = tuple(o.input_line or "" for o in parsed if o.get_key_element() == "hydra.searchpath")
        if (config_name, path) not in self._files:
            _, made = super()._parse_overrides_and_create_caching_repo(config_name, list(path))
            self._files[config_name, path] = made
        return parsed, self._files[config_name, path]

    def _load_single_config(self, default: Any, repo: IConfigRepository) -> ConfigResult:
        loaded = super()._load_single_config(default, repo)
        return replace(loaded, config=copy.deepcopy(loaded.config))  # what is merged next changes it

    def _compose_config_from_defaults_list(self, defaults: list[Any], repo: IConfigRepository) -> DictConfig:
        key = (id(repo), repr(defaults))
        if key not in self._merged:
            while len(self._merged) >= _MOST:
                del self._merged[next(iter(self._merged))]
            self._merged[key] = super()._compose_config_from_defaults_list(defaults, repo)
        return copy.deepcopy(self._merged[key])
