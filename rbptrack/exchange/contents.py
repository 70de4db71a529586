"""Checks a measurement from a bundle: the names, values and numbers in its record, and its files."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from rbptrack.analysis.input_files import parse_json
from rbptrack.analysis.rules import ImportedRow
from rbptrack.base.errors import FileAccessError, RbptrackError, file_access_error, first_line, shortened_list
from rbptrack.base.files import sha256
from rbptrack.base.parquet import read_table
from rbptrack.base.secrets import without_password
from rbptrack.base.validation import broken_rules
from rbptrack.facts import FACT_BY_NAME, FACTS, IMPORTABLE_COLUMNS, Fact, Place
from rbptrack.ranks import RankTable, is_rbp_column, rank_and_rest_sums, rbp_ks, token_totals
from rbptrack.sources.fingerprint import fingerprint as fingerprint_of
from rbptrack.tracking import Record
from rbptrack.tracking.facts import measurement_title
from rbptrack.tracking.names import (
    DOCUMENTS_FILE,
    RANKS_FILE,
    RECORD_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
    Kind,
    Metric,
    Tag,
)
from rbptrack.tracking.record import MAX_TEXT_LENGTH, ce_and_rbp_metrics, size_metrics
from rbptrack.tracking.verify import numbers_that_disagree

_MAX_ROWS_OF_SMALL_FILES = 2**16  # a table with more rows must take at least one byte per row
_MAX_NAME_LENGTH = 250  # largest number of characters in the name of a run
_WHOLE_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_DECIMAL_NUMBER = re.compile(r"\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,2})?", re.ASCII)
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_TOKEN_ID = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_MAX_CLOCK_DIFFERENCE = 86_400  # seconds between the clocks of two machines
_FACTS_OF_IDENTITY = [fact.name for fact in FACTS if fact.distinguishes and fact.name not in ("model", "tokenizer")]
"""Facts that a record may state both in its identity and as a tag or param. Both values must then be equal."""

_REQUIRED_TAGS = (Tag.FINGERPRINT, Tag.FAMILY, Tag.MODEL, Tag.DATASET)
_MAX_LENGTH_BY_DATASET_KEY = {"name": 500, "digest": 36, "source": 65_535, "profile": 65_535}
"""The keys of a record's `dataset`, and the largest number of characters that MLflow accepts for the value of each."""

_REFERENCE_METRICS = ("kl", "acceptance", "same_top")  # metrics that compare a model with its reference
_TOLERANCE = 1e-6  # relative and absolute; another processor may round differently
_RECORD_TYPES = TypeAdapter(Record)


def faults_of_measurement(folder: Path, fingerprint: str) -> Iterator[str]:
    """Yield a sentence for each fault of an unpacked measurement.

    Raises OSError or FileAccessError if the operating system cannot read a file of the folder.

    Args:
        folder: the folder with the measurement's record and files.
        fingerprint: the fingerprint in the name of the bundle's folder.

    """
    try:
        content = (folder / RECORD_FILE).read_bytes()
        parse_json(content, RECORD_FILE)  # refuses duplicate keys and numbers that are not finite
        Record.parse(content)  # refuses unknown and missing keys
        record = _RECORD_TYPES.validate_json(content, strict=True)
    except ValidationError as error:
        yield f"{RECORD_FILE}: {next(broken_rules(error)).sentence}"
        return
    except FileNotFoundError:
        yield f"{RECORD_FILE} is missing"
        return
    except RbptrackError as error:
        yield first_line(error)
        return
    faults = [*_faults_of_names(record), *_faults_of_values(record), *_faults_of_identity(record, fingerprint)]
    if not faults:
        faults = [*_faults_of_numbers(record), *_faults_of_files(record, folder)]
    yield from faults


def _faults_of_names(record: Record) -> Iterator[str]:
    """Yield faults of names: a required tag is missing, or a tag, param or metric is unknown."""
    if record.tags.get(Tag.KIND) != Kind.MEASUREMENT:
        yield "it is not a measurement"
    for tag in _REQUIRED_TAGS:
        if not record.tags.get(tag):
            yield f"the tag {tag} is missing"
    for tag in sorted(record.tags.keys() - {Tag.KIND, *_fact_names(Place.TAG, Tag.PREFIX)}):
        yield f"the tag {tag[:60]!r} is unknown"
    for name in sorted(record.params.keys() - _fact_names(Place.PARAM)):
        yield f"the param {name[:60]!r} is unknown"
    known = {*_fact_names(Place.METRIC), Metric.LOG10_NON_EMBEDDING_PARAMS}
    for name in sorted(record.metrics.keys() - known):
        without_se = name.removesuffix("_se")
        if not is_rbp_column(without_se) and (without_se == name or without_se not in known):
            yield f"the metric {name[:60]!r} is unknown"
    for name in sorted(record.curves.keys() - {Metric.RBP_CURVE}):
        yield f"the curve {name[:60]!r} is unknown"
    if record.dataset and record.dataset.keys() != _MAX_LENGTH_BY_DATASET_KEY.keys():
        keys = ", ".join(_MAX_LENGTH_BY_DATASET_KEY)
        yield f"its dataset must have the keys {keys}; it has {shortened_list(list(record.dataset))[:200]}"


