"""Read the files of importers: JSON without duplicate keys, and tables with the place of each row in the file."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.files import check_regular_file
from rbptrack.base.tables import Open, csv_columns, csv_rows, find_separator, json_rows, parquet_columns, parquet_rows
from rbptrack.config.paths import user_path

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl")
"""The file name extensions of the tables that `read_rows` can read."""

_WITH_COMMAS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)
_WITH_UNIT = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(?:e\+?(\d{1,2})| ?([kmbt]))", re.ASCII | re.IGNORECASE)
_FACTORS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


class MissingKey(BadInput):
    """A file that is to be imported lacks a column or a key. The message names it, and the ones that the file has."""


def load_json(path: Path, *, finite: bool = True) -> Any:
    """Read a JSON file of any size. No object in it may have a key twice.

    Args:
        path: the file.
        finite: whether to refuse numbers that are NaN or infinite. Pass False for files of evaluation programs, which
            may write NaN for numbers that are not imported.

    Raises:
        BadInput: the file cannot be read, is not JSON, or has a duplicate key or a number that is not finite.

    """
    check_regular_file(path, "import")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    return parse_json(text, str(path), finite=finite)


def parse_json(text: str | bytes, place: str, *, finite: bool = True) -> Any:
    """Parse JSON. No object in it may have a key twice.

    Args:
        text: the JSON.
        place: the beginning of the error message, such as `served.jsonl, line 3`.
        finite: whether to refuse numbers that are NaN or infinite.

    Raises:
        BadInput: the text is not JSON, or has a duplicate key or a number that is not finite.

    """
    try:
        return _parse(text, finite=finite)
    except ValueError as error:
        raise BadInput(f"{place}: this cannot be read as JSON: {str(error)[:200]}") from error


def _parse(text: str | bytes, *, finite: bool) -> Any:
    """Parse JSON. Raises ValueError if it is not JSON, or has a duplicate key or a number that is not finite."""
    read_number = _parse_finite if finite else float
    try:
        return json.loads(
            text, object_pairs_hook=_object_without_duplicates, parse_float=read_number, parse_constant=read_number
        )
    except RecursionError as error:
        raise ValueError(f"its objects are nested too deeply ({error})") from error


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError if a key appears twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {duplicate[:60]!r} appears twice in one object")
    return values


def _parse_finite(text: str) -> float:
    """Parse a JSON number. Raises ValueError if the number is NaN, infinite or too large for a float."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number must be finite; got {text[:40]}")
    return value


def whole_number(value: object, *, with_letters: bool = True) -> object:
    """Convert a text such as `18,915,328`, `1.9e7` or `19M` to a whole number. Return any other value unchanged.

    Args:
        value: a value from a file.
        with_letters: whether to accept K, M, B and T for thousands, millions, billions and trillions. Pass False for
            numbers that must be exact, such as |V|.

    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if _WITH_COMMAS.fullmatch(text):
        return int(text.replace(",", ""))
    with_unit = _WITH_UNIT.fullmatch(text)
    if with_unit is None or (with_unit[3] and not with_letters):
        return value
    digits, exponent, letter = with_unit.groups()
    number = Decimal(digits) * (10 ** int(exponent) if exponent else _FACTORS[letter.lower()])
    return int(number) if number == number.to_integral_value() else value


def read_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read a table from a .csv, .tsv, .parquet, .json (a list of objects) or .jsonl file.

    The columns of a CSV may be separated by commas, semicolons or tabs. The cells of a CSV are texts. Numbers in other
    files may be NaN or infinite.

    Returns:
        The place of each row, such as `line 3`, and its cells by column. The names of columns are in lower case.

    Raises:
        BadInput: the file is not such a table, or two columns have the same name.

    """
    check_regular_file(path, "import")
    suffix = path.suffix.lower()
    if suffix == ".json":
        row_by_place = _rows_of_list(load_json(path, finite=False), path)
    elif suffix in TABLE_SUFFIXES:
        row_by_place = _table_rows(path)
    else:
        raise BadInput(f"{path} cannot be read as a table: its name must end in {', '.join(TABLE_SUFFIXES)}")
    return _normalise_rows(path, row_by_place)


