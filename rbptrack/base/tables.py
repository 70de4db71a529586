"""Read the rows of tables: CSV, JSON and Parquet. Cells of a CSV are texts, because a guess of their type loses some.

pandas and `datasets` read None and NA as missing, 007 as 7 and 2020-01-01 as a time. All functions here take a function
that opens the file, and raise ValueError, OSError or EOFError if the file is damaged. The message names the line, if
it is known.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import IO, Any

Row = dict[str, Any]
Open = Callable[[], AbstractContextManager[IO[bytes]]]

_SEPARATORS = (",", ";", "\t")
_QUOTED_CELL = re.compile(r'"[^"]*"')
# An escape of another character than a quote or a backslash.
_OTHER_ESCAPE = re.compile(r'(?<!\\)\\(?:\\\\)*[^"\\]')
_QUOTES: dict[str, Any] = {"strict": True}  # a quote in a quoted cell is doubled
_ESCAPES: dict[str, Any] = {"strict": True, "escapechar": "\\"}
_NO_QUOTES: dict[str, Any] = {"quoting": csv.QUOTE_NONE, "quotechar": None}
_SCANNED_ROWS = 200_000  # rows from which the rule for quotes is inferred
_ROWS_PER_PIECE = 1000
_UTF16 = "it is UTF-16 text, not UTF-8: convert it, for example with iconv -f utf-16 -t utf-8"

csv.field_size_limit(sys.maxsize)  # the standard limit of 131,072 characters is too small for documents


def csv_rows(
    open_file: Open, separator: str = "", columns: Collection[str] = (), options: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Row]]:
    r"""Yield the place and the cells of each row of a CSV file in UTF-8. Blank lines are skipped.

    The rule for quotes is the first with which the file can be read: a quote in a quoted cell is doubled, or a
    backslash stands before it. In a file with tabs, quotes can also be plain characters.

    Args:
        open_file: opens the file.
        separator: the separator of cells; if empty, the one that occurs most often in the first line.
        columns: columns that must not appear twice; empty for all columns.
        options: `names` holds the names of the columns, if the file has no line with names. `encoding`, `quotechar`,
            `escapechar`, `doublequote` and `quoting` are those of `csv.reader`.

    """
    names, encoding, rule = _split_options(options)
    separator = separator or find_separator(open_file)
    rule = rule or _find_rule(open_file, encoding, separator, names)
    for number, (header, cells) in enumerate(_split_lines(open_file, encoding, separator, names, rule)):
        if number == 0:
            repeated = sorted({name for name in (columns or header) if header.count(name) > 1})
            if repeated:
                raise ValueError(f"it has the column {', '.join(repeated)[:200]} more than once")
            continue
        yield f"row {number}", dict(zip(header, cells, strict=True))


def csv_columns(open_file: Open, separator: str = "", options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the names of the columns of a CSV file; empty if the file has no line."""
    names, encoding, rule = _split_options(options)
    if names:
        return list(names)
    separator = separator or find_separator(open_file)
    return next((header for header, _ in _split_lines(open_file, encoding, separator, None, rule)), [])


def _split_options(options: Mapping[str, Any] | None) -> tuple[Any, str, dict[str, Any]]:
    """Return the names of the columns, the encoding, and the options of `csv.reader`. What is not given is empty."""
    given = {name: value for name, value in (options or {}).items() if value is not None}
    names = given.pop("names", None)
    encoding = given.pop("encoding", None) or "utf-8-sig"
    return names, encoding, given | {"strict": True} if given else {}


def find_separator(open_file: Open, default: str = ",") -> str:
    """Return the separator that occurs most often in the first line of a CSV file, outside quotes.

    If there is none, the result is `default`. If `default` occurs at all and is a tab, it is the result.
    """
    with open_file() as data:
        line = next((line for line in data if line.strip()), b"")
    text = _QUOTED_CELL.sub("", line.decode(errors="replace"))
    if default == "\t" and default in text:
        return default
    best = max(_SEPARATORS, key=text.count)
    return best if best in text else default


def _find_rule(open_file: Open, encoding: str, separator: str, names: Any) -> dict[str, Any]:
    """Return the options of `csv.reader` for the rule for quotes that a file has."""

    def spans_lines(rule: dict[str, Any]) -> bool | None:
        """Return whether a cell holds a line break. Return None if the file cannot be read with a rule."""
        found = False
        try:
            for _, cells in islice(_split_lines(open_file, encoding, separator, names, rule), _SCANNED_ROWS):
                found = found or any("\n" in cell or "\r" in cell for cell in cells)
        except UnicodeError:
            raise
        except ValueError:
            return None
        return found

    quoted = spans_lines(_QUOTES)
    if quoted is False:
        return _QUOTES
    if separator == "\t" and spans_lines(_NO_QUOTES) is not None:  # each line has as many cells as there are columns
        header, _ = next(_split_lines(open_file, encoding, separator, names, _NO_QUOTES))
        return _QUOTES if quoted and (len(header) == 1 or header[0].startswith('"')) else _NO_QUOTES
    if quoted is None and spans_lines(_ESCAPES) is not None and not _has_other_escapes(open_file, encoding):
        return _ESCAPES
    return _QUOTES