def _fact_names(place: Place, prefix: str = "") -> set[str]:
    """Return the names of the facts that a run keeps in one place (tag, param or metric), each with a prefix."""
    return {prefix + fact.name for fact in FACTS if fact.place is place}


def _faults_of_values(record: Record) -> Iterator[str]:
    """Yield faults of values: a store cannot keep the value, it has the wrong type, or it contradicts another one."""
    for key, value in (record.tags | record.params).items():
        if len(value) > MAX_TEXT_LENGTH or not value.isprintable() or without_password(value) != value:
            yield f"{key[:60]} must have at most {MAX_TEXT_LENGTH:,} printable characters, and no password"
        elif not _has_type(FACT_BY_NAME.get(key.removeprefix(Tag.PREFIX)), value):
            yield f"{key[:60]} is {value[:40]!r}, which has the wrong type for its column"
    for name in ("repo", "dataset_repo"):
        if record.params.get(name) and not _REPOSITORY.fullmatch(record.params[name]):
            yield f"{name} is {record.params[name][:40]!r}, which is not the name of a repository"
    if record.name != measurement_title(record.tags.get(Tag.MODEL, ""), record.tags.get(Tag.DATASET, "")):
        yield f"its name {record.name[:60]!r} must consist of its model and dataset"
    elif len(record.name) > _MAX_NAME_LENGTH:
        yield f"its name must have at most {_MAX_NAME_LENGTH} characters"
    for key, max_length in _MAX_LENGTH_BY_DATASET_KEY.items():
        value = record.dataset.get(key, "")
        if len(value) > max_length or not value.isprintable():
            yield f"its dataset's {key} must have at most {max_length:,} printable characters"
    if record.dataset and record.dataset.get("name") != record.tags.get(Tag.DATASET):
        yield f"its dataset's name differs from the tag {Tag.DATASET}"
    if not 0 < record.began <= record.ended < time.time() + _MAX_CLOCK_DIFFERENCE:
        yield "it must begin before it ends, and must not end in the future"
    yield from _faults_of_ranges(record)


def _faults_of_ranges(record: Record) -> Iterator[str]:
    """Yield faults of numbers: a number is not finite or is negative, or the curve of RBP_k falls or leaves 0 to 1."""
    curve = record.curves.get(Metric.RBP_CURVE, [])
    if not all(map(math.isfinite, [*record.metrics.values(), *(value for _, value in curve)])):
        yield "every number must be finite"  # a number with 400 digits is read from JSON as infinity
    negative = [name for name, value in record.metrics.items() if value < 0 and name != "kl"]
    if negative:
        yield f"{shortened_list(negative)} must be at least 0"
    ks = [k for k, _ in curve]
    values = [value for _, value in curve]
    is_rising = ks == sorted(set(ks)) and values == sorted(values)
    if ks and not (is_rising and ks[0] >= 1 and ks[-1] < 2**31 and values[0] >= 0 and values[-1] <= 1):
        yield "its curve of RBP_k must rise with k, from at least 0 to at most 1"


def _has_type(fact: Fact | None, value: str) -> bool:
    """Return whether a text has the type that its fact must have. A tag that is not a fact may hold any text."""
    if fact is None or fact.dtype == "string":
        return True
    if fact.dtype == "boolean":
        return value == "true"
    number = _WHOLE_NUMBER if fact.dtype == "Int64" else _DECIMAL_NUMBER
    return number.fullmatch(value) is not None


def _faults_of_identity(record: Record, fingerprint: str) -> Iterator[str]:
    """Yield faults of identity: the fingerprint is not the hash of the identity, or a tag or param contradicts it."""
    if fingerprint_of(record.identity) != fingerprint:
        yield "its fingerprint is not the hash of its identity"
    if record.tags.get(Tag.FINGERPRINT) != fingerprint:
        yield "the fingerprint in its record differs from the name of its folder in the bundle"
    identity: dict[str, Any] = dict(record.identity)
    if identity.get("matmul") == "tf32":
        identity["dtype"] = "tf32"
    for name in _FACTS_OF_IDENTITY:
        value = identity.get(name)
        if value and isinstance(value, (str, int)) and str(value) != record.fact(name):
            yield f"{name} is {record.fact(name)[:60] or 'missing'}, but its identity says {str(value)[:60]}"


