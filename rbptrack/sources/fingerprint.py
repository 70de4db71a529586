"""Hashes the settings that determine a measurement's numbers, and files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rbptrack.base.files import sha256

SCORING_VERSION = 1
"""A part of every fingerprint. It must be increased when a change of the program changes any measured number."""


def fingerprint(parts: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of some settings. Their order does not matter."""
    text = json.dumps(dict(parts), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 (hex) of the relative names and contents of a folder's files. Hidden files do not count."""
    return _hash((path.relative_to(folder).as_posix(), path) for path in visible_files(folder))


def visible_files(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders, without hidden files and hidden folders such as .git."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def files_hash(files: Sequence[Path]) -> str:
    """Return the SHA-256 (hex) of the names and contents of files, in order. Their folders do not matter."""
    return _hash((path.name, path) for path in files)


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, path in named:
        total.update(os.fsencode(f"{name}\0{sha256(path)}\n"))  # a name may hold bytes that are not UTF-8
    return total.hexdigest()