def _has_other_escapes(open_file: Open, encoding: str) -> bool:
    with open_file() as data, io.TextIOWrapper(data, encoding=encoding, newline="") as text:
        return any(_OTHER_ESCAPE.search(line) for line in text)


def _split_lines(
    open_file: Open, encoding: str, separator: str, names: Any, rule: dict[str, Any]
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names of the columns and the cells of each row. First, yield the names and no cells.

    Raises ValueError if a row has another number of cells than there are columns.
    """
    header = list(map(str, names)) if names else None
    with open_file() as data, io.TextIOWrapper(_reject_utf16(data), encoding=encoding, newline="") as text:
        reader = csv.reader(text, delimiter=separator, **rule)
        if header is not None:
            yield header, []
        try:
            for cells in reader:
                if not cells:
                    continue
                if header is None:
                    header = cells
                    yield header, []
                elif len(cells) != len(header):
                    raise ValueError(
                        f"line {reader.line_num:,}: expected {len(header):,} columns, got {len(cells):,} cells"
                    )
                else:
                    yield header, cells
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num:,} breaks the rules for quotes in CSV ({error})") from error


def json_rows(open_file: Open, parse: Callable[[str], Any] = json.loads) -> Iterator[tuple[str, Row]]:
    """Yield the place and the values of each row of a JSON file.

    The file holds an object in each line, one array, or one object. `parse` reads JSON, and may raise ValueError.
    Raises ValueError if the file is not JSON, or a row is not an object.
    """
    with open_file() as file:
        data = _reject_utf16(file)
        first = 0  # the number of the first line that is not blank
        for number, line in enumerate(data, start=1):
            text = line.decode("utf-8" if first else "utf-8-sig")
            if not text.strip():
                continue
            is_first = not first
            first = first or number
            if is_first and text.lstrip().startswith("["):
                yield from _rows_of_one_value(text, data, number, parse)
                return
            try:
                row = parse(text)
            except json.JSONDecodeError as error:
                if is_first and error.pos >= len(text.rstrip()):  # the object continues on the next line
                    yield from _rows_of_one_value(text, data, number, parse)
                    return
                raise ValueError(f"line {number:,} is not JSON ({error.msg}, column {error.colno:,})") from error
            except ValueError as error:
                raise ValueError(f"line {number:,}: {error}") from error
            yield f"line {number}", _require_object(row, f"line {number:,}")


def _rows_of_one_value(
    beginning: str, data: IO[bytes], number: int, parse: Callable[[str], Any]
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a JSON file that holds one array or one object.

    `beginning` is the text that was already read, up to the end of line `number`. `data` is the rest of the file.
    """
    try:
        value = parse(beginning + data.read().decode())
    except json.JSONDecodeError as error:
        line = number + error.lineno - 1
        raise ValueError(f"line {line:,} is not JSON ({error.msg}, column {error.colno:,})") from error
    if not isinstance(value, list):
        yield "the file", _require_object(value, "the file")
        return
    for position, row in enumerate(value):
        place = f"element {position:,} of the array"
        yield place, {"text": row} if isinstance(row, str) else _require_object(row, place)


def _require_object(row: object, place: str) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"{place} is {json.dumps(row)[:40]}, not an object {{...}}")
    return row


def parquet_rows(open_file: Open, columns: Collection[str] | None = None) -> Iterator[tuple[str, Row]]:
    """Yield the place and the cells of each row of a Parquet file. `columns` are those to read; None means all.

    Bytes are read as UTF-8 text, because some programs store texts as bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    with open_file() as data, pq.ParquetFile(data, page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        present = names if columns is None else [column for column in columns if column in names]
        repeated = sorted({name for name in present if names.count(name) > 1})
        if repeated:
            raise ValueError(f"it has the column {', '.join(repeated)[:200]} more than once")
        for batch in file.iter_batches(_ROWS_PER_PIECE, columns=present):
            fields = []
            for field in batch.schema:
                is_bytes = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
                fields.append(field.with_type(pa.string()) if is_bytes else field)
            for row in batch.cast(pa.schema(fields)).to_pylist():
                number += 1
                yield f"row {number}", row


def parquet_columns(open_file: Open) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    import pyarrow.parquet as pq

    with open_file() as data:
        return list(pq.read_schema(data).names)


def _reject_utf16(data: IO[bytes]) -> IO[bytes]:
    """Return a buffered file. Raises ValueError if it begins as a file in UTF-16 does."""
    raw: Any = data
    buffered: io.BufferedReader = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
    start = buffered.peek(4)[:4]
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start[:2]:
        raise ValueError(_UTF16)
    return buffered


def read_text(open_file: Open) -> str:
    """Return a text file in UTF-8 as it is, with its carriage returns."""
    with open_file() as data, io.TextIOWrapper(_reject_utf16(data), encoding="utf-8-sig", newline="") as text:
        return text.read()