def _faults_of_numbers(record: Record) -> Iterator[str]:
    """Yield faults of numbers: they break the rules of imported rows, or contradict each other."""
    size = record.metrics.get(Metric.NON_EMBEDDING_PARAMS)
    if size is not None and not size_metrics(int(size)).items() <= record.metrics.items():
        yield f"{Metric.NON_EMBEDDING_PARAMS} is {size}, but {Metric.LOG10_NON_EMBEDDING_PARAMS} is not its logarithm"
    without_ranks = record.tags.get(Tag.WITHOUT_RANKS) == "true"
    columns = _importable_columns(record)
    if not without_ranks:
        columns.pop("documents", None)  # documents without scored tokens count, so their number may exceed num_tokens
    try:
        row = ImportedRow.model_validate(columns)
    except ValidationError as error:
        yield from (broken.sentence for broken in broken_rules(error))
        return
    if record.metrics.get(Metric.BITS_PER_BYTE) == 0 and row.ce:
        yield f"{Metric.BITS_PER_BYTE} is 0, but ce is not"
    if without_ranks:
        yield from _faults_without_ranks(record, row, columns.keys())


def _importable_columns(record: Record) -> dict[str, object]:
    """Return the facts and metrics of a record that an imported row may have, without empty values."""
    columns: dict[str, object] = {}
    for name in IMPORTABLE_COLUMNS:
        value = record.metrics.get(name) if FACT_BY_NAME[name].place is Place.METRIC else record.fact(name)
        if value not in (None, ""):
            columns[name] = value
    return columns | {key: value for key, value in record.metrics.items() if is_rbp_column(key) or key.endswith("_se")}


def _faults_without_ranks(record: Record, row: ImportedRow, importable: AbstractSet[str]) -> Iterator[str]:
    """Yield faults of a measurement without ranks, which must have been imported as a row of numbers."""
    unknowable = sorted(record.metrics.keys() - importable - {Metric.LOG10_NON_EMBEDDING_PARAMS})
    if unknowable:
        yield f"{shortened_list(unknowable)} cannot be known without ranks"
    if "imported" not in record.identity:
        yield "it has no ranks, although it was not imported"
    if dict(record.curves.get(Metric.RBP_CURVE, [])) != row.rbp:
        yield "its curve of RBP_k differs from its metrics rbp_<k>"


def _faults_of_files(record: Record, folder: Path) -> Iterator[str]:
    """Yield faults of files: a file is missing, unlisted, damaged or too large, or its content breaks a rule."""
    present = {path.name for path in folder.iterdir()} - {RECORD_FILE}
    for name in sorted(set(record.files) ^ present):
        yield f"{name[:60]} is missing, or the record does not list it"
    for name in sorted(set(record.files) & present):
        if sha256(folder / name) != record.files[name]:
            yield f"{name} is damaged"
    if (RANKS_FILE in present) == (record.tags.get(Tag.WITHOUT_RANKS) == "true"):
        yield f"{RANKS_FILE} is missing, or is present although the tag {Tag.WITHOUT_RANKS} is true"
    try:
        for name in sorted(present & {RANKS_FILE, DOCUMENTS_FILE, UNSCORED_FILE}):
            _check_size(folder / name)
        documents = _read_documents(folder / DOCUMENTS_FILE) if DOCUMENTS_FILE in present else None
        if documents is not None:
            yield from _faults_of_documents(record, documents)
        if RANKS_FILE in present:
            yield from _faults_of_ranks(record, folder / RANKS_FILE, documents)
        if UNSCORED_FILE in present:
            yield from _faults_of_unscored(read_table(folder / UNSCORED_FILE))
        if TOKENS_FILE in present:
            yield from _faults_of_tokens(parse_json((folder / TOKENS_FILE).read_bytes(), TOKENS_FILE))
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


def _read_documents(path: Path) -> pa.Table:
    """Read the table of documents. Raises RbptrackError if it is damaged or lacks a required column."""
    table = read_table(path, ["document", "id", "tokens", "group"])
    missing = [name for name in ("document", "id", "tokens") if name not in table.column_names]
    if missing:
        raise RbptrackError(f"{DOCUMENTS_FILE} lacks the columns {', '.join(missing)}")
    return table


def _faults_of_documents(record: Record, documents: pa.Table) -> Iterator[str]:
    """Yield faults of the table of documents: a wrong type, a wrong order, or another number than in the record."""
    if not pa.types.is_integer(documents.schema.field("tokens").type):
        yield f"{DOCUMENTS_FILE}: the column tokens must hold whole numbers"
    if documents.column("document").to_pylist() != list(range(len(documents))):
        yield f"{DOCUMENTS_FILE}: the column document must hold 0, 1, 2, ..."
    num_documents = record.params.get("documents")
    if num_documents and int(num_documents) != len(documents):
        yield f"{DOCUMENTS_FILE} holds {len(documents):,} documents, but the param documents is {num_documents}"


