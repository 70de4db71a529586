"""What rbptrack asks of Hydra beyond `hydra.main`: where configs are, which exist, and composing without running."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hydra import compose
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError
from yaml.reader import ReaderError

from rbptrack.base.errors import BadInput
from rbptrack.base.user_paths import user_path
from rbptrack.config import checkpoints, ladders, registration
from rbptrack.config.arguments import parse_flags
from rbptrack.config.check import typed, wrong_value
from rbptrack.config.hydra_internals import Files, Loader, apply, initialized
from rbptrack.config.keys import removed
from rbptrack.config.paths import config_packages, working_conf
from rbptrack.config.patterns import as_value, lists_as_values


class InstalledConfigs(SearchPathPlugin):
    """After the configs that ship with rbptrack: checkpoints, the working folder's `conf/`, installed packages'."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the search paths; Hydra calls it whenever it makes one."""
        search_path.append(provider="rbptrack", path="checkpoints://")
        if own := working_conf():
            search_path.append(provider="working folder", path=own.absolute().as_uri())
        for package in config_packages()[0]:
            search_path.append(provider=package, path=f"pkg://{package}")


Plugins.instance().register(checkpoints.CheckpointSource)
Plugins.instance().register(InstalledConfigs)
registration.register()  # worker processes of other launchers import this module, and need the schema too


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
            if not user_path(extra).is_dir():
                raise BadInput(f"--config-dir {extra}: no such folder")
            inside = folders[-1].partition("=[")[2].rstrip("]") if folders else ""
            places = ",".join(filter(None, (as_value(f"file://{user_path(extra).absolute()}"), inside)))
            folders = [f"hydra.searchpath=[{places}]"]
        self._path = folders[-1:]
        self._options: dict[str, list[str]] = {}
        self._loader: Loader | None = None
        self._hydra: DictConfig | None = None

    def options(self, group: str) -> list[str]:
        """Return every name in a config group, subfolders included: `pythia/70m`."""
        if group not in self._options:
            self._options[group] = list(_walk(self._repository(), group, ""))
            self._options[group] += ladders.names() if group == "model" else ()
        return self._options[group]

    def groups(self) -> list[str]:
        """Return the config groups that the command line can choose from, `hydra` and those below it left out."""
        return [name for name in self._repository().get_group_options("", ObjectType.GROUP) if name != "hydra"]

    def _repository(self) -> Files:
        """Return the config files on the search path."""
        with self._initialized() as loader:
            return loader.files(self.config_name, list(self._path))

    @contextmanager
    def _initialized(self) -> Iterator[Loader]:
        with initialized():
            hydra: Any = GlobalHydra.instance().hydra
            self._loader = self._loader or Loader(hydra.config_loader)
            hydra.config_loader = self._loader
            yield self._loader

    def hydra_settings(self, overrides: Sequence[str]) -> DictConfig:
        """Return Hydra's own config (launcher, sweeper, ...) from the first composition."""
        return self._hydra if self._hydra is not None else self.whole(overrides)[1]

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Compose one config; raise BadInput (Hydra's own words, shortened) if it does not compose."""
        return self.whole(overrides)[0]

    def whole(self, overrides: Sequence[str]) -> tuple[DictConfig, DictConfig]:
        """Compose one config, with Hydra's own config and the choices beside it."""
        chosen = [o for o in overrides if not o.startswith("hydra.searchpath=")]
        with self._initialized(), self._explained():
            composed = compose(self.config_name, overrides=[*chosen, *self._path], return_hydra_config=True)
        with open_dict(composed):
            hydra: DictConfig = composed.pop("hydra")
        self._hydra = hydra if self._hydra is None else self._hydra
        return composed, hydra

    def update(self, composed: DictConfig, overrides: Sequence[str]) -> None:
        """Give keys of a composed config other values, as if it had been composed with them."""
        with self._explained():
            apply(parsed(overrides), composed)

    def file(self, group: str, choice: str) -> ConfigResult | None:
        """Return the file of a choice, if it has one, as it was read: not to be changed."""
        return self._repository().load_config(f"{group}/{choice}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say why a config is invalid."""
        try:
            yield
        except (HydraException, OmegaConfBaseException) as error:
            if (key := re.search(r"full_key: (\S+)", str(error))) and (sentence := removed(key[1])):
                file = re.match("In '[^']*'", str(error))
                raise BadInput(f"{file[0]}: {sentence}" if file else sentence) from error
            if (match := re.match("Error merging override (.*)", str(error))) and error.__cause__ is not None:
                raise wrong_value(match[1], error.__cause__) from error
            raise BadInput(shortened(error)) from error
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else "a config file"
            raise BadInput(f"{where}: is not YAML: {error.problem or error.context}") from error
        except ReaderError as error:  # a character that YAML does not allow
            raise BadInput(f"{error.name}, character {error.position + 1}: is not YAML: {error.reason}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{self._undecodable()} is not UTF-8 text: save it as UTF-8") from error
        except OSError as error:  # as OmegaConf says of a file that holds a number
            raise BadInput(f"a config file cannot be read, or holds no keys: {shortened(error)}") from error
        except ValueError as error:
            raise BadInput(shortened(error)) from error

    def _undecodable(self) -> str:
        """Return the first config file of the user's that is not UTF-8; Hydra does not say which it was."""
        folders = [part for path in self._path for part in re.findall(r"file://([^\],'\"]+)", path)]
        for path in (p for folder in folders for p in sorted(Path(unquote(folder)).rglob("*.yaml"))):
            try:
                path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                return str(path)
        return "a config file"

    def run(self, mode: str, job: Callable[[DictConfig], None], overrides: Sequence[str]) -> None:
        """Let Hydra compose and run one job (mode RUN) or one for each cell (MULTIRUN), where its launcher says."""
        with initialized():
            hydra: Any = GlobalHydra.instance().hydra
            run = hydra.multirun if mode == "MULTIRUN" else hydra.run
            run(config_name=self.config_name, task_function=job, overrides=[*overrides, *self._path])

    def compose_typed(self, overrides: Sequence[str]) -> Any:
        """Compose one config into its dataclass."""
        return typed(self.compose(overrides))


def _walk(repository: Files, group: str, prefix: str) -> list[str]:
    """Return every config below a group, subfolders included."""
    names = [prefix + name for name in repository.get_group_options(group, ObjectType.CONFIG)]
    for folder in repository.get_group_options(group, ObjectType.GROUP):
        names += _walk(repository, f"{group}/{folder}", f"{prefix}{folder}/")
    return names


def parsed(overrides: Sequence[str]) -> list[Override]:
    """Return overrides as Hydra understands them; BadInput where it does not."""
    try:
        return list(map(_parsed, overrides))
    except HydraException as error:
        raise BadInput(shortened(error)) from error


def glob_as_patterns(override: str) -> str:
    """Return Hydra's `model=glob(pythia/*,exclude=pythia/12b)` as `model=pythia/*,!pythia/12b`; any other word
    unchanged.
    """
    key, _, value = override.partition("=")
    if not value.startswith("glob("):
        return override
    glob = parsed([override])[0].value()
    assert isinstance(glob, Glob)  # noqa: S101 - for the types: the grammar takes no other word that begins so
    return f"{key}={','.join([*glob.include, *(f'!{pattern}' for pattern in glob.exclude)])}"


@cache
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_overrides([override])[0]


def shortened(error: Exception) -> str:
    """Return Hydra's message without its hints on command-line flags and object types."""
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
