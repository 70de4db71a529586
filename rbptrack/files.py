"""Small files that other processes read, on this machine or another: each is there whole or not at all."""

from __future__ import annotations

import secrets
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file in place of what was there; several processes may do so at once, and one of them is the last.

    Raises:
        OSError: the folder is not there, or the disk is full; what was there before still is.

    """
    # Not the process's number: two machines that share a folder, or two containers, give the same one.
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
