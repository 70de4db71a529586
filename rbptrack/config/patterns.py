"""Select configs by patterns such as `pythia/*,!pythia/12b`.

The patterns of a command line are expanded before Hydra reads it, because Hydra refuses patterns. Hydra's own function
`glob()` searches only one folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rbptrack.base.errors import BadInput, nearest, shortened_list, unknown_name
from rbptrack.base.names import natural_key

GROUP_BY_KEY = {
    "model": "model",
    "dataset": "dataset",
    "reference": "model",
    "k": "k",
    "protocol": "protocol",
    "launch": "launch",
}
"""The group of configs from which the value of a key is chosen, such as `nano/6k` in `reference=nano/6k`."""

# Configs that must be named: `hf` and `files` need further keys, and `default` is another name for nano/115k.
_NOT_MATCHED_BY_PATTERNS = ("hf", "files", "default")


def is_pattern(element: str) -> bool:
    """Return whether an element of a list of names is a pattern or an exclusion."""
    return element.startswith("!") or any(sign in element for sign in "*?[")


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
