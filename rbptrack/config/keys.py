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
    return is_free_key(key) or key in key_types() or any(name.startswith(f"{key}.") for name in key_types())


def is_free_key(key: str) -> bool:
    """Return whether a key is in a section with keys that the user invents, such as `dataset.where.lang`."""
    free_sections = [name for name, key_type in key_types().items() if get_origin(key_type) is dict]
    return any(key == section or key.startswith(f"{section}.") for section in free_sections)


def dotted_items(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each entry of nested dictionaries. An empty dictionary is a value."""
    for key, value in nested.items():
        if isinstance(value, dict) and value:
            yield from dotted_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _typed_keys(schema: type, prefix: str) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
        key_type = next((member for member in get_args(hint) if is_dataclass(member)), hint)  # `ModelConfig | None`
        if is_dataclass(key_type) and isinstance(key_type, type):
            yield from _typed_keys(key_type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", key_type