def _normalise_rows(path: Path, row_by_place: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the place and the cells of each row. The names of columns are put in lower case.

    Raises BadInput if a row is not an object, or two of its columns have the same name.
    """
    placed_rows = []
    for place, row in row_by_place.items():
        if not isinstance(row, dict):
            raise BadInput(f"{path}, {place}: each row must be an object with the columns as its keys")
        names = [_column_name(name) for name in row]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise BadInput(f"{path}, {place} has the column {', '.join(repeated)[:200]} more than once")
        placed_rows.append((place, dict(zip(names, row.values(), strict=True))))
    return placed_rows


def _rows_of_list(rows: Any, path: Path) -> dict[str, Any]:
    """Return the elements of a list from a JSON file by place. Raises BadInput if `rows` is not a list."""
    if not isinstance(rows, list):
        raise BadInput(f"{path} is not a list of objects, one for each row")
    return {f"object {number}": row for number, row in enumerate(rows, start=1)}


def _table_rows(path: Path) -> dict[str, Any]:
    """Read a CSV, Parquet or JSONL file. Return its rows by place. Empty cells of a CSV are None."""
    suffix = path.suffix.lower()
    open_file = _opener(path)
    try:
        if suffix == ".parquet":
            return dict(parquet_rows(open_file))
        if suffix == ".jsonl":
            return dict(json_rows(open_file, partial(_parse, finite=False)))
        rows = csv_rows(open_file, find_separator(open_file, _default_separator(suffix)))
        return {place: {name: cell or None for name, cell in row.items()} for place, row in rows}
    except Exception as error:  # pyarrow raises many types
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise BadInput(f"{path} cannot be read as a table: {str(reason)[:200]}") from error


def _opener(path: Path) -> Open:
    return lambda: path.open("rb")


def _default_separator(suffix: str) -> str:
    return "\t" if suffix == ".tsv" else ","


def _column_name(name: str) -> str:
    """Return the name of a column in lower case and without spaces around it."""
    return name.strip().lower()


def column_names(path: Path) -> set[str]:
    """Return the names of the columns in the first row of a table, in lower case; empty for other files.

    `Importer.takes` can call this function, because it raises no error if the file is damaged.
    """
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES or not path.is_file():
        return set()
    open_file = _opener(path)
    try:
        if suffix == ".parquet":
            names = parquet_columns(open_file)
        elif suffix in (".csv", ".tsv"):
            names = csv_columns(open_file, find_separator(open_file, _default_separator(suffix)))
        elif suffix == ".jsonl":
            _, row = next(json_rows(open_file, partial(_parse, finite=False)), ("", {}))
            names = list(row)
        else:
            rows = load_json(path, finite=False)
            names = list(rows[0]) if isinstance(rows, list) and rows and isinstance(rows[0], dict) else []
    except (BadInput, OSError, ValueError):  # pyarrow raises ArrowInvalid, a ValueError, for a damaged file
        return set()
    return {_column_name(name) for name in names}


def read_pairs(path: str, key: str, value: str, *, option: str, optional: bool = False) -> dict[str, str]:
    """Read two columns of a table as a mapping. Plugins use it for options whose value is a file.

    A .json file may also hold an object of objects, like the `param_count.json` of the paper's authors:
    `{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328}}`.

    Args:
        path: the value of the option. If the path is empty, the result is empty.
        key: the column whose values become the keys of the result.
        value: the column whose values become the values of the result.
        option: the name of the option, for error messages.
        optional: whether to return an empty result if no row has the column `value`.

    Raises:
        BadInput: the file is not such a table, a row lacks one of the two columns, or one key has two different values.

    """
    if not path:
        return {}
    file = user_path(path)
    check_regular_file(file, option)
    key_column = _column_name(key)
    value_column = _column_name(value)
    rows = _read_rows_or_entries(file, key_column)
    if optional and not any(value_column in row for _, row in rows):
        return {}
    pairs: dict[str, str] = {}
    for place, row in rows:
        if _is_missing(row.get(key_column)) or _is_missing(row.get(value_column)):
            fault = f"a row needs both {key_column} and {value_column}; this row has {', '.join(row)[:200]}"
            raise BadInput(f"{file}, {place}: {fault}")
        name = str(row[key_column])
        text = str(row[value_column])
        if pairs.setdefault(name, text) != text:
            raise BadInput(f"{file}, {place}: {name} is {text}, but {pairs[name]} in an earlier row")
    return pairs


def _is_missing(value: object) -> bool:
    return value in (None, "") or value != value  # NaN is unequal to itself


def _read_rows_or_entries(file: Path, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the place and the cells of each row of a table, or of each entry of a JSON object of objects.

    The column `key` gets the keys of the outer JSON object.
    """
    if file.suffix.lower() != ".json":
        return read_rows(file)
    content = load_json(file, finite=False)
    if not isinstance(content, dict):
        return _normalise_rows(file, _rows_of_list(content, file))
    if not all(isinstance(entry, dict) for entry in content.values()):
        raise BadInput(f"{file} is neither a list of objects nor an object of objects")
    rows = _normalise_rows(file, content)
    return [(name[:60], row | {key: name}) for name, row in rows]
