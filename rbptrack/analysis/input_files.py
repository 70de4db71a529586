"""Reads files for importers: JSON without duplicate keys, and tables as rows with their places in the file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.files import check_regular_file
from rbptrack.base.files import read_small as read_small  # for importers
from rbptrack.config.paths import user_path

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl")
"""The endings of the names of files that `read_rows` can read."""

_SEPARATORS = (",", ";", "\t")  # the separators of columns that a CSV file may use
_QUOTED = re.compile(r'"[^"]*"')
_WITH_COMMAS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)
_WITH_UNIT = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(?:e\+?(\d{1,2})| ?([kmbt]))", re.ASCII | re.IGNORECASE)
_FACTORS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def load_json(path: Path, *, finite: bool = True) -> Any:
    """Read a JSON file of any size. An object in it may not have a key twice.

    Args:
        path: the file.
        finite: whether to refuse numbers that are NaN or infinite. Use False for files of evaluation programs, which
            may write NaN for numbers that are not imported.

    Raises:
        BadInput: the file cannot be read, is not JSON, or has a duplicate key or a number that is not finite.

    """
    check_regular_file(path, "import")
    return parse_json(_read_bytes(path), str(path), finite=finite)


def parse_json(text: str | bytes, place: str, *, finite: bool = True) -> Any:
    """Parse JSON. An object in it may not have a key twice.

    Args:
        text: the JSON.
        place: the beginning of the error message, such as `served.jsonl, line 3`.
        finite: whether to refuse numbers that are NaN or infinite.

    Raises:
        BadInput: the text is not JSON, or has a duplicate key or a number that is not finite.

    """
    read_number = _parse_finite if finite else float
    try:
        return json.loads(
            text, object_pairs_hook=_object_without_duplicates, parse_float=read_number, parse_constant=read_number
        )
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place}: this is not JSON: {str(error)[:200]}") from error


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON as a dict. Raises ValueError if a key appears twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} appears twice in one object")
    return values


def _parse_finite(text: str) -> float:
    """Parse a number of JSON. Raises ValueError if it is NaN or infinite, also if it is too large for a float."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number must be finite; got {text[:40]}")
    return value


def whole_number(value: object, *, rounded: bool = True) -> object:
    """Convert a text such as `18,915,328`, `1.9e7` or `19M` to a whole number. Return any other value unchanged.

    Args:
        value: a value from a file.
        rounded: whether to accept K, M, B and T for thousands, millions, billions and trillions. Use False for numbers
            that must be exact, such as |V|.

    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if _WITH_COMMAS.fullmatch(text):
        return int(text.replace(",", ""))
    short = _WITH_UNIT.fullmatch(text)
    if short is None or (short[3] and not rounded):
        return value
    digits, exponent, letter = short.groups()
    number = Decimal(digits) * (10 ** int(exponent) if exponent else _FACTORS[letter.lower()])
    return int(number) if number == number.to_integral_value() else value


def read_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read a table from a .csv, .tsv, .parquet, .json (a list of objects) or .jsonl file.

    The columns of a CSV may be separated by commas, semicolons or tabs. Its cells are texts. Numbers in other files may
    be NaN or infinite.

    Returns:
        For each row its place, such as `line 3`, and its cells by column. Names of columns are in lower case.

    Raises:
        BadInput: the file is not such a table, or two columns have the same name.

    """
    check_regular_file(path, "import")
    suffix = path.suffix.lower()
    numbers: Iterable[int] = count(1)
    if suffix == ".json":
        rows = load_json(path, finite=False)
        places = "object"
    elif suffix == ".jsonl":
        lines = enumerate(_read_bytes(path).splitlines(), start=1)
        line_by_number = {number: line for number, line in lines if line.strip()}
        rows = [parse_json(line, f"{path}, line {number}", finite=False) for number, line in line_by_number.items()]
        places = "line"
        numbers = line_by_number
    elif suffix in TABLE_SUFFIXES:
        table = _read_parquet(path) if suffix == ".parquet" else _read_csv(path)
        names = [_column_name(name) for name in table.column_names]
        _check_unique(path, names)
        rows = table.rename_columns(names).to_pylist()
        places = "row"
    else:
        raise BadInput(f"{path} cannot be read as a table: its name must end in {', '.join(TABLE_SUFFIXES)}")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path} is not a list of objects, one for each row")
    placed_rows = []
    for number, row in zip(numbers, rows, strict=False):
        _check_unique(f"{path}, {places} {number}", [_column_name(name) for name in row])
        placed_rows.append((f"{places} {number}", {_column_name(name): value for name, value in row.items()}))
    return placed_rows


def _column_name(name: str) -> str:
    """Return the name of a column in lower case and without spaces around it."""
    return name.strip().lower()


