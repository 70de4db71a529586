"""Identity: hashes of what determines a measurement's numbers, and of files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rbptrack.base.files import sha256

SCORING_VERSION = 1
"""Part of every fingerprint; raised when a change of the program moves any number."""


def fingerprint(parts: Mapping[str, object]) -> str:
    """SHA-256 (hex) of the parts, whatever their order."""
    text = json.dumps(dict(parts), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_hash(folder: Path) -> str:
    """SHA-256 (hex) over the relative names and contents of a folder's files; hidden ones do not count."""
    return _hash((path.relative_to(folder).as_posix(), path) for path in visible_files(folder))


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder and of those in it: none that is hidden, or in a hidden folder such as .git and .cache."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def files_hash(files: Sequence[Path]) -> str:
    """SHA-256 (hex) over the names and contents of files, in their order; their folders do not matter."""
    return _hash((path.name, path) for path in files)


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, path in named:
        total.update(os.fsencode(f"{name}\0{sha256(path)}\n"))  # a name may hold bytes that are not UTF-8
    return total.hexdigest()
