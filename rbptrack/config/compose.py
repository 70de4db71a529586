"""What rbptrack asks of Hydra beyond `hydra.main`: where configs are, which exist, and composing without running."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from hydra import compose, initialize_config_dir
from hydra._internal import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
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
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError
from yaml.reader import ReaderError

from rbptrack.base.errors import BadInput
from rbptrack.config import checkpoints, ladders, schema
from rbptrack.config.arguments import check_keys, k_group, parse_flags
from rbptrack.config.cells import cells, swept_options
from rbptrack.config.check import typed, wrong_value
from rbptrack.config.loader import Loader
from rbptrack.config.paths import conf_folder, config_packages, working_conf
from rbptrack.config.patterns import as_value, expand, lists_as_values
from rbptrack.config.schema import Config, SweepConfig

# Nobody sweeps over these: `a,b` is one value.
_LISTS = ("analyzers", "figures", "dataset.files", "dataset.fields", "launch.setup")


class InstalledConfigs(SearchPathPlugin):
    """After the configs that ship with rbptrack: checkpoints, the working folder's `conf/`, installed packages'."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra whenever it makes a search path."""
        search_path.append(provider="rbptrack", path="checkpoints://")
        if own := working_conf():
            search_path.append(provider="working folder", path=own.absolute().as_uri())
        for package in config_packages()[0]:
            search_path.append(provider=package, path=f"pkg://{package}")


Plugins.instance().register(checkpoints.CheckpointSource)
Plugins.instance().register(InstalledConfigs)
schema.register()  # worker processes of other launchers import this module, and need the schema too


class Composer:
    """Composes configs with the search path that a command line asks for.

    Args:
        config_name: the primary config: `config`, `analyze` or `report`.
        arguments: the command line: `hydra.searchpath=...` and `--config-dir` in it widen the search.

    """

    def __init__(self, config_name: str, arguments: Sequence[str]) -> None:
        self.config_name = config_name
        given = [a for a in arguments if a.startswith("hydra.searchpath=")]
        folders = lists_as_values(given, {"hydra.searchpath": "hydra.searchpath"})
        if extra := parse_flags(arguments).config_dir:
            if not Path(extra).is_dir():
                raise BadInput(f"--config-dir {extra}: no such folder")
            inside = folders[-1].partition("=[")[2].rstrip("]") if folders else ""
            places = ",".join(filter(None, (as_value(f"file://{Path(extra).absolute()}"), inside)))
            folders = [f"hydra.searchpath=[{places}]"]
        self._path = folders[-1:]
        self._options: dict[str, list[str]] = {}
        self._loader: Loader | None = None

    def options(self, group: str) -> list[str]:
        """Every name in a config group, subfolders included: `pythia/70m`."""
        if group not in self._options:
            self._options[group] = list(_walk(self._repository(), group, ""))
            self._options[group] += ladders.names() if group == "model" else ()
        return self._options[group]

    def groups(self) -> list[str]:
        """The config groups that the command line can choose from, `hydra` and those below it left out."""
        return [name for name in self._repository().get_group_options("", ObjectType.GROUP) if name != "hydra"]

    def _repository(self) -> IConfigRepository:
        """The config files on the search path; Hydra's own listing reads the primary config anew for each folder."""
        with self._initialized():
            loader: Any = GlobalHydra.instance().config_loader()
            return cast(
                "IConfigRepository",
                loader._parse_overrides_and_create_caching_repo(self.config_name, list(self._path))[1],
            )

    @contextmanager
    def _initialized(self) -> Iterator[None]:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            hydra: Any = GlobalHydra.instance().hydra
            self._loader = self._loader or Loader(hydra.config_loader)
            hydra.config_loader = self._loader
            yield

    def hydra_settings(self, overrides: Sequence[str]) -> DictConfig:
        """What Hydra itself is told: its launcher, its sweeper, ..."""
        with self._initialized():
            settings: DictConfig = compose(self.config_name, [*overrides, *self._path], return_hydra_config=True).hydra
            return settings

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """One config; BadInput (Hydra's own words, shortened) where it does not compose."""
        chosen = [o for o in overrides if not o.startswith("hydra.searchpath=")]
        with self._initialized(), self._explained():
            return compose(self.config_name, overrides=[*chosen, *self._path])

    def update(self, composed: DictConfig, overrides: Sequence[str]) -> None:
        """Give keys of a composed config other values, as if it had been composed with them."""
        with self._explained():
            ConfigLoaderImpl._apply_overrides_to_config(_parsed(overrides), composed)

    def lands_in_its_group(self, group: str, choice: str) -> bool:
        """Whether the file of a choice gives keys of its own group alone, and chooses nothing else."""
        loaded = self._repository().load_config(f"{group}/{choice}")
        return loaded is not None and not loaded.header.get("package") and not loaded.defaults_list

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what is wrong with a config."""
        try:
            yield
        except (HydraException, OmegaConfBaseException) as error:
            if (of := re.match("Error merging override (.*)", str(error))) and error.__cause__ is not None:
                raise wrong_value(of[1], error.__cause__) from error
            raise BadInput(_short(error)) from error
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else "a config file"
            raise BadInput(f"{where}: is not YAML: {error.problem or error.context}") from error
        except ReaderError as error:  # a character that YAML does not allow
            raise BadInput(f"{error.name}, character {error.position + 1}: is not YAML: {error.reason}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{self._undecodable()} is not UTF-8 text: save it as UTF-8") from error
        except OSError as error:  # as OmegaConf says of a file that holds a number
            raise BadInput(f"a config file cannot be read, or holds no keys: {_short(error)}") from error
        except ValueError as error:
            raise BadInput(_short(error)) from error

    def _undecodable(self) -> str:
        """The first config file of the user's that is not UTF-8; Hydra does not say which it was."""
        folders = [part for path in self._path for part in re.findall(r"file://([^\],'\"]+)", path)]
        for path in (p for folder in folders for p in sorted(Path(unquote(folder)).rglob("*.yaml"))):
            try:
                path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                return str(path)
        return "a config file"

    def run(self, mode: str, job: Callable[[DictConfig], None], overrides: Sequence[str]) -> None:
        """Let Hydra compose and run one job (mode RUN) or one for each cell (MULTIRUN), where its launcher says."""
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            hydra: Any = GlobalHydra.instance().hydra
            run = hydra.multirun if mode == "MULTIRUN" else hydra.run
            run(config_name=self.config_name, task_function=job, overrides=[*overrides, *self._path])

    def compose_typed(self, overrides: Sequence[str]) -> Any:
        """One config as its dataclass."""
        return typed(self.compose(overrides))