def _check_unique(place: object, names: list[str]) -> None:
    """Raise BadInput if two columns have the same name. `place` is the beginning of the message."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{place} has the column {', '.join(twice)[:200]} more than once")


def _read_bytes(path: Path) -> bytes:
    """Read a file. Raises BadInput if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error


def _parse_options(header: bytes) -> pa.csv.ParseOptions:
    """Return the options with which Arrow parses a CSV. The separator is the one that the header holds most often."""
    text = _QUOTED.sub("", header.decode(errors="replace"))
    return pa.csv.ParseOptions(newlines_in_values=True, delimiter=max(_SEPARATORS, key=text.count))


def _first_line(path: Path) -> bytes:
    """Return the first line of a file that is not blank. Return an empty text if there is none."""
    with path.open("rb") as file:
        return next((line for line in file if line.strip()), b"")


def _read_csv(path: Path) -> pa.Table:
    """Read a CSV file as a table of texts. Empty cells are null. Raises BadInput if it is not CSV in UTF-8."""
    content = pa.py_buffer(_read_bytes(path))  # Arrow cannot open a path that is not UTF-8
    try:
        parse = _parse_options(_first_line(path))
        with pa.csv.open_csv(content, parse_options=parse) as reader:
            names = reader.schema.names
        texts = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        )
        return pa.csv.read_csv(content, parse_options=parse, convert_options=texts)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as CSV in UTF-8: {first_line(error)[:200]}") from error


def _read_parquet(path: Path) -> pa.Table:
    """Read a Parquet file. Raises BadInput if it is not one."""
    try:
        table = pq.read_table(pa.BufferReader(_read_bytes(path)))
        texts = [
            pa.field(field.name, pa.string()) if pa.types.is_binary(field.type) else field for field in table.schema
        ]
        return table.cast(pa.schema(texts))  # some programs store texts as bytes
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as a Parquet table: {first_line(error)[:200]}") from error


def column_names(path: Path) -> set[str]:
    """Return the names of a table's columns in lower case, from its first row. Return an empty set for other files.

    Use it in `Importer.takes`, because it reads little and does not raise an error.
    """
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES or not path.is_file():
        return set()
    try:
        if suffix == ".parquet":
            names = pq.read_schema(pa.BufferReader(path.read_bytes())).names
        elif suffix in (".csv", ".tsv"):
            header = _first_line(path)
            names = pa.csv.read_csv(
                pa.py_buffer(header.rstrip(b"\r\n") + b"\n"), parse_options=_parse_options(header)
            ).column_names
        else:
            if suffix == ".json":
                rows = load_json(path, finite=False)
                first = rows[0] if isinstance(rows, list) and rows else None
            else:
                first = parse_json(_first_line(path), str(path), finite=False)
            names = list(first) if isinstance(first, dict) else []
    except (BadInput, OSError, ValueError, pa.ArrowException):
        return set()
    return {_column_name(name) for name in names}


def read_pairs(path: str, key: str, value: str, *, option: str, optional: bool = False) -> dict[str, str]:
    """Read two columns of a table as a mapping. An option of a plugin names the file.

    A .json file may also hold an object of objects, like the `param_count.json` of the paper's authors:
    `{"EleutherAI/pythia-70m": {"non_embedding_params": 18915328}}`.

    Args:
        path: the value of the option. If it is empty, the result is empty.
        key: the column whose values become the keys of the result.
        value: the column whose values become the values of the result.
        option: the name of the option, for error messages.
        optional: whether to return an empty result if no row has the column `value`.

    Raises:
        BadInput: the file is not such a table, a row lacks one of the columns, or one key has two different values.

    """
    if not path:
        return {}
    file = user_path(path)
    check_regular_file(file, option)
    key, value = _column_name(key), _column_name(value)
    rows = _rows_by_key(file, key)
    if optional and not any(value in row for _, row in rows):
        return {}
    pairs: dict[str, str] = {}
    for place, row in rows:
        if row.get(key) in (None, "") or row.get(value) in (None, ""):
            raise BadInput(f"{file}, {place}: {key} and {value} are both needed; the row has {', '.join(row)[:200]}")
        name = str(row[key])
        text = str(row[value])
        if pairs.setdefault(name, text) != text:
            raise BadInput(f"{file}, {place}: {name} is {text}, but {pairs[name]} in an earlier row")
    return pairs


def _rows_by_key(file: Path, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the place and the cells of each row of a table, or of each entry of an object of objects."""
    content = load_json(file) if file.suffix.lower() == ".json" else None
    if not isinstance(content, dict):
        return read_rows(file)
    if not all(isinstance(entry, dict) for entry in content.values()):
        raise BadInput(f"{file} is neither a list of objects nor an object of objects")
    return [
        (name[:60], {key: name} | {_column_name(column): value for column, value in entry.items()})
        for name, entry in content.items()
    ]
