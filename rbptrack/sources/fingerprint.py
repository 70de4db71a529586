"""Identity of a measurement: everything that determines its numbers, and nothing else."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SCORING_VERSION = 1  # raised when a change of the engine moves any number


def fingerprint(parts: Mapping[str, object]) -> str:
    """SHA-256 (hex) of the parts, whatever their order."""
    text = json.dumps(dict(parts), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_hash(folder: Path) -> str:
    """SHA-256 (hex) over the relative names and contents of a folder's files."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return _hash((path.relative_to(folder).as_posix(), path) for path in files)


def files_hash(files: Sequence[Path]) -> str:
    """SHA-256 (hex) over the names and contents of files, in their order; where they lie does not matter."""
    return _hash((path.name, path) for path in files)


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, path in named:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name}\0{digest}\n".encode())
    return total.hexdigest()
