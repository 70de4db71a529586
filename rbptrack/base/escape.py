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
    and two hexadecimal digits of its code point. Above 255, it becomes `:u` and six digits. A long part is cut and ends
    in `:-` and a hash of the name. Different names therefore give different parts.

    Examples:
        >>> metric_part("nano (v2)")
        'nano :28v2:29'

    """
    only_dots = not text.strip(". ")  # in a path, `.` and `..` would name folders
    part = "".join(char if _PLAIN.fullmatch(char) and not only_dots else _escaped(char) for char in text) or ":"
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
    code_point = ord(char)
    return f":{code_point:02x}" if code_point < 256 else f":u{code_point:06x}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
