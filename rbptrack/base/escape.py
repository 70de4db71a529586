"""Escape names of families, datasets and figures for use in names of metrics and in paths."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[\w\-. ]")
_MAX_PART_LENGTH = 80  # MLflow takes 250 characters for a metric's name, which has three such parts
_MAX_FILE_LENGTH = 120  # file systems take 255 bytes


def metric_part(text: str) -> str:
    """Escape a name for use as one part of a metric's name.

    MLflow allows letters, digits, `_ - . :` and spaces. Every other character, and the colon itself, becomes a colon
    and its number in two hexadecimal digits (above 255: `u` and six digits). Different names give different parts. A
    long part is cut and ends in `:-` and a hash of the name.

    Examples:
        >>> metric_part("nano (v2)")
        'nano :28v2:29'

    """
    folder = not text.strip(". ")  # `.` and `..` would be folders
    part = "".join(char if _PLAIN.fullmatch(char) and not folder else _escaped(char) for char in text) or ":"
    if len(part) > _MAX_PART_LENGTH:
        return f"{part[: _MAX_PART_LENGTH - 20]}:-{_hash(text)}"
    return part


def file_part(text: str) -> str:
    """Turn a name into the name of a file or folder, never `.` or `..`.

    Letters, digits, `_ - . ( ) + ,` and spaces stay. Other characters become `_`. If the name was changed or is too
    long, the result ends in a hash of the name. Different names therefore give different files.
    """
    part = re.sub(r"[^\w\-.()+, ]", "_", text).strip(". ")
    if part == text and part and len(part.encode()) <= _MAX_FILE_LENGTH:
        return part
    beginning = part.encode()[: _MAX_FILE_LENGTH - 20].decode(errors="ignore").strip(". ")
    return f"{beginning or 'name'}-{_hash(text)}"


def _escaped(char: str) -> str:
    number = ord(char)
    return f":{number:02x}" if number < 256 else f":u{number:06x}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
