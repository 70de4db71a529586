"""Where configs, plugins and results lie: in a checkout beside the package, inside it when installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from rbptrack.base.errors import BadInput
from rbptrack.config.patterns import split_list

PACKAGE = Path(__file__).parent.parent
EMBEDDED = PACKAGE / "embedded"
CONFIG_POINTS = "rbptrack.configs"  # a package with model/<family>/<size>.yaml, dataset/*.yaml, analyzer/*.yaml

_SIGNS = ("${", "?", "%")


def home() -> Path:
    """Return the folder that holds everything local: ./mlruns of the working folder; BadInput where that cannot hold
    it.
    """
    here = Path.cwd()
    if sign := next((character for character in _SIGNS if character in str(here)), ""):
        raise BadInput(
            f"the working folder {here} has {sign} in its path, which Hydra and MLflow take for more than a name: "
            "rename it, or work in another"
        )
    folder = here / "mlruns"
    if folder.is_symlink() and not folder.exists():
        raise BadInput(f"{folder} is a link to {folder.readlink()}, which is not there: make it, or remove the link")
    return folder


def partial() -> Path:
    """Return the folder of unfinished measurements, each in a folder named by its fingerprint."""
    return home() / "partial"


def builtin_folder() -> Path:
    """Return the plugins that ship with rbptrack."""
    return _shipped("plugins")


def conf_folder() -> Path:
    """Return the configs that ship with rbptrack."""
    return _shipped("conf")


def working_conf() -> Path | None:
    """Return the configs of the working folder, found as its plugins are: its `conf/`, unless that is the one that
    ships.
    """
    here = Path.cwd() / "conf"
    return here if here.is_dir() and here.resolve() != conf_folder().resolve() else None


def unused_configs() -> list[str]:
    """Return the working folder's configs that cannot be chosen, because a different one of that name ships with
    rbptrack.
    """
    here = working_conf()
    unused = list[str]()
    for path in sorted(here.rglob("*.yaml")) if here else ():
        shipped = conf_folder() / path.relative_to(here or path)
        if shipped.is_file() and path.parent != here and shipped.read_bytes() != path.read_bytes():
            unused.append(str(path.relative_to(Path.cwd())))
    return unused


def _shipped(name: str) -> Path:
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def plugin_folders(arguments: Sequence[str]) -> list[str]:
    """Return the folders that plugins.path names, read off a command line: plugins are found before anything is
    composed.
    """
    return next((split_list(a.partition("=")[2]) for a in arguments if a.startswith("plugins.path=")), [])


def config_packages() -> tuple[dict[str, str], list[str]]:
    """Return packages of configs that installed distributions offer, with their distribution; a line per broken."""
    return _config_packages(tuple(sys.path))


@lru_cache(maxsize=1)  # Hydra asks for the search path at each composition
def _config_packages(places: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    packages = dict[str, str]()
    broken = list[str]()
    for point in entry_points(group=CONFIG_POINTS):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "package"
        try:
            importlib.import_module(point.value)
            packages[point.value] = package
        except Exception as error:
            broken.append(f"entry point {point.name} ({point.value}) of {package}: {type(error).__name__}: {error}")
    return packages, broken