def _faults_of_ranks(record: Record, path: Path, documents: pa.Table | None) -> Iterator[str]:
    """Yield faults of the rank table: a value is outside its range, or a metric of the record disagrees with the ranks.

    The metrics are compared only if all values are in their ranges.
    """
    table = RankTable.read(path)
    if len(table) != record.metrics.get(Metric.NUM_TOKENS) or not len(table):
        yield f"{RANKS_FILE} holds {len(table):,} ranks, but num_tokens is {record.metrics.get(Metric.NUM_TOKENS)}"
        return
    for name in table.table.column_names:
        if table.table.column(name).null_count:
            yield f"{RANKS_FILE}: the column {name} has empty cells"
            return
    smallest = min(int(table.table.column(name).to_numpy().min()) for name in ("document", "position", "greater"))
    num_above = table.above.astype(np.int64)
    document = table.column("document")
    floats = [field.name for field in table.table.schema if pa.types.is_floating(field.type)]
    if smallest < 0 or num_above.min() < 0 or num_above.max() >= table.vocab_size:
        yield f"{RANKS_FILE}: ranks must be from 1 to |V| = {table.vocab_size:,}, documents and positions from 0"
    elif (document[1:] < document[:-1]).any() or (documents is not None and document[-1] >= len(documents)):
        yield f"{RANKS_FILE}: its documents must be in ascending order, and each must be in {DOCUMENTS_FILE}"
    elif not all(np.isfinite(table.column(name)).all() for name in floats) or table.column("logprob").max() > 1e-3:
        yield f"{RANKS_FILE}: {', '.join(floats)} must be finite, and logprob at most 0"
    elif table.column_or("token", -1).min() < -1:
        yield f"{RANKS_FILE}: ids of tokens must be at least 0, or -1 if they are not known"
    elif (np.diff(table.column("position"))[np.diff(document) == 0] <= 0).any():
        yield f"{RANKS_FILE}: positions must rise within a document"
    else:
        yield from numbers_that_disagree(record, path)
        yield from _metrics_that_disagree(record, table, documents)


def _metrics_that_disagree(record: Record, table: RankTable, documents: pa.Table | None) -> Iterator[str]:
    """Yield a sentence for each metric that differs from the value that its ranks give, except CE and RBP_k.

    `numbers_that_disagree` compares CE, RBP_k and the number of tokens.
    """
    counts = table.document_counts(rbp_ks(record.metrics))
    if documents is not None and "group" in documents.column_names:
        groups = [str(group) for group in documents.column("group").to_pylist()]
        counts = counts.in_groups([groups[number] for number in counts.document.tolist()])
    metrics = ce_and_rbp_metrics(table.histogram(), counts)
    computed = {name: value for name, value in metrics.items() if name.endswith("_se")}
    rank_sum, rest_sum, _ = rank_and_rest_sums(table)
    computed |= {Metric.CE_RANK: rank_sum / len(table), Metric.CE_REST: rest_sum / len(table)}
    computed |= {metric: total / len(table) for metric, total in token_totals(table).items()}
    if Metric.CE not in record.metrics:
        yield f"{Metric.CE} is missing"
    for name, value in record.metrics.items():
        expected = computed.get(name)
        if expected is None and (name.endswith("_se") or name in _REFERENCE_METRICS):
            yield f"{name} is {value}, but its ranks do not give this metric"
        elif expected is not None and not math.isclose(value, expected, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            yield f"{name} is {value}, but its ranks give {expected}"


def _faults_of_unscored(table: pa.Table) -> Iterator[str]:
    """Yield faults of the table of tokens that were not scored: a column is missing or has a wrong value."""
    for name in ("document", "position", "token"):
        if name not in table.column_names or not pa.types.is_integer(table.schema.field(name).type):
            yield f"{UNSCORED_FILE} lacks the column {name}, or it does not hold whole numbers"
        elif table.column(name).null_count or (len(table) and pc.min(table.column(name)).as_py() < 0):
            yield f"{UNSCORED_FILE}: the column {name} must hold numbers from 0, and no empty cells"


def _faults_of_tokens(texts: Any) -> Iterator[str]:
    """Yield faults of the texts of tokens, which must be a mapping of token ids to texts."""
    if not isinstance(texts, Mapping) or not all(
        _TOKEN_ID.fullmatch(token_id) and isinstance(text, str) for token_id, text in texts.items()
    ):
        yield f"{TOKENS_FILE} must be a JSON object with a text for each token id"
        return
    try:
        # A token may hold only a part of a character. Each byte of the part is a lone surrogate.
        "".join(texts.values()).encode(errors="surrogateescape")
    except UnicodeEncodeError:
        yield f"{TOKENS_FILE}: a text has a character that cannot be encoded as UTF-8"
