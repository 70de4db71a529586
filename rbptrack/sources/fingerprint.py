"""Identity of a measurement: everything that determines its numbers, and nothing else."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from rbptrack.config.paths import EMBEDDED, PACKAGE

SCORING_VERSION = 1  # raised when a change of the engine moves any number
_CODE = (".py", ".html", ".csv", ".json")  # what the program is made of


def fingerprint(parts: Mapping[str, object]) -> str:
    """Return SHA-256 (hex) of the parts, whatever their order."""
    text = json.dumps(dict(parts), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_hash(folder: Path) -> str:
    """Return SHA-256 (hex) over the relative names and contents of a folder's files."""
    return contents_hash(folder, (path for path in folder.rglob("*") if not path.name.startswith(".")))


def contents_hash(folder: Path, paths: Iterable[Path]) -> str:
    """Return SHA-256 (hex) over what files hold, and their names below a folder."""
    files = sorted(path for path in paths if path.is_file())
    return _hash((path.relative_to(folder).as_posix(), path) for path in files)


@cache
def own_code() -> str:
    """Return a hash of rbptrack's code without its plugins: remembered results hold for the code behind
    them.
    """
    code = (path for path in PACKAGE.rglob("*") if path.suffix in _CODE)
    left_out = (EMBEDDED, PACKAGE / "plugins")
    return contents_hash(PACKAGE, (path for path in code if not any(map(path.is_relative_to, left_out))))


def files_hash(files: Sequence[Path]) -> str:
    """Return SHA-256 (hex) over the names and contents of files, in their order; where they lie does not matter."""
    return _hash((path.name, path) for path in files)


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    total = hashlib.sha256()
    for name, path in named:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{name}\0{digest}\n".encode())
    return total.hexdigest()
