"""Where configs, plugins and results lie: in a checkout beside the package, inside it when installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from rbptrack.base.errors import BadInput

_PACKAGE = Path(__file__).parent.parent
CONFIG_POINTS = "rbptrack.configs"
"""Entry points of packages with configs of their own: model/<family>/<size>.yaml, dataset/*.yaml."""


def conf_folder() -> Path:
    """The configs that ship with rbptrack."""
    return _shipped("conf")


def builtin_plugins() -> Path:
    """The plugins that ship with rbptrack."""
    return _shipped("plugins")


def embedded(path: str) -> Path:
    """A file or folder of the models and texts that ship with rbptrack."""
    return _PACKAGE / "embedded" / path


def home() -> Path:
    """The folder of cells under way, and of MLflow's artifacts: ./mlruns of the working folder."""
    return Path.cwd() / "mlruns"


def cells_folder() -> Path:
    """The folders of measurements under way, each named by its fingerprint."""
    return home() / "cells"


def user_path(text: str) -> Path:
    """A path as a user wrote it, `~` expanded; BadInput where it cannot be one."""
    try:
        parts = [len(os.fsencode(part)) for part in text.split("/")]
    except UnicodeEncodeError as error:
        raise BadInput(f"{text[:60]!r} is not a path: its characters cannot be in a file's name") from error
    if "\0" in text or max(parts) > 255 or sum(parts) + len(parts) > 4095:
        raise BadInput(
            f"{text[:60]!r} is not a path: a name has at most 255 bytes, a path 4,095, and none of them is zero"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{text}: no user of this machine is called so") from error


def config_folders() -> list[Path]:
    """Every folder of configs that is always searched: the package's, the working folder's conf/, other packages'."""
    own = Path.cwd() / "conf"
    folders = [conf_folder()]
    if own.is_dir() and own.resolve() != folders[0].resolve():
        folders.append(own)
    folders.extend(_packages())
    return folders


def _packages() -> Iterator[Path]:
    for point in entry_points(group=CONFIG_POINTS):
        folder = package_folder(point.value)
        if folder is None:
            raise BadInput(f"the package {point.value}, which offers configs ({point.name}), cannot be found")
        yield folder


def package_folder(name: str) -> Path | None:
    """Return the folder of a package, or None if the package cannot be imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _shipped(name: str) -> Path:
    inside = _PACKAGE / name
    if inside.is_dir():
        return inside
    return _PACKAGE.parent / name