def _walk(repository: IConfigRepository, group: str, prefix: str) -> list[str]:
    """Every config below a group, subfolders included."""
    names = [prefix + name for name in repository.get_group_options(group, ObjectType.CONFIG)]
    for folder in repository.get_group_options(group, ObjectType.GROUP):
        names += _walk(repository, f"{group}/{folder}", f"{prefix}{folder}/")
    return names


@dataclass(frozen=True)
class Request:
    """A command line for Hydra, understood.

    Attributes:
        composer: composes what the overrides ask for.
        flags: Hydra's own flags as it understands them.
        overrides: the overrides, patterns expanded.
        multirun: whether they make a sweep.
        typed: the command line as it was given.

    """

    composer: Composer
    flags: Namespace
    overrides: list[str]
    multirun: bool
    typed: list[str]

    @classmethod
    def read(
        cls, config_name: str, arguments: Sequence[str], *, groups: Sequence[str], lists: Mapping[str, str]
    ) -> Request:
        """Understand a command line.

        Args:
            config_name: the primary config: `config`, `analyze` or `report`.
            arguments: what follows the command's name.
            groups: config groups whose values may be patterns and lists, over which is swept.
            lists: options for which `a,b` is one list, and the config key of each.

        Raises:
            BadInput: a name or pattern that matches nothing, or an override that Hydra does not understand.

        """
        composer = Composer(config_name, arguments)
        flags = parse_flags(arguments)
        overrides = flags.overrides
        check_keys(overrides, composer, groups, lists)
        overrides = expand(overrides, groups=groups, options=composer.options)
        overrides = lists_as_values([k_group(o, composer) for o in overrides], lists)
        sweeps = any(o.is_sweep_override() for o in _parsed(overrides))
        multirun = bool(flags.multirun or sweeps or "hydra.mode=MULTIRUN" in overrides)
        return cls(composer, flags, overrides, multirun, list(arguments))

    @property
    def only_shows(self) -> bool:
        """Whether Hydra is asked to show something (`--cfg`, `--help`) and to run nothing."""
        f = self.flags
        return bool(f.cfg or f.info or f.help or f.hydra_help or f.shell_completion)

    def jobs(self) -> list[list[str]]:
        """The overrides of each job, as Hydra's basic sweeper makes them."""
        if not self.multirun:
            return [self.overrides]
        try:
            batches = BasicSweeper.split_arguments(_parsed(self.overrides), max_batch_size=None)
        except HydraException as error:
            raise BadInput(_short(error)) from error
        return [job for batch in batches for job in batch]

    def show(self) -> None:
        """Let Hydra show what its flags ask for (`--cfg`, `--info`, ...); of a sweep, for its first cell."""
        OmegaConf.register_new_resolver("oc.env", _as_written, replace=True)
        self.flags.overrides, self.flags.multirun, self.flags.run = self.jobs()[0], False, False
        config_path, name = str(conf_folder()), self.composer.config_name
        utils._run_hydra(self.flags, get_args_parser(), _never_run, config_path, name)

    def run_by_hydra(self, job: Callable[[DictConfig], None], *, extra: Sequence[str]) -> None:
        """Let Hydra's sweeper and launcher, which somebody chose, run a job for each cell of the sweep.

        Args:
            job: called with each composed config; importable, because launchers call it in other processes.
            extra: further overrides.

        """
        mode = "MULTIRUN" if self.multirun else "RUN"
        words = [word for word in self.overrides if not word.startswith(("hydra.mode=", "hydra.searchpath="))]
        self.composer.run(mode, job, [*words, *extra, f"hydra.mode={mode}"])


def _as_written(*words: str) -> str:
    """What a config says of the environment: where configs are shown, no variable's value is."""
    return f"${{oc.env:{','.join(words)}}}"


def _never_run(composed: DictConfig) -> None:
    """The job of a command line with which Hydra only shows something."""


def measuring(arguments: Sequence[str]) -> Request:
    """A command line that asks for cells: models and datasets take patterns; `k=1,10` is one list of k."""
    return Request.read("config", arguments, groups=("model", "dataset"), lists={name: name for name in _LISTS})


def sweep_of(request: Request) -> tuple[SweepConfig, list[Config]]:
    """The settings of the sweep that a request asks for, and the config of each cell.

    Raises:
        BadInput: a config does not compose, or cells differ in what belongs to the whole sweep.

    """
    jobs = request.jobs()
    named = zip(cells(request.composer, jobs), swept_options(jobs), strict=True)
    configs = [replace(config, swept=config.swept or swept) for config, swept in named]
    settings = configs[0].settings
    for f in fields(SweepConfig):
        if any(getattr(config, f.name) != getattr(settings, f.name) for config in configs):
            raise BadInput(f"{f.name} belongs to the whole sweep and takes one value; it cannot be swept over")
    return settings, configs


def _parsed(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise BadInput(_short(error)) from error


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
