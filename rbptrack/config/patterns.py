"""Match names against patterns such as `pythia/*,!pythia/12b`, and sort names by size.

The patterns of a command line are expanded before Hydra reads it, because Hydra refuses patterns. Hydra's own function
`glob()` searches only one folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rbptrack.base.errors import BadInput, nearest, shortened_list, unknown_name

GROUP_BY_KEY = {
    "model": "model",
    "dataset": "dataset",
    "reference": "model",
    "k": "k",
    "protocol": "protocol",
    "launch": "launch",
}
"""The group of configs from which the value of a key is chosen, such as `nano/6k` in `reference=nano/6k`."""

_FACTOR_OF_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_SIZE_WORDS = ("tiny", "small", "base", "medium", "large", "xl", "xxl")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmbt]?)", re.IGNORECASE)
_SIZE_PART = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?[kmbt])(?=$|[-_])", re.ASCII | re.IGNORECASE)

_ELEMENT = re.compile(r"\s*('[^']*'|\"[^\"]*\"|[^,]+)")  # an element of a list; a comma in quotes does not end it

# Configs that must be named: `hf` and `files` need further keys, and `default` is another name for nano/115k.
_NOT_MATCHED_BY_PATTERNS = ("hf", "files", "default")


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


def is_pattern(element: str) -> bool:
    """Return whether an element of a list of names is a pattern or an exclusion."""
    return element.startswith("!") or any(sign in element for sign in "*?[")


def split_list(value: str) -> list[str]:
    """Return the elements of a list that is written as `a,b` or `[a,b]`. Quotes around elements are removed."""
    value = value.strip()
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return [part.strip().strip("'\"") for part in _ELEMENT.findall(value) if part.strip()]


def select_names(group: str, elements: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that a list of names, patterns and exclusions selects, each once.

    Args:
        group: the group of configs, for error messages, such as `model`.
        elements: names, patterns and exclusions, such as `pythia/*` and `!pythia/12b`.
        names: all names that exist.

    Raises:
        BadInput: an element matches no name, or the exclusions leave no name.

    Examples:
        >>> select_names("model", ["pythia/*", "!pythia/12b"], ["pythia/12b", "pythia/1b", "pythia/70m"])
        ['pythia/70m', 'pythia/1b']

    """
    value = ",".join(elements)
    included = [element for element in elements if not element.startswith("!")]
    if not included:
        raise BadInput(f"{group}={value}: give a name, a pattern or a list of them, such as '{group}=a/*,!a/b'")
    excluded = {name for element in elements if element.startswith("!") for name in _matching(group, element, names)}
    chosen = dict.fromkeys(name for element in included for name in _matching(group, element, names))
    remaining = [name for name in chosen if name not in excluded]
    if not remaining:
        raise BadInput(f"{group}={value} excludes every name that it selects: {shortened_list(list(chosen))}")
    return remaining


def _matching(group: str, element: str, names: Sequence[str]) -> list[str]:
    """Return the names that a name, pattern or exclusion matches, sorted by size. Raises BadInput without a match."""
    pattern = element.removeprefix("!")
    if pattern in names:
        return [pattern]
    if is_pattern(pattern):
        matching = [name for name in names if name not in _NOT_MATCHED_BY_PATTERNS and _matches_path(name, pattern)]
        if matching:
            return sorted(matching, key=natural_key)
    raise no_match_error(group, element, names)


def _matches_path(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a name. `*` matches within one folder, `**` across folders."""
    if "**" in pattern:
        return fnmatchcase(name, pattern)
    parts = name.split("/")
    patterns = pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def no_match_error(group: str, element: str, names: Sequence[str]) -> BadInput:
    """Return the error for a name or pattern that matches none of the names of a group. It suggests similar names."""
    known_sizes = sizes_by_family(names)
    family, _, size = element.removeprefix("!").partition("/")
    if family in known_sizes and size:
        near = [f"{family}/{near_size}" for near_size in nearest(size, known_sizes[family])]
        return unknown_name(group, element, [f"{family}/{known_size}" for known_size in known_sizes[family]], near)
    if family in known_sizes:
        return _missing_slash_error(group, element, known_sizes[family])
    if element in [path.name for path in Path().iterdir()]:
        return BadInput(f"no {group} matches {element}. To use the file or folder of this name: {group}=./{element}")
    near = [name for name in names if name.replace("/", "-") == element.lower()]  # tables print nano/6k as nano-6k
    if not near:
        similar_families = nearest(family, known_sizes)
        near = [f"{name}/{size.lower()}" for name in similar_families if size.lower() in known_sizes[name]]
    names_without_family = sorted((name for name in names if "/" not in name), key=natural_key)
    options = [*names_without_family, *(f"{name}/*" for name in known_sizes)]
    return unknown_name(group, element, options, near or None)


def _missing_slash_error(group: str, element: str, sizes: Sequence[str]) -> BadInput:
    """Return the error for an element that names a family and no size."""
    if element.startswith("!"):
        return BadInput(f"{group}={element} names a family. Use '{element}/*' to leave out all its sizes")
    family = element.rstrip("/")
    return BadInput(
        f"{group}={element} names a family. Use '{group}={family}/*' for all its sizes, or "
        f"{group}={family}/{sizes[0]} for one. Sizes: {shortened_list(sizes, limit=30)}"
    )


def sizes_by_family(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the sizes of each family, in ascending order: `{"pythia": ["14m", "31m", ...]}`.

    Names without a slash are left out.
    """
    sizes: dict[str, list[str]] = {}
    for name in sorted(names, key=natural_key):
        family, slash, size = name.rpartition("/")
        if slash:
            sizes.setdefault(family, []).append(size)
    return dict(sorted(sizes.items()))


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
