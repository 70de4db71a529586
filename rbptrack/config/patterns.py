"""Expand patterns in command-line overrides: `model=pythia/*` becomes the list of Pythia's sizes.

Hydra itself cannot: a pattern fails while the primary config is composed, before any sweeper exists. So
the arguments are rewritten before Hydra reads them. Nothing here imports Hydra: the names that exist come
from the caller.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from rbptrack.base.errors import BadInput, nearest, shortened

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_WORDS = {word: rank for rank, word in enumerate(("tiny", "small", "base", "medium", "large", "xl", "xxl"))}
_FUNCTION = re.compile(r"[A-Za-z_]\w*\(.*\)$", re.DOTALL)

_BY_NAME_ONLY = ("hf", "files", "default")  # configs that other keys complete, and another name for nano/115k
_MOST_SIZES = 30  # of a family, in an error; checkpoints are more

Options = Callable[[str], Sequence[str]]


def size_key(name: str) -> tuple[object, ...]:
    """Sort key for names by size: 70m < 1b < 1.4b, small < medium < large < xl, and text alphabetically.

    Ours, because natsort knows neither the units nor the words; and it would order local files (`part-2`, `part-10`)
    otherwise than older measurements read them, which would change their fingerprints.
    """
    key: list[object] = []
    for part in name.split("/"):
        if part in _WORDS:
            key.append((1, float(_WORDS[part]), part))
            continue
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmbt]?)(.*)", part, re.IGNORECASE)
        if match:
            number, suffix, rest = match.groups()
            step = re.search(r"(\d+)$", rest)  # a checkpoint's: step512 before step1000
            key.append(
                (0, float(number) * _SUFFIX[suffix.lower()], rest.rstrip("0123456789"), int(step[1]) if step else 0)
            )
        else:
            key.append((2, 0.0, part))
    return tuple(key)


def match(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that a pattern stands for, in order of size: `*` stays inside a folder, `**` crosses folders."""
    regex = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return sorted((n for n in names if re.fullmatch(regex, n)), key=size_key)


def split_list(value: str) -> list[str]:
    """Return the elements of `a,b` or `[a,b]`."""
    value = value.strip()
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return [part.strip().strip("'\"") for part in value.split(",") if part.strip()]


def expand(arguments: Sequence[str], *, groups: Sequence[str], options: Options) -> list[str]:
    """Expand patterns and lists over config groups.

    Args:
        arguments: the command line after the program's name.
        groups: the config groups whose values may be patterns or lists, such as `model`.
        options: the names that exist in a group.

    Returns:
        The rewritten arguments.

    Raises:
        BadInput: a name or pattern without a match; the message lists the options.

    """
    rewritten: list[str] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or key not in groups or _FUNCTION.match(value):
            rewritten.append(argument)
            continue
        rewritten.append(f"{key}={','.join(chosen_by(key, value, options(key)))}")
    return rewritten


def chosen_by(group: str, value: str, names: Sequence[str]) -> list[str]:
    """Return the names of a config group that a list of names, patterns and exclusions stands for, each once.

    Examples:
        >>> chosen_by("model", "pythia/*,!pythia/12b", ["pythia/12b", "pythia/1b", "pythia/70m"])
        ['pythia/70m', 'pythia/1b']

    Raises:
        BadInput: an element matches nothing, or no name is left.

    """
    elements = split_list(value)
    included = [element for element in elements if not element.startswith("!")]
    excluded = {name for element in elements if element[0] == "!" for name in chosen(group, element[1:], names)}
    if not included:
        such = f", such as '{group}=pythia/*,{elements[0]}'" if elements else ""
        raise BadInput(f"{group}={value}: expected a name of the group {group}, a pattern or a list of them{such}")
    choices = [name for element in included for name in chosen(group, element, names)]
    left = [name for name in dict.fromkeys(choices) if name not in excluded]
    if not left:
        raise BadInput(f"{group}={value} excludes everything that it chooses: {shortened(choices)}")
    return left


