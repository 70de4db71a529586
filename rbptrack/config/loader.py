"""Hydra's own loader of configs, for a sweep: what the configs of its cells have in common is made once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository, IConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult

from rbptrack.base.errors import BadInput
from rbptrack.config.paths import conf_folder

_LONGEST = 1 << 20  # bytes of a config file
_MOST_VALUES = 100_000  # of one, with what stands behind its aliases


class Loader(ConfigLoaderImpl):
    """Reads each file once.

    What it composes is what Hydra composes. Files that change while it is in use are not read again.
    """

    def __init__(self, of: ConfigLoaderImpl) -> None:
        super().__init__(config_search_path=of.config_search_path)
        self.repository = _Checked(config_search_path=of.config_search_path)
        self._files: dict[tuple[str | None, tuple[str, ...]], CachingConfigRepository] = {}

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


class _Checked(ConfigRepository):
    """Hydra's files, of which each of the user's is checked before it is read."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        for source in self.get_sources():
            folder = Path(source.path.removeprefix("file://"))
            file = folder / (config_path if config_path.endswith(".yaml") else f"{config_path}.yaml")
            if source.scheme() == "file" and folder != conf_folder() and file.is_file():
                check_yaml(file)
        return super().load_config(config_path)


def check_yaml(file: Path) -> None:
    """Refuse YAML that is long, deep, or short and endless: aliases of aliases, a list that holds itself.

    Raises:
        BadInput: it is; what is no YAML at all is not said here.

    """
    if (size := file.stat().st_size) > _LONGEST:
        raise BadInput(f"{file} has {size:,} bytes; a config has at most {_LONGEST:,}")
    try:
        with file.open(encoding="utf-8") as text:
            document = yaml.compose(text, Loader=yaml.SafeLoader)
        if _values(document, {}) > _MOST_VALUES:
            raise BadInput(f"{file} holds more than {_MOST_VALUES:,} values, with what stands behind its aliases")
    except RecursionError as error:
        raise BadInput(f"{file} is nested too deeply, or holds itself (an alias such as *a inside of &a)") from error
    except (yaml.YAMLError, UnicodeDecodeError):
        return


def _values(node: yaml.Node | None, known: dict[int, int]) -> int:
    """How many values a node holds, those behind aliases each time."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        parts = [part for each in node.value for part in (each if isinstance(each, tuple) else (each,))]
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
