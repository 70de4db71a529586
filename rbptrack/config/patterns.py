"""Matches names against patterns such as `pythia/*,!pythia/12b`, and sorts names by size.

A command line is rewritten with these functions before Hydra reads it. Hydra's own `glob()` searches one folder only,
and Hydra refuses a plain pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from rbptrack.base.errors import BadInput, nearest, shortened_list, unknown_name

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_SIZE_WORDS = ("tiny", "small", "base", "medium", "large", "xl", "xxl")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmbt]?)(\D*)(\d*)(.*)", re.IGNORECASE)
_SIZE_PART = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?[kmbt])(?=$|[-_])", re.ASCII | re.IGNORECASE)

_NEAR = 1.5  # a size is suggested for a missing one if they differ by at most this factor
_ELEMENT = re.compile(r"\s*('[^']*'|\"[^\"]*\"|[^,]+)")  # an element of a list; a comma in quotes does not end it

# Configs that no pattern matches: `hf` and `files` need further keys, `default` is another name for nano/115k.
_BY_NAME_ONLY = ("hf", "files", "default")


def natural_key(name: str) -> tuple[object, ...]:
    """Return a key that sorts names by size: 70m < 1b < 1.4b, small < large < xl, step512 < step1000.

    Other names are sorted by their text and then by the number at their end. In the key, numbers come before words for
    sizes, and words for sizes come before other names.
    """
    key: list[object] = []
    for part in name.split("/"):
        match = _SIZE.fullmatch(part)
        if part in _SIZE_WORDS:
            key.append((1, float(_SIZE_WORDS.index(part)), part))
        elif match:
            number, suffix, word, step, rest = match.groups()
            key.append((0, float(number) * _SUFFIX[suffix.lower()], word, int(step or 0), rest))
        else:
            digits = re.search(r"\d+$", part)
            stem = part[: digits.start()] if digits else part
            key.append((2, 0.0, stem, int(digits[0]) if digits else 0))
    return tuple(key)


def passes(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Return whether an object passes a filter of patterns.

    It passes if one of its names matches a pattern, and none of its names matches an exclusion. If all patterns are
    exclusions, the second condition is enough.

    Args:
        names: the names of the object.
        patterns: patterns and exclusions. An exclusion begins with `!`. `*` matches any text, slashes included.

    Examples:
        >>> passes(["pythia-1b"], ["pythia*", "!pythia-12b"]), passes(["gpt2"], ["pythia*"])
        (True, False)

    """
    known = list(names)
    requested = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if any(fnmatchcase(name, pattern) for name in known for pattern in unwanted):
        return False
    return not requested or any(fnmatchcase(name, pattern) for name in known for pattern in requested)


def is_pattern(element: str) -> bool:
    """Return whether an element of a list of names is a pattern or an exclusion."""
    return element.startswith("!") or any(sign in element for sign in "*?[")


def split_list(value: str) -> list[str]:
    """Return the elements of a list that is written as `a,b` or `[a,b]`, without quotes."""
    value = value.strip()
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return [part.strip().strip("'\"") for part in _ELEMENT.findall(value) if part.strip()]


