"""Helpers of the tests of importers: write a file that is to be imported, and read it."""

from __future__ import annotations

from pathlib import Path

from rbptrack.analysis.importing import Importer
from rbptrack.exchange import CheckedContent, check_imported


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, create the folders above it, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_checked(importer: Importer, path: Path) -> CheckedContent:
    """Read all rows of a file with an importer and check them as `rbptrack import` does.

    Fails if the importer does not accept the path. Raises BadInput if a row breaks a rule of importers.
    """
    assert importer.takes(path)
    return check_imported(path, importer.read(path))
