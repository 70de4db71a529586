"""Read the fields of a dataset's rows, and apply the filters of a config to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.base.tables import Row
from rbptrack.config.schema import DatasetConfig


def named_columns(config: DatasetConfig) -> list[str]:
    """Return the columns that a config names for texts, ids, filters and groups, without repetition."""
    names = [*config.fields]
    if config.id_field:
        names.append(config.id_field)
    names += [key.split(".")[0] for key in config.where]
    if config.group:
        names.append(config.group.split(".")[0])
    return list(dict.fromkeys(names))


def check_fields(columns: Sequence[str], named_columns: Sequence[str], config: DatasetConfig) -> None:
    missing = [name for name in named_columns if name not in columns]
    if missing:
        fields = ", ".join(name if name == name.strip() else repr(name) for name in columns)
        remedy = ". Choose with dataset.fields=NAME" if set(missing) & set(config.fields) else ""
        raise BadInput(f"dataset {config.name} has no field {', '.join(missing)}. Fields: {fields}{remedy}")


def passes_filters(config: DatasetConfig, row: Row) -> bool:
    """Return whether a row passes the filters `longer_than` and `where` of a config."""
    if config.longer_than and len(config.separator.join(field_texts(row, config))) <= config.longer_than:
        return False
    return all(_has_value(field_value(row, key), value) for key, value in config.where.items())


def _has_value(value: object, typed: str) -> bool:
    """Return whether a value of a row is the one that a user typed: `true` is True, and `1.10` is 1.1.

    A missing value is not equal to any text.
    """
    if value is None:
        return False
    if isinstance(value, bool):
        return typed.lower() == str(value).lower()
    if isinstance(value, float):
        with suppress(ValueError):
            return float(typed) == value
    return str(value) == typed


def field_value(row: Row, key: str) -> object:
    """Return the value of a field, or of a part of a field (`meta.site`). Return None if the row does not have it.

    Raises BadInput if the key names a part of a field that is not an object.
    """
    value: Any = row
    parent: list[str] = []
    for part in key.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            field = ".".join(parent)
            raise BadInput(f"{key}: the field {field} holds {value!r:.60}, which has no parts; give {field}")
        value = value.get(part)
        parent.append(part)
    return value


def field_texts(row: Row, config: DatasetConfig) -> tuple[str, ...]:
    return tuple(_field_text(row.get(name), name, config) for name in config.fields)


def _field_text(value: object, field: str, config: DatasetConfig) -> str:
    """Return a field's value as text. A missing value is an empty text. Raises BadInput if the value is not text."""
    if value is None:
        return ""
    if isinstance(value, str):
        # UTF-16 without a byte order mark can be decoded as UTF-8. There is then a NUL between the letters.
        if "\0" in value and config.files:
            raise BadInput(
                f"dataset {config.name}: field {field} holds NUL bytes, so a file is not UTF-8 text; "
                "convert it, for example with iconv -f utf-16 -t utf-8"
            )
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInput(
                f"dataset {config.name}: field {field} holds half of a surrogate pair, such as \\ud800 in JSON. This "
                "is not valid text: repair the file"
            )
        return value
    raise BadInput(
        f"dataset {config.name}: field {field} holds {value!r:.60}, which is not text. dataset.fields must name "
        "fields that hold text"
    )
