"""The keys of the schema, flat: `model.dtype`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from rbptrack.config.schema import Config


@cache
def keys() -> dict[str, Any]:
    """The type of every key of `Config` that holds a value; `reference.` has the keys of `model.`."""
    return dict(_typed_keys(Config, ""))


def is_key(key: str) -> bool:
    """Whether a command line may set this: a key, what holds keys (`model`), or one that users name themselves."""
    return is_free(key) or any(f"{name}.".startswith(f"{key}.") for name in keys())


def is_free(key: str) -> bool:
    """Whether users name the key themselves: `dataset.where.lang`."""
    return any(get_origin(kind) is dict and f"{key}.".startswith(f"{name}.") for name, kind in keys().items())


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries with their dotted keys; an empty dictionary is a leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{prefix}{key}.")
    else:
        yield prefix[:-1], value


def _typed_keys(schema: type, prefix: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(schema)
    for field in fields(schema):
        kind = hints[field.name]
        inner = next((part for part in get_args(kind) if is_dataclass(part)), kind)  # ModelConfig | None
        if is_dataclass(inner) and isinstance(inner, type):
            yield from _typed_keys(inner, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", inner
