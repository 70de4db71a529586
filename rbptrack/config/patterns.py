"""Patterns over names: `pythia/*,!pythia/12b` among configs, `--model 'nano*'` among measurements.

Hydra's own `glob()` sees one folder only, and a bare pattern fails before any sweeper exists. So a command line is
rewritten before Hydra reads it. The names that exist come from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from rbptrack.base.errors import BadInput, nearest, shortened, unknown

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_SIZE_WORDS = ("tiny", "small", "base", "medium", "large", "xl", "xxl")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmbt]?)(\D*)(\d*)(.*)", re.IGNORECASE)
_SIZE_PART = re.compile(r"(?:^|[-_])(\d+(?:\.\d+)?[kmbt])(?=$|[-_])", re.ASCII | re.IGNORECASE)

_NEAR = 1.5  # the largest factor between a size that does not exist and one that was probably meant
_ELEMENT = re.compile(r"\s*('[^']*'|\"[^\"]*\"|[^,]+)")  # of a list; quotes hold commas

_BY_NAME_ONLY = ("hf", "files", "default")  # configs that other keys complete, and another name for nano/115k


def natural_key(name: str) -> tuple[object, ...]:
    """Sort key for names by size: 70m < 1b < 1.4b, small < medium < large < xl, step512 < step1000; others by text.

    A part's first number says which kind it is: 0 a size, 1 a word for one, 2 another name; its second orders the kind.
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


def fits(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether something with these names passes a filter; `*` matches anything, also a slash; `!` excludes.

    Examples:
        >>> fits(["pythia-1b"], ["pythia*", "!pythia-12b"]), fits(["gpt2"], ["!pythia*"]), fits(["gpt2"], ["pythia*"])
        (True, True, False)

    """
    known = list(names)
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if any(fnmatchcase(name, pattern) for name in known for pattern in unwanted):
        return False
    return not wanted or any(fnmatchcase(name, pattern) for name in known for pattern in wanted)


def is_pattern(element: str) -> bool:
    """Whether an element of a list of names stands for several, or takes some away."""
    return element.startswith("!") or any(sign in element for sign in "*?[")


def split_list(value: str) -> list[str]:
    """The elements of `a,b` or `[a,b]`, without quotes."""
    value = value.strip()
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return [part.strip().strip("'\"") for part in _ELEMENT.findall(value) if part.strip()]


def choose(group: str, elements: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that a list of names, patterns and exclusions stands for, each once.

    Args:
        group: what the names are of, for errors: `model`.
        elements: such as `pythia/*` and `!pythia/12b`.
        names: all that exist.

    Raises:
        BadInput: an element matches nothing, or no name is left.

    Examples:
        >>> choose("model", ["pythia/*", "!pythia/12b"], ["pythia/12b", "pythia/1b", "pythia/70m"])
        ['pythia/70m', 'pythia/1b']

    """
    value = ",".join(elements)
    included = [element for element in elements if not element.startswith("!")]
    if not included:
        raise BadInput(f"{group}={value}: give a name, a pattern or a list of them, such as '{group}=a/*,!a/b'")
    excluded = {name for element in elements if element.startswith("!") for name in _match(group, element, names)}
    chosen = dict.fromkeys(name for element in included for name in _match(group, element, names))
    left = [name for name in chosen if name not in excluded]
    if not left:
        raise BadInput(f"{group}={value} excludes everything that it chooses: {shortened(list(chosen))}")
    return left


def _match(group: str, element: str, names: Sequence[str]) -> list[str]:
    """The names that one name or pattern stands for, or takes away, by size."""
    pattern = element.removeprefix("!")
    if pattern in names:
        return [pattern]
    if is_pattern(pattern):
        matching = [name for name in names if name not in _BY_NAME_ONLY and _matches(name, pattern)]
        if matching:
            return sorted(matching, key=natural_key)
    raise no_match(group, element, names)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name: `*` stays inside a folder, `**` crosses folders."""
    if "**" in pattern:
        return fnmatchcase(name, pattern)
    parts = name.split("/")
    patterns = pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def no_match(group: str, element: str, names: Sequence[str]) -> BadInput:
    """Make the error for a name or pattern that matches nothing: sizes of its family, or the nearest family."""
    sizes_by_family = families(names)
    family, _, size = element.removeprefix("!").partition("/")
    sizes = sizes_by_family.get(family, [])
    if sizes and not size and element.startswith("!"):
        return BadInput(f"{group}={element} names a family: '{element}/*' leaves out every size of it")
    if sizes and not size:
        return BadInput(
            f"{group}={element} names a family: '{group}={family}/*' takes every size, {group}={family}/{sizes[0]} "
            f"one. Sizes: {shortened(sizes, limit=30)}"
        )
    if sizes:
        members = [f"{family}/{known}" for known in sizes]
        near = [members[sizes.index(known)] for known in _near_sizes(size, sizes)]
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        return BadInput(f"no {group} matches {element}.{meant} Options: {shortened(members)}")
    near = [name for name in names if name.replace("/", "-") == element.lower()]  # as measurements are called
    if not near:
        alike = nearest(family, sizes_by_family)
        near = [f"{name}/{size.lower()}" for name in alike if size.lower() in sizes_by_family[name]]
    plain = sorted((name for name in names if "/" not in name), key=natural_key)
    options = [*plain, *(f"{folder}/*" for folder in sizes_by_family)]
    if near:
        return BadInput(
            f"no {group} matches {element}. Did you mean {' or '.join(near)}? Options: {shortened(options)}"
        )
    return unknown(group, element, options)


def _near_sizes(size: str, sizes: Sequence[str]) -> list[str]:
    """The size of a family that is nearest to a number, within a factor. If it is not a number: names spelled alike."""
    numbers = {known: _number(known) for known in sizes}
    wanted = _number(size)
    if size.lower() in sizes or not wanted:
        return nearest(size, sizes)
    ratios = {known: max(number / wanted, wanted / number) for known, number in numbers.items() if number}
    close = [known for known, ratio in ratios.items() if ratio <= _NEAR]
    return [min(close, key=ratios.__getitem__)] if close else []


def _number(size: str) -> float:
    """The number that a size begins with: 7e7 of `70m`. Returns 0 if it begins with no number."""
    match = _SIZE.fullmatch(size)
    return float(match[1]) * _SUFFIX[match[2].lower()] if match else 0.0


def families(names: Iterable[str]) -> dict[str, list[str]]:
    """Folder -> its members by size: `pythia` -> 14m, 31m, ..., 12b."""
    folders: dict[str, list[str]] = {}
    for name in sorted(names, key=natural_key):
        folder, slash, leaf = name.rpartition("/")
        if slash:
            folders.setdefault(folder, []).append(leaf)
    return dict(sorted(folders.items()))


def without_size(name: str) -> tuple[str, str]:
    """Split a model's name into the rest and its size: `Name-1.4B-base` -> (`Name-base`, `1.4B`); no size: the name."""
    size = _SIZE_PART.search(name)
    if size is None:
        return name, ""
    around = (name[: size.start()].strip("-_"), name[size.end() :].strip("-_"))
    rest = "-".join(part for part in around if part)
    return (rest, size[1]) if rest else (name, "")
