"""Sort names by size, match them against patterns, and read sizes and lists from texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

_FACTOR_OF_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_SIZE_WORDS = ("tiny", "small", "base", "medium", "large", "xl", "xxl")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmbt]?)", re.IGNORECASE)
_SIZE_PART = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?[kmbt])(?=$|[-_])", re.ASCII | re.IGNORECASE)

_ELEMENT = re.compile(r"\s*('[^']*'|\"[^\"]*\"|[^,]+)")  # an element of a list; a comma in quotes does not end it


def natural_key(name: str) -> tuple[object, ...]:
    """Return a key that sorts names by size: 70m < 1b < 1.4b, small < large < xl, step512 < step1000.

    Other names are sorted by their text and by the whole numbers in it: seed2 step16000 < seed10 step1000. Sizes come
    before words for sizes, and words for sizes come before other names. Each part of a path is compared by itself.
    """
    key: list[object] = []
    for part in name.split("/"):
        size = _SIZE.match(part)
        if part in _SIZE_WORDS:
            key.append((1, _SIZE_WORDS.index(part)))
        elif size:
            number, suffix = size.groups()
            key.append((0, float(number) * _FACTOR_OF_SUFFIX[suffix.lower()], _texts_and_numbers(part[size.end() :])))
        else:
            key.append((2, _texts_and_numbers(part)))
    return tuple(key)


def _texts_and_numbers(text: str) -> tuple[str | int, ...]:
    """Divide a text at its whole numbers. Even elements are texts, and odd elements are numbers."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", text)))


def matches_patterns(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Return whether patterns select an object.

    They select it if one of its names matches a pattern, and none of its names matches an exclusion. If all patterns
    are exclusions, they select it if none of its names matches an exclusion.

    Args:
        names: the names of the object.
        patterns: patterns and exclusions. An exclusion begins with `!`. `*` matches any text, slashes included.

    Examples:
        >>> matches_patterns(["pythia-1b"], ["pythia*", "!pythia-12b"]), matches_patterns(["gpt2"], ["pythia*"])
        (True, False)

    """
    names = list(names)
    inclusions = [pattern for pattern in patterns if not pattern.startswith("!")]
    exclusions = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if any(fnmatchcase(name, pattern) for name in names for pattern in exclusions):
        return False
    return not inclusions or any(fnmatchcase(name, pattern) for name in names for pattern in inclusions)


def split_list(value: str) -> list[str]:
    """Return the elements of a list that is written as `a,b` or `[a,b]`. Quotes around elements are removed."""
    value = value.strip()
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return [part.strip().strip("'\"") for part in _ELEMENT.findall(value) if part.strip()]


def separate_size(name: str) -> tuple[str, str]:
    """Separate the size from a model's name: `Name-1.4B-base` becomes (`Name-base`, `1.4B`).

    If the name has no size, return the whole name and an empty text.
    """
    match = _SIZE_PART.search(name)
    if match is None:
        return name, ""
    parts = (name[: match.start()].strip("-_"), name[match.end() :].strip("-_"))
    name_without_size = "-".join(part for part in parts if part)
    return (name_without_size, match[1]) if name_without_size else (name, "")
