"""Find the faults of a measurement that was unpacked from a bundle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rbptrack.analysis.input_files import parse_json
from rbptrack.base.errors import FileAccessError, RbptrackError, file_access_error, first_line
from rbptrack.base.files import sha256
from rbptrack.base.parquet import read_table
from rbptrack.measurement.build import faults_of_ranks
from rbptrack.measurement.files import DOCUMENTS_FILE, RANKS_FILE, RECORD_FILE, TOKENS_FILE, UNSCORED_FILE
from rbptrack.measurement.record import read_measurement
from rbptrack.ranks.prompt_logprobs import TOKEN_ID

_MAX_CLOCK_DIFFERENCE = 86_400  # seconds between the clocks of two machines
_MAX_ROWS_OF_SMALL_FILES = 2**16  # a table with more rows must take at least one byte per row


def faults_of_measurement(folder: Path, fingerprint: str) -> Iterator[str]:
    """Yield a sentence for each fault of an unpacked measurement.

    Raises OSError or FileAccessError if the operating system cannot read a file of the folder.

    Args:
        folder: the folder with the measurement's record and files.
        fingerprint: the fingerprint in the name of the bundle's folder.

    """
    try:
        record = read_measurement(folder)
    except FileNotFoundError:
        yield f"{RECORD_FILE} is missing"
        return
    except RbptrackError as error:
        yield first_line(error)
        return
    measurement = record.measurement
    if record.fingerprint != fingerprint:
        yield "its fingerprint is not the hash of what its record says"
    if not 0 < record.began <= record.ended < time.time() + _MAX_CLOCK_DIFFERENCE:
        yield "it must begin after 1970 and before it ends, and must not end in the future"
    present = {path.name for path in folder.iterdir()} - {RECORD_FILE}
    for name in sorted(set(record.files) ^ present):
        yield f"{name[:60]} is missing, or the record does not list it"
    for name in sorted(set(record.files) & present):
        if sha256(folder / name) != record.files[name]:
            yield f"{name} is damaged"
    if (RANKS_FILE in present) == measurement.without_ranks:
        yield f"{RANKS_FILE} is missing, or is present although the measurement has no ranks"
        return
    try:
        for name in sorted(present & {RANKS_FILE, DOCUMENTS_FILE, UNSCORED_FILE}):
            _check_size(folder / name)
        if UNSCORED_FILE in present:
            _check_unscored(read_table(folder / UNSCORED_FILE))
        if TOKENS_FILE in present:
            _check_tokens(parse_json((folder / TOKENS_FILE).read_bytes(), TOKENS_FILE))
        if RANKS_FILE in present:
            yield from faults_of_ranks(measurement, folder)
    except FileAccessError:
        raise
    except (RbptrackError, ValueError, RecursionError) as error:
        yield first_line(error).replace(f"{folder}/", "")


def _check_size(path: Path) -> None:
    """Raise RbptrackError if a file is not a table, or has more rows than bytes.

    Parquet stores billions of equal values in a few bytes. If such a table were read, it would fill the memory.
    """
    try:
        rows = pq.read_metadata(path).num_rows
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        raise file_access_error(error, path) or RbptrackError(f"{path.name} is not a Parquet file") from error
    size = path.stat().st_size
    if rows > max(size, _MAX_ROWS_OF_SMALL_FILES):
        raise RbptrackError(f"{path.name} holds {rows:,} rows in {size:,} bytes, which is not plausible")


def _check_unscored(table: pa.Table) -> None:
    """Raise RbptrackError if the table of tokens that were not scored lacks a column or has a wrong value."""
    for name in ("document", "position", "token"):
        if name not in table.column_names or not pa.types.is_integer(table.schema.field(name).type):
            raise RbptrackError(f"{UNSCORED_FILE} lacks the column {name}, or it does not hold whole numbers")
        if table.column(name).null_count or (len(table) and pc.min(table.column(name)).as_py() < 0):
            raise RbptrackError(f"{UNSCORED_FILE}: the column {name} must hold numbers from 0, and no empty cells")


def _check_tokens(texts: Any) -> None:
    """Raise RbptrackError if the texts of tokens are not a mapping of token ids to texts."""
    if not isinstance(texts, dict) or not all(
        TOKEN_ID.fullmatch(token_id) and isinstance(text, str) for token_id, text in texts.items()
    ):
        raise RbptrackError(f"{TOKENS_FILE} must be a JSON object with a text for each token id")
    try:
        # A token may hold only a part of a character. Each byte of the part is a lone surrogate.
        "".join(texts.values()).encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise RbptrackError(f"{TOKENS_FILE}: a text has a character that cannot be encoded as UTF-8") from error