def chosen(group: str, element: str, names: Sequence[str]) -> list[str]:
    """Return the names of a config group that a name or a pattern stands for, in order of size.

    Raises:
        BadInput: no name matches; the message gives the nearest names, then the others.

    """
    if element in names:
        return [element]
    is_pattern = "*" in element or "?" in element
    matching = match(element, [name for name in names if name not in _BY_NAME_ONLY]) if is_pattern else []
    if matching:
        return matching
    folders = families(names)
    family, _, leaf = element.partition("/")
    siblings = folders.get(family, [])
    if family and not leaf and siblings:
        raise BadInput(
            f"{group}={element} names a family: '{group}={family}/*' takes every size, {group}={family}/{siblings[0]} "
            f"one. Sizes of {family}: {shortened(siblings, most=_MOST_SIZES)}"
        )
    if siblings:
        near = [f"{family}/{size}" for size in nearest(leaf, siblings)] or nearest(element, names, most=1)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise BadInput(
            f"no {group} matches {element}.{meant} Sizes of {family}: {shortened(siblings, most=_MOST_SIZES)}"
        )
    raise _no_name(group, element, names, folders)


def _no_name(group: str, element: str, names: Sequence[str], folders: Mapping[str, Sequence[str]]) -> BadInput:
    """Return the error for a name of no folder: the nearest folder with the same rest, then the others."""
    family, _, leaf = element.partition("/")
    alike = nearest(family, folders)
    near = [name for name in names if name.replace("/", "-") == element.lower()]  # as measurements are called: nano-6k
    near = near or [f"{name}/{leaf.lower()}" for name in alike if leaf.lower() in folders[name]]
    near = near or [f"'{name}/*'" for name in alike] or nearest(element, names)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    plain = sorted((name for name in names if "/" not in name), key=size_key)
    listed = shortened([*plain, *(f"'{folder}/*'" for folder in folders)])
    return BadInput(f"no {group} matches {element}.{meant} Options: {listed}")


def passes(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether something with these names passes a filter; `*` matches anything, also a slash.

    Examples:
        >>> passes(["pythia-1b"], ["pythia*", "!pythia-12b"]), passes(["gpt2"], ["!pythia*"])
        (True, True)

    """
    included = [pattern for pattern in patterns if not pattern.startswith("!")]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return (not included or fits(names, included)) and not fits(names, excluded)


def fits(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Return whether one of the names fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """Return folder -> its members in the order of size: `pythia` -> 14m, 31m, ..., 12b."""
    folders: dict[str, list[str]] = {}
    for name in sorted(names, key=size_key):
        folder, slash, leaf = name.rpartition("/")
        if slash:
            folders.setdefault(folder, []).append(leaf)
    return dict(sorted(folders.items()))


def some(names: Sequence[str], *, most: int = 30) -> list[str]:
    """Return the names, or the ends of a list that is too long to read."""
    return [*names[:3], "...", *names[-2:]] if len(names) > most else list(names)


def lists_as_values(arguments: Sequence[str], keys: Mapping[str, str]) -> list[str]:
    """Rewrite `key=a,b` to `target=[a,b]` where a comma means one list, not a sweep.

    Args:
        arguments: the command line after the program's name.
        keys: from the key that users write to the config key that holds the list.

    """
    rewritten: list[str] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in keys and value:
            quoted = ",".join(
                v if re.fullmatch(r"[\w./-]+", v) else "'" + v.replace("'", "\\'") + "'" for v in split_list(value)
            )
            argument = f"{keys[key]}=[{quoted}]"
        rewritten.append(argument)
    return rewritten


def as_value(text: str) -> str:
    """Return a text as Hydra's grammar takes it for a value, whatever quotes and backslashes it holds."""
    text = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + (r"\'" if match[2] else ""), text)
    return f"'{text}'"


def home_as_value(word: str) -> str:
    """Return `out=~/x` as `out='~/x'`: Hydra's grammar has no `~` in a value."""
    key, equals, value = word.partition("=")
    return f"{key}={as_value(value)}" if equals and value.startswith("~") else word