def choose(group: str, elements: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that a list of names, patterns and exclusions selects, without repetition.

    Args:
        group: the kind of the names, for error messages, such as `model`.
        elements: names, patterns and exclusions, such as `pythia/*` and `!pythia/12b`.
        names: all names that exist.

    Raises:
        BadInput: an element matches no name, or the exclusions leave no name.

    Examples:
        >>> choose("model", ["pythia/*", "!pythia/12b"], ["pythia/12b", "pythia/1b", "pythia/70m"])
        ['pythia/70m', 'pythia/1b']

    """
    value = ",".join(elements)
    included = [element for element in elements if not element.startswith("!")]
    if not included:
        raise BadInput(f"{group}={value}: give a name, a pattern or a list of them, such as '{group}=a/*,!a/b'")
    excluded = {name for element in elements if element.startswith("!") for name in _matching(group, element, names)}
    chosen = dict.fromkeys(name for element in included for name in _matching(group, element, names))
    left = [name for name in chosen if name not in excluded]
    if not left:
        raise BadInput(f"{group}={value} excludes every name that it selects: {shortened_list(list(chosen))}")
    return left


def _matching(group: str, element: str, names: Sequence[str]) -> list[str]:
    """Return the names that a name, pattern or exclusion matches, sorted by size. Raises BadInput if there is none."""
    pattern = element.removeprefix("!")
    if pattern in names:
        return [pattern]
    if is_pattern(pattern):
        matching = [name for name in names if name not in _BY_NAME_ONLY and _matches_path(name, pattern)]
        if matching:
            return sorted(matching, key=natural_key)
    raise no_match(group, element, names)


def _matches_path(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a name. `*` matches within one folder, `**` across folders."""
    if "**" in pattern:
        return fnmatchcase(name, pattern)
    parts = name.split("/")
    patterns = pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def no_match(group: str, element: str, names: Sequence[str]) -> BadInput:
    """Return the error for a name or pattern that matches nothing. It suggests similar names.

    Args:
        group: the kind of the names, such as `model`.
        element: the name or pattern.
        names: all names that exist.

    """
    sizes_by_family = families(names)
    family, _, size = element.removeprefix("!").partition("/")
    sizes = sizes_by_family.get(family, [])
    if sizes and not size and element.startswith("!"):
        return BadInput(f"{group}={element} names a family. Use '{element}/*' to leave out all its sizes")
    if sizes and not size:
        return BadInput(
            f"{group}={element} names a family. Use '{group}={family}/*' for all its sizes, or "
            f"{group}={family}/{sizes[0]} for one. Sizes: {shortened_list(sizes, limit=30)}"
        )
    if sizes:
        members = [f"{family}/{known}" for known in sizes]
        near = [members[sizes.index(known)] for known in _near_sizes(size, sizes)]
        suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
        return BadInput(f"no {group} matches {element}.{suggestion} Options: {shortened_list(members)}")
    near = [name for name in names if name.replace("/", "-") == element.lower()]  # the name of a measurement's model
    if not near:
        alike = nearest(family, sizes_by_family)
        near = [f"{name}/{size.lower()}" for name in alike if size.lower() in sizes_by_family[name]]
    plain = sorted((name for name in names if "/" not in name), key=natural_key)
    options = [*plain, *(f"{folder}/*" for folder in sizes_by_family)]
    if near:
        return BadInput(
            f"no {group} matches {element}. Did you mean {' or '.join(near)}? Options: {shortened_list(options)}"
        )
    return unknown_name(group, element, options)


def _near_sizes(size: str, sizes: Sequence[str]) -> list[str]:
    """Return the size that is nearest to a missing size, if they differ by a factor of at most 1.5.

    If the missing size does not begin with a number, return sizes of similar spelling.
    """
    numbers = {known: _number(known) for known in sizes}
    requested = _number(size)
    if size.lower() in sizes or not requested:
        return nearest(size, sizes)
    ratios = {known: max(number / requested, requested / number) for known, number in numbers.items() if number}
    close = [known for known, ratio in ratios.items() if ratio <= _NEAR]
    return [min(close, key=ratios.__getitem__)] if close else []


def _number(size: str) -> float:
    """Return the number with which a size begins, such as 7e7 for `70m`. Return 0 if it begins with another text."""
    match = _SIZE.fullmatch(size)
    return float(match[1]) * _SUFFIX[match[2].lower()] if match else 0.0


def families(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the sizes of each family, in ascending order: `{"pythia": ["14m", "31m", ...]}`.

    Names without a slash are left out.
    """
    folders: dict[str, list[str]] = {}
    for name in sorted(names, key=natural_key):
        folder, slash, leaf = name.rpartition("/")
        if slash:
            folders.setdefault(folder, []).append(leaf)
    return dict(sorted(folders.items()))


def without_size(name: str) -> tuple[str, str]:
    """Separate the size from a model's name: `Name-1.4B-base` becomes (`Name-base`, `1.4B`).

    If the name has no size, return the whole name and an empty text.
    """
    size = _SIZE_PART.search(name)
    if size is None:
        return name, ""
    around = (name[: size.start()].strip("-_"), name[size.end() :].strip("-_"))
    rest = "-".join(part for part in around if part)
    return (rest, size[1]) if rest else (name, "")
