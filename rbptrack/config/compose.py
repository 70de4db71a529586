"""What rbptrack asks of Hydra beyond `hydra.main`: where configs are, which exist, and composing without running."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from rbptrack.config import schema
from rbptrack.config.paths import conf_folder, config_packages
from rbptrack.config.patterns import expand, lists_as_values
from rbptrack.config.schema import Config
from rbptrack.errors import BadInput

_GROUPS = ("model", "dataset")  # whose values may be patterns
_LISTS = ("analyzers", "dataset.files", "dataset.fields")  # of which nobody sweeps: `a,b` is one value


class InstalledConfigs(SearchPathPlugin):
    """Configs that installed packages offer, after those that ship with rbptrack."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra whenever it makes a search path."""
        for package in config_packages()[0]:
            search_path.append(provider=package, path=f"pkg://{package}")


Plugins.instance().register(InstalledConfigs)
schema.register()  # worker processes of other launchers import this module, and need the schema too


class Composer:
    """Composes configs with the search path that a command line asks for.

    Args:
        config_name: the primary config, `config` or `analyze`.
        arguments: the command line: `hydra.searchpath=...` and `--config-dir` in it widen the search.

    """

    def __init__(self, config_name: str, arguments: Sequence[str]) -> None:
        self.config_name = config_name
        self._path = [a for a in arguments if a.startswith("hydra.searchpath=")]
        extra = parse_flags(arguments)[0].config_dir
        if extra and not self._path:
            self._path = [f"hydra.searchpath=[{Path(extra).absolute().as_uri()}]"]
        self._options: dict[str, list[str]] = {}

    def options(self, group: str) -> list[str]:
        """Every name in a config group, subfolders included: `pythia/70m`."""
        if group not in self._options:
            with _initialized():
                self._options[group] = list(self._walk(group, ""))
        return self._options[group]

    def _walk(self, group: str, prefix: str) -> list[str]:
        loader = GlobalHydra.instance().config_loader()

        def listed(kind: ObjectType) -> list[str]:
            return loader.get_group_options(group, kind, config_name=self.config_name, overrides=list(self._path))

        names = [prefix + name for name in listed(ObjectType.CONFIG)]
        for folder in listed(ObjectType.GROUP):
            names += self._walk(f"{group}/{folder}", f"{prefix}{folder}/")
        return names

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """One config; BadInput (Hydra's own words, shortened) where it does not compose."""
        extra = [p for p in self._path if p not in overrides]
        with _initialized():
            try:
                return compose(self.config_name, overrides=[*overrides, *extra])
            except (HydraException, OmegaConfBaseException) as error:
                raise BadInput(_short(error)) from error

    def compose_typed(self, overrides: Sequence[str]) -> Any:
        """One config as its dataclass."""
        return schema.typed(self.compose(overrides))


@dataclass(frozen=True)
class Request:
    """A command line that asks for cells, understood.

    Attributes:
        flags: Hydra's own flags as it understands them.
        words: their words, `--multirun` among them where the overrides sweep.
        overrides: the overrides, patterns expanded.
        multirun: whether they make a sweep.

    """

    flags: Namespace
    words: list[str]
    overrides: list[str]
    multirun: bool

    @property
    def only_shows(self) -> bool:
        """Whether Hydra is asked to show something (`--cfg`, `--help`) and to run nothing."""
        f = self.flags
        return bool(f.cfg or f.info or f.help or f.hydra_help or f.shell_completion)


def requested(arguments: Sequence[str], composer: Composer) -> Request:
    """Understand a command line: patterns and lists over models and datasets sweep, `k=1,10` is one list of k."""
    flags, words, overrides = parse_flags(arguments)
    overrides, _ = expand(overrides, groups=_GROUPS, options=composer.options)
    overrides = lists_as_values([_k_group(o, composer) for o in overrides], {name: name for name in _LISTS})
    sweeps = any(o.is_sweep_override() for o in _parsed(overrides))
    if sweeps and not flags.multirun:
        words.append("--multirun")
    return Request(flags, words, overrides, bool(flags.multirun or sweeps or "hydra.mode=MULTIRUN" in overrides))


def configs(request: Request, composer: Composer) -> list[Config]:
    """The typed config of each cell, in the order in which they run."""
    return [composer.compose_typed(o) for o in (cells(request.overrides) if request.multirun else [request.overrides])]


def _k_group(argument: str, composer: Composer) -> str:
    """`k=1,10` is a list of k; `k=paper` a named list."""
    key, _, value = argument.partition("=")
    if key != "k" or value in composer.options("k"):
        return argument
    parts = value.strip("[]").split(",")
    if not all(part.strip().lstrip("-").isdigit() for part in parts):
        raise BadInput(
            f"k={value}: expected numbers such as k=1,10,100 or a named list. "
            f"Options: {', '.join(composer.options('k'))}"
        )
    return lists_as_values([argument], {"k": "k.values"})[0]


def _parsed(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise BadInput(_short(error)) from error


def cells(overrides: Sequence[str]) -> list[list[str]]:
    """The override lists of each job that Hydra's basic sweeper would launch."""
    try:
        batches = BasicSweeper.split_arguments(_parsed(overrides), max_batch_size=None)
    except HydraException as error:
        raise BadInput(_short(error)) from error
    return [job for batch in batches for job in batch]


def _initialized() -> Any:
    return initialize_config_dir(str(conf_folder()), version_base="1.3")


def parse_flags(arguments: Sequence[str]) -> tuple[Namespace, list[str], list[str]]:
    """Hydra's own flags as it understands them, then their words, then the overrides, each in the order given.

    Hydra takes overrides in one stretch only; flags first and overrides last is always right.
    """
    flags = get_args_parser().parse_intermixed_args(list(arguments))
    overrides = list(flags.overrides)
    words = list(arguments)
    for override in overrides:
        words.remove(override)
    return flags, words, overrides


def _short(error: Exception) -> str:
    """Hydra's message without its hints on command-line flags and object types."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    hints = (
        "Set the environment variable",
        "full_key:",
        "reference_type",
        "object_type",
        "Config search path",
    )
    kept = [line for line in lines if not line.startswith(hints)]
    if error.__cause__ is not None:
        kept.insert(1, str(error.__cause__).strip().splitlines()[0])
    return "\n".join(kept[:3])
