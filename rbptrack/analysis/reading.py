"""Files as importers read them: JSON without ambiguities, and tables as rows with their places."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.files import read_small as read_small  # for importers
from rbptrack.base.files import regular_file


def load_json(path: Path) -> Any:
    """Read a JSON file of any size, in which no key stands twice and no number is NaN or infinite.

    Raises:
        BadInput: it is none.

    """
    regular_file(path, "import")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    return parse_json(text, str(path))


def parse_json(text: str | bytes, place: str) -> Any:
    """Parse JSON as `load_json` does; `place` begins the message, such as `served.jsonl, line 3`."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place}: is not JSON: {str(error)[:200]}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return made


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number must be finite; got {text[:40]}")
    return value


def read_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read a .csv, .parquet, .json (a list of objects) or .jsonl table: the place and the cells of each row.

    Cells of a CSV are texts. A column whose name stands twice is refused.

    Raises:
        BadInput: it is no such table.

    """
    regular_file(path, "import")
    suffix = path.suffix.lower()
    numbers: Iterable[int] = count(1)
    if suffix == ".json":
        rows = load_json(path)
        places = "object"
    elif suffix == ".jsonl":
        lines = enumerate(path.read_bytes().splitlines(), start=1)
        line_by_number = {number: line for number, line in lines if line.strip()}
        rows = [parse_json(line, f"{path}, line {number}") for number, line in line_by_number.items()]
        places = "line"
        numbers = line_by_number
    elif suffix in (".csv", ".parquet"):
        table = _read_csv(path) if suffix == ".csv" else _read_parquet(path)
        names = table.column_names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BadInput(f"{path} has the column {', '.join(twice)} more than once")
        rows = table.to_pylist()
        places = "row"
    else:
        raise BadInput(f"{path} cannot be read as a table: its name must end in .csv, .parquet, .json or .jsonl")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path} is no list of objects, one for each row")
    return [(f"{places} {number}", row) for number, row in zip(numbers, rows, strict=False)]


def _read_csv(path: Path) -> pa.Table:
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    try:
        with pa.csv.open_csv(path, parse_options=parse) as reader:
            names = reader.schema.names
        texts = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        )
        table = pa.csv.read_csv(path, parse_options=parse, convert_options=texts)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as CSV in UTF-8: {first_line(error)[:200]}") from error
    return table.rename_columns([name.strip() for name in table.column_names])


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as a Parquet table: {first_line(error)[:200]}") from error


def column_names(path: Path) -> set[str]:
    """The columns of a table's first row, blank lines aside; empty for what is no table. For `takes`."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet", ".json", ".jsonl") or not path.is_file():
        return set()
    try:
        if suffix == ".parquet":
            return set(pq.read_schema(path).names)
        if suffix == ".json":
            rows = load_json(path)
            first = rows[0] if isinstance(rows, list) and rows else None
        else:
            with path.open("rb") as file:
                line = next((line for line in file if line.strip()), b"")
            if suffix == ".csv":
                header = pa.csv.read_csv(pa.py_buffer(line.rstrip() + b"\n"))
                return {name.strip() for name in header.column_names}
            first = parse_json(line, str(path))
        return set(first) if isinstance(first, dict) else set()
    except (BadInput, OSError, ValueError, pa.ArrowException):
        return set()


def read_pairs(path: str, key: str, value: str, *, option: str) -> dict[str, str]:
    """Read a CSV that an option names, and give one of its columns by another; empty without a path.

    Args:
        path: the value of the option.
        key: the column to look up by.
        value: the column that is looked up.
        option: its name, for messages.

    Raises:
        BadInput: it is no such table, or one key has two values.

    """
    if not path:
        return {}
    file = Path(path).expanduser()
    regular_file(file, option)
    pairs: dict[str, str] = {}
    for place, row in read_rows(file):
        if not row.get(key) or not row.get(value):
            raise BadInput(f"{file}, {place}: {key} and {value} are both needed; it has {', '.join(row)[:200]}")
        name = str(row[key])
        text = str(row[value])
        if pairs.setdefault(name, text) != text:
            raise BadInput(f"{file}, {place}: {name} is {pairs[name]} above, and {text} here")
    return pairs
