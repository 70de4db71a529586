"""Computes the fingerprint of settings and the hashes of files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rbptrack.base.files import sha256

SCORING_VERSION = 1
"""The version of the scoring code, a part of every fingerprint. Increase it if a change alters any measured number."""


def fingerprint(settings: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of settings by name. Their order does not matter."""
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 (hex) of the relative paths and contents of a folder's visible files."""
    return _hash_files((path.relative_to(folder).as_posix(), path) for path in visible_files(folder))


def visible_files(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders, without hidden files and hidden folders such as .git."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def files_hash(files: Sequence[Path]) -> str:
    """Return the SHA-256 (hex) of the names and contents of files, in order. Their folders do not matter."""
    return _hash_files((path.name, path) for path in files)


def _hash_files(names_and_files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in names_and_files:
        digest.update(os.fsencode(f"{name}\0{sha256(path)}\n"))  # a name may hold bytes that are not UTF-8
    return digest.hexdigest()
