"""The user's YAML files, checked before anything reads them."""

from __future__ import annotations

from pathlib import Path

import yaml

from rbptrack.base.errors import BadInput

_LONGEST = 1 << 20  # bytes of a config file
_MOST_VALUES = 100_000  # of one, with what stands behind its aliases


def check_yaml(file: Path) -> None:
    """Refuse YAML that is long, deep, or short and endless: aliases of aliases, a list that holds itself.

    Raises:
        BadInput: it is too large; invalid YAML is reported by its reader.

    """
    if (size := file.stat().st_size) > _LONGEST:
        raise BadInput(f"{file} has {size:,} bytes; a config has at most {_LONGEST:,}")
    try:
        with file.open(encoding="utf-8") as text:
            document = yaml.compose(text, Loader=yaml.SafeLoader)
        if _values(document, {}) > _MOST_VALUES:
            raise BadInput(f"{file} holds more than {_MOST_VALUES:,} values, with what stands behind its aliases")
    except RecursionError as error:
        raise BadInput(f"{file} is nested too deeply, or holds itself (an alias such as *a inside of &a)") from error
    except (yaml.YAMLError, UnicodeDecodeError):
        return


def _values(node: yaml.Node | None, counts: dict[int, int]) -> int:
    """Count the values of a node, those behind aliases each time."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in counts:
        parts = [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
        counts[id(node)] = 1 + sum(_values(part, counts) for part in parts)
    return counts[id(node)]
