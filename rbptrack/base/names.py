"""Names that people give (families, datasets, figures) as parts of paths and of metrics' names."""

from __future__ import annotations

import hashlib
import re
import unicodedata

LONGEST = 200
"""Characters of a family's, model's or dataset's name."""

_PLAIN = re.compile(r"[\w\-. ]")
_LONGEST_PART = 80  # MLflow takes 250 characters for a metric's name, which has three such parts
_LONGEST_FILE = 120  # file systems take 255 bytes
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # on Windows


def metric_part(name: object) -> str:
    """Return a name as one part of a metric's name, which MLflow limits to letters, digits, `_ - . :` and spaces.

    Every other character, and the colon itself, becomes a colon and its number in two hexadecimal digits (above 255:
    `u` and six): `C++` is `C:2b:2b`, `nano (v2)` is `nano :28v2:29`. Different names give different parts. A long one
    is cut, and ends in `:-` and a hash of it.
    """
    text = str(name)
    hidden = not text.strip(". ")  # `.` and `..` would be folders
    part = "".join(char if _PLAIN.fullmatch(char) and not hidden else _escaped(char) for char in text) or ":"
    return part if len(part) <= _LONGEST_PART else f"{part[: _LONGEST_PART - 20]}:-{_hash(text)}"


def metric_name(name: str) -> str:
    """Return a metric's whole name as MLflow takes it: as it is where that is possible, else each part as
    `metric_part`.
    """
    if re.fullmatch(r"[/\w.\- :]{1,250}", name) and all(part.strip(". ") for part in name.split("/")):
        return name
    whole = "/".join(metric_part(part) for part in name.split("/"))
    return whole if len(whole) <= 250 else f"{whole[:230]}:-{_hash(name)}"


def file_name(name: object) -> str:
    """Return a name as the name of a file or folder: one part of a path, on any system, and never `.` or `..`.

    Letters, digits, `_ - . ( ) + ,` and spaces stay. Every other character becomes `_`. A name that was changed or is
    too long ends in a hash of the name, so that different names give different files.
    """
    text = str(name)
    made = re.sub(r"[^\w\-.()+, ]", "_", text).strip(". ")
    if made != text or not made or len(made.encode()) > _LONGEST_FILE or _RESERVED.fullmatch(made):
        kept = made.encode()[: _LONGEST_FILE - 20].decode(errors="ignore").strip(". ")
        made = f"{kept or 'name'}-{_hash(text)}"
    return made


def name_fault(name: str) -> str:
    """Describe the fault of a family's, model's or dataset's name; empty if it is valid."""
    if not name.strip():
        return "must not be empty"
    if len(name) > LONGEST:
        return f"must have at most {LONGEST} characters"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in name):
        return "must not hold control characters"
    return ""


def _escaped(char: str) -> str:
    return f":{ord(char):02x}" if ord(char) < 256 else f":u{ord(char):06x}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
