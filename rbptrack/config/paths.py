"""Finds the folders of configs, plugins and results.

Configs and plugins are beside the package in a checkout of the repository, and inside the package when it is installed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from rbptrack.base.errors import BadInput

_PACKAGE = Path(__file__).parent.parent
CONFIG_ENTRY_POINTS = "rbptrack.configs"
"""The group of entry points through which other packages offer configs (model/<family>/<size>.yaml, dataset/*.yaml)."""


def conf_folder() -> Path:
    """Return the folder of the configs that ship with rbptrack."""
    return _shipped_folder("conf")


def builtin_plugins() -> Path:
    """Return the folder of the plugins that ship with rbptrack."""
    return _shipped_folder("plugins")


def embedded(path: str) -> Path:
    """Return the path of a file or folder in `rbptrack/embedded`, which holds small models and texts."""
    return _PACKAGE / "embedded" / path


def mlruns_folder() -> Path:
    """Return the folder of unfinished cells and of MLflow's artifacts: `mlruns` in the working folder."""
    return Path.cwd() / "mlruns"


def cells_folder() -> Path:
    """Return the folder with one subfolder per unfinished measurement, named by the measurement's fingerprint."""
    return mlruns_folder() / "cells"


def user_path(text: str) -> Path:
    """Return a path that a user wrote, with `~` expanded. Raises BadInput if the text cannot be a path."""
    try:
        parts = [len(os.fsencode(part)) for part in text.split("/")]
    except UnicodeEncodeError as error:
        raise BadInput(f"{text[:60]!r} is not a path: its characters cannot be in a file's name") from error
    if "\0" in text or max(parts) > 255 or sum(parts) + len(parts) > 4095:
        raise BadInput(
            f"{text[:60]!r} is not a path: a name can have at most 255 bytes and a path at most 4,095, and neither can "
            "contain a zero byte"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{text}: this machine does not have that user") from error


def config_folders() -> list[Path]:
    """Return the folders that are always searched for configs.

    They are rbptrack's own folder, `conf/` in the working folder, and the folders that other packages offer through
    entry points.
    """
    own = Path.cwd() / "conf"
    folders = [conf_folder()]
    if own.is_dir() and own.resolve() != folders[0].resolve():
        folders.append(own)
    folders.extend(_package_folders())
    return folders


def _package_folders() -> Iterator[Path]:
    for point in entry_points(group=CONFIG_ENTRY_POINTS):
        folder = package_folder(point.value)
        if folder is None:
            raise BadInput(
                f"the package {point.value}, which is registered as a source of configs ({point.name}), cannot be "
                "imported: install the distribution that registers it again, or remove it"
            )
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


def _shipped_folder(name: str) -> Path:
    inside = _PACKAGE / name
    if inside.is_dir():
        return inside
    return _PACKAGE.parent / name
