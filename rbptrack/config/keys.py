"""List the keys of the configuration in dotted form, such as `model.dtype`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from rbptrack.config.schema import Config


@cache
def key_types() -> dict[str, Any]:
    """Return the type of each key of `Config` that holds a value, by its dotted name.

    The section `reference` has the keys of the section `model`.
    """
    return dict(_typed_keys(Config, ""))


def is_key(key: str) -> bool:
    """Return whether a command line may set a key. It may be a key of the schema, a section (`model`) or a free key."""
    return is_free_key(key) or any(f"{name}.".startswith(f"{key}.") for name in key_types())


def is_free_key(key: str) -> bool:
    """Return whether a key is in a section with keys that the user invents, such as `dataset.where.lang`."""
    free_sections = [name for name, key_type in key_types().items() if get_origin(key_type) is dict]
    return any(f"{key}.".startswith(f"{section}.") for section in free_sections)


def dotted_items(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each entry of nested dictionaries. An empty dictionary is a value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from dotted_items(inner, f"{prefix}{key}.")
    else:
        yield prefix[:-1], value


def _typed_keys(schema: type, prefix: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
        key_type = next((part for part in get_args(hint) if is_dataclass(part)), hint)  # of `ModelConfig | None`
        if is_dataclass(key_type) and isinstance(key_type, type):
            yield from _typed_keys(key_type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", key_type
