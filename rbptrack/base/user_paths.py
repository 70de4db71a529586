"""Paths as users write them: checked in one place, so that a wrong one is answered in a line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rbptrack.base.errors import BadInput
from rbptrack.base.files import clear_unfinished, kind_of

_LONGEST_NAME = 255  # bytes of a file's or folder's name
_LONGEST = 4095  # bytes of a path
_SHOWN = 60  # characters of a path that is too long


def user_path(text: str) -> Path:
    """Read a path that a user wrote, with `~` for a home folder.

    Raises:
        BadInput: the path is too long, holds a zero byte, or names a user that does not exist.

    """
    names = os.fsencode(text).split(os.fsencode(os.sep))
    if max(map(len, names)) > _LONGEST_NAME or len(os.fsencode(text)) > _LONGEST:
        raise BadInput(
            f"{text[:_SHOWN]}... is too long: a name has at most {_LONGEST_NAME} bytes, a path {_LONGEST:,}; "
            "give a shorter one"
        )
    if "\0" in text:
        raise BadInput(f"{text[:_SHOWN]!r}: a path cannot hold a zero byte; take it out")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise BadInput(f"{text}: no user of this machine is called so; write the home folder's own path") from None


def check_writable_folder(folder: Path) -> None:
    """Refuse a file that could not be written, and remove a killed command's unfinished one.

    Raises:
        BadInput: the folder is missing, or it takes no files.

    """
    if not folder.is_dir():
        what = f"{folder} is {kind_of(folder)}, not a folder" if os.path.lexists(folder) else f"no folder {folder}"
        raise BadInput(f"{what}; make it, or give another")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}; give another folder") from error
    clear_unfinished(folder)
