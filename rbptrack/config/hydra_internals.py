"""All that rbptrack needs of Hydra's private modules; no other file imports `hydra._internal`.

Written for Hydra 1.3 and 1.4: `make test-hydra` runs the tests of `config/` with the newest release candidate.
"""

from __future__ import annotations

import copy
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from hydra import __version__, initialize_config_dir
from hydra._internal import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository, IConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from rbptrack.config.paths import conf_folder
from rbptrack.config.yaml_files import check_yaml

# From 1.4 on, Hydra warns of any `version_base`; before, it warns without one.
_VERSION_BASE: dict[str, Any] = {"version_base": "1.3"} if __version__.startswith("1.3.") else {}

BASIC = {
    "launcher": "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "sweeper": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
}
"""The launcher and the sweeper that Hydra uses where nobody chose others."""


class Files(Protocol):
    """The config files on a search path."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Read a file; None where it does not exist."""

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ...) -> list[str]:
        """List the configs, or the folders, of a group."""


class Loader(ConfigLoaderImpl):
    """Reads each file once.

    What it composes is what Hydra composes. Files that change while it is in use are not read again.
    """

    def __init__(self, loader: ConfigLoaderImpl) -> None:
        super().__init__(config_search_path=loader.config_search_path)
        self.repository = _CheckedFiles(config_search_path=loader.config_search_path)
        self._files: dict[tuple[str | None, tuple[str, ...]], CachingConfigRepository] = {}

    def files(self, config_name: str, search_path: Sequence[str]) -> Files:
        """Return the files that a primary config can choose from; Hydra's own listing reads it anew for each folder."""
        return self._parse_overrides_and_create_caching_repo(config_name, search_path)[1]

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: Sequence[str], parsed_overrides: list[Override] | None = None
    ) -> tuple[list[Override], CachingConfigRepository]:
        parsed = parsed_overrides or OverridesParser.create().parse_overrides(list(overrides))
        path = tuple(o.input_line or "" for o in parsed if o.get_key_element() == "hydra.searchpath")
        if (config_name, path) not in self._files:
            _, made = super()._parse_overrides_and_create_caching_repo(config_name, list(path))
            self._files[config_name, path] = made
        return parsed, self._files[config_name, path]

    def _load_single_config(self, default: Any, repo: IConfigRepository) -> ConfigResult:
        loaded = super()._load_single_config(default, repo)
        return replace(loaded, config=copy.deepcopy(loaded.config))  # the next merge changes it


class _CheckedFiles(ConfigRepository):
    """Hydra's files; each of the user's is checked before it is read."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        for source in self.get_sources():
            folder = Path(source.path.removeprefix("file://"))
            file = folder / (config_path if config_path.endswith(".yaml") else f"{config_path}.yaml")
            if source.scheme() == "file" and folder != conf_folder() and file.is_file():
                check_yaml(file)
        return super().load_config(config_path)


def initialized() -> AbstractContextManager[None]:
    """Set Hydra up with the configs that ship with rbptrack, as long as the context lasts."""
    return initialize_config_dir(str(conf_folder()), **_VERSION_BASE)


def flags_parser() -> ArgumentParser:
    """Make the parser of Hydra's own flags, such as `--cfg`."""
    return utils.get_args_parser()


def apply(overrides: Sequence[Override], composed: DictConfig) -> None:
    """Give keys of a composed config other values, as if it had been composed with them."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), composed)


def jobs_of(overrides: Sequence[Override]) -> list[list[str]]:
    """Split the overrides of a sweep into those of each job, as Hydra's basic sweeper does."""
    batches = BasicSweeper.split_arguments(list(overrides), max_batch_size=None)
    return [job for batch in batches for job in batch]


def show(flags: Namespace, config_name: str, job: Callable[[DictConfig], None]) -> None:
    """Let Hydra print what its flags ask for; `job` only tells it whose program this is."""
    utils._run_hydra(flags, flags_parser(), job, str(conf_folder()), config_name)
