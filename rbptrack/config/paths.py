"""Find the folders of configs, plugins and results.

In a checkout of the repository, conf/ and plugins/ are next to the package. In an installation, they are inside it.
"""

from __future__ import annotations

import os
from pathlib import Path

from rbptrack.base.errors import BadInput

_PACKAGE = Path(__file__).parent.parent


def conf_folder() -> Path:
    """Return the folder of the configs that ship with rbptrack."""
    return _shipped_folder("conf")


def builtin_plugins_folder() -> Path:
    """Return the folder of the plugins that ship with rbptrack."""
    return _shipped_folder("plugins")


def embedded(path: str) -> Path:
    """Return the path of a file or folder in `rbptrack/embedded`, which holds small models and texts."""
    return _PACKAGE / "embedded" / path


def mlruns_folder() -> Path:
    """Return `mlruns` in the working folder, the folder of unfinished cells and of MLflow's artifacts."""
    return Path.cwd() / "mlruns"


def cells_folder() -> Path:
    """Return the folder of unfinished and undelivered measurements. Each has a subfolder named by its fingerprint."""
    return mlruns_folder() / "cells"


def user_path(text: str) -> Path:
    """Return a path that a user wrote, with `~` expanded. Raises BadInput if the text cannot be a path."""
    try:
        part_lengths = [len(os.fsencode(part)) for part in text.split("/")]
    except UnicodeEncodeError as error:
        raise BadInput(f"{text[:60]!r} is not a path: it has characters that no file name can have") from error
    if "\0" in text or max(part_lengths) > 255 or sum(part_lengths) + len(part_lengths) > 4095:
        raise BadInput(
            f"{text[:60]!r} is not a path: a name can have at most 255 bytes and a path at most 4,095, and neither can "
            "contain a zero byte"
        )
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{text}: this machine has no such user. Write the path without ~") from error


def config_folders() -> list[Path]:
    """Return the folders that are always searched for configs: that of rbptrack, and `conf/` in the working folder."""
    folders = [conf_folder()]
    user_folder = Path.cwd() / "conf"
    if user_folder.is_dir() and user_folder.resolve() != folders[0].resolve():
        folders.append(user_folder)
    return folders


def _shipped_folder(name: str) -> Path:
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
