"""Checks a measurement from a bundle: the names and types in its record, its files, and its numbers."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from rbptrack.analysis.input_files import parse_json
from rbptrack.analysis.rules import ImportedRow
from rbptrack.base.errors import RbptrackError, first_line, shortened_list
from rbptrack.base.files import sha256
from rbptrack.base.parquet import read_table
from rbptrack.base.secrets import without_password
from rbptrack.base.validation import broken_rules
from rbptrack.facts import BY_NAME, FACTS, IMPORTABLE, Fact, Place
from rbptrack.ranks import RankTable, is_rbp_column, rank_and_rest_sums, rbp_ks
from rbptrack.ranks.measurement import Comparison
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
from rbptrack.tracking.record import numbers, size_metrics
from rbptrack.tracking.verify import numbers_that_disagree

_FEW_ROWS = 2**16  # a table with more rows than this must take at least one byte per row
_MAX_LENGTH = 5000  # characters of a tag or param; MLflow truncates longer ones
_MAX_NAME_LENGTH = 250
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,2})?", re.ASCII)
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_TOKEN = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_MAX_CLOCK_DIFFERENCE = 86_400  # seconds between the clocks of two machines
_STATED_TWICE = [fact.name for fact in FACTS if fact.distinguishes and fact.name not in ("model", "tokenizer")]
"""The facts that a record holds both in its identity and as a tag or param."""

_REQUIRED = (Tag.FINGERPRINT, Tag.FAMILY, Tag.MODEL, Tag.DATASET)
_LENGTHS_OF_DATASET = {"name": 500, "digest": 36, "source": 65_535, "profile": 65_535}
"""The keys of a record's `dataset`, and the largest number of characters that MLflow accepts for each."""

_REFERENCE_METRICS = ("kl", "acceptance", "same_top")  # metrics that compare a model with its reference
_TOLERANCE = 1e-6  # relative and absolute; another processor may round differently
_Record = TypeAdapter(Record)


def faults_of_measurement(folder: Path, fingerprint: str) -> Iterator[str]:
    """Yield a sentence for each fault of an unpacked measurement.

    Args:
        folder: the folder with the measurement's record and files.
        fingerprint: the fingerprint in the name of the bundle's folder.

    """
    try:
        text = (folder / RECORD_FILE).read_bytes()
        parse_json(text, RECORD_FILE)  # refuses duplicate keys and numbers that are not finite
        Record.parse(text)  # refuses unknown keys
        record = _Record.validate_json(text, strict=True)
    except ValidationError as error:
        yield f"{RECORD_FILE}: {next(broken_rules(error)).sentence}"
        return
    except (RbptrackError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        yield f"{RECORD_FILE} cannot be read: {first_line(error)}"
        return
    faults = [*_faults_of_names(record), *_faults_of_values(record), *_faults_of_identity(record, fingerprint)]
    if not faults:
        faults = [*_faults_of_numbers(record), *_faults_of_files(record, folder)]
    yield from faults


def _faults_of_names(record: Record) -> Iterator[str]:
    """Yield faults of names: a required tag is missing, or a tag, param or metric is unknown."""
    if record.tags.get(Tag.KIND) != Kind.MEASUREMENT:
        yield "it is not a measurement"
    for tag in _REQUIRED:
        if not record.tags.get(tag):
            yield f"the tag {tag} is missing"
    for tag in sorted(record.tags.keys() - {Tag.KIND, *_fact_names(Place.TAG, Tag.PREFIX)}):
        yield f"the tag {tag[:60]!r} is unknown"
    for name in sorted(record.params.keys() - _fact_names(Place.PARAM)):
        yield f"the param {name[:60]!r} is unknown"
    known = {*_fact_names(Place.METRIC), Metric.LOG10_NON_EMBEDDING_PARAMS}
    for name in sorted(record.metrics.keys() - known):
        result = name.removesuffix("_se")
        if not is_rbp_column(result) and (result == name or result not in known):
            yield f"the metric {name[:60]!r} is unknown"
    for name in sorted(record.curves.keys() - {Metric.RBP_CURVE}):
        yield f"the curve {name[:60]!r} is unknown"
    if record.dataset and record.dataset.keys() != _LENGTHS_OF_DATASET.keys():
        keys = ", ".join(_LENGTHS_OF_DATASET)
        yield f"its dataset must have the keys {keys}; it has {shortened_list(list(record.dataset))[:200]}"


def _fact_names(place: Place, prefix: str = "") -> set[str]:
    """Return the names of the facts that a run keeps in one place (tag, param or metric), each with a prefix."""
    return {prefix + fact.name for fact in FACTS if fact.place is place}


def _faults_of_values(record: Record) -> Iterator[str]:
    """Yield faults of values: the store cannot keep the value, it has the wrong type, or it contradicts another one."""
    for key, value in (record.tags | record.params).items():
        if len(value) > _MAX_LENGTH or not value.isprintable() or without_password(value) != value:
            yield f"{key[:60]} must have at most {_MAX_LENGTH:,} printable characters, and no password"
        elif not _has_type(BY_NAME.get(key.removeprefix(Tag.PREFIX)), value):
            yield f"{key[:60]} is {value[:40]!r}, which has the wrong type for its column"
    for name in ("repo", "dataset_repo"):
        if record.params.get(name) and not _REPOSITORY.fullmatch(record.params[name]):
            yield f"{name} is {record.params[name][:40]!r}, which is not the name of a repository"
    if record.name != measurement_title(record.tags.get(Tag.MODEL, ""), record.tags.get(Tag.DATASET, "")):
        yield f"its name {record.name[:60]!r} must consist of its model and dataset"
    elif len(record.name) > _MAX_NAME_LENGTH:
        yield f"its name must have at most {_MAX_NAME_LENGTH} characters"
    for key, length in _LENGTHS_OF_DATASET.items():
        value = record.dataset.get(key, "")
        if len(value) > length or not value.isprintable():
            yield f"its dataset's {key} must have at most {length:,} printable characters"
    if record.dataset and record.dataset.get("name") != record.tags.get(Tag.DATASET):
        yield "its dataset's name differs from the tag"
    if not 0 < record.began <= record.ended < time.time() + _MAX_CLOCK_DIFFERENCE:
        yield "its beginning must be before its end, and its end not in the future"
    curve = record.curves.get(Metric.RBP_CURVE, [])
    if not all(map(math.isfinite, [*record.metrics.values(), *(value for _, value in curve)])):
        yield "every number must be finite"  # a number with 400 digits is read from JSON as infinity
    negative = [name for name, value in record.metrics.items() if value < 0 and name != "kl"]
    if negative:
        yield f"{shortened_list(negative)} must be at least 0"
    steps = [step for step, _ in curve]
    values = [value for _, value in curve]
    rising = steps == sorted(set(steps)) and values == sorted(values)
    if steps and not (rising and steps[0] >= 1 and steps[-1] < 2**31 and values[0] >= 0 and values[-1] <= 1):
        yield "its curve of RBP_k must rise with k, from at least 0 to at most 1"


def _has_type(fact: Fact | None, value: str) -> bool:
    """Return whether a text has the type that its fact must have. A tag that is not a fact may hold any text."""
    if fact is None or fact.dtype == "string":
        return True
    if fact.dtype == "boolean":
        return value == "true"
    return (_WHOLE if fact.dtype == "Int64" else _DECIMAL).fullmatch(value) is not None


def _faults_of_identity(record: Record, fingerprint: str) -> Iterator[str]:
    """Yield faults of identity: the fingerprint is not the hash of the identity, or a tag or param contradicts it."""
    if fingerprint_of(record.identity) != fingerprint:
        yield "its fingerprint is not the hash of its identity"
    if record.tags.get(Tag.FINGERPRINT) != fingerprint:
        yield "the fingerprint in its record differs from that of its folder"
    identity: dict[str, Any] = dict(record.identity)
    if identity.get("matmul") == "tf32":
        identity["dtype"] = "tf32"
    for name in _STATED_TWICE:
        value = identity.get(name)
        if value and isinstance(value, (str, int)) and str(value) != record.fact(name):
            yield f"{name} is {record.fact(name)[:60]}, but {str(value)[:60]} in its identity"


def _faults_of_numbers(record: Record) -> Iterator[str]:
    """Yield faults of numbers: they break the rules of imported rows, or contradict each other."""
    size = record.metrics.get(Metric.NON_EMBEDDING_PARAMS)
    if size is not None and not size_metrics(int(size)).items() <= record.metrics.items():
        yield f"{Metric.NON_EMBEDDING_PARAMS} is {size}, but {Metric.LOG10_NON_EMBEDDING_PARAMS} disagrees with it"
    without_ranks = record.tags.get(Tag.WITHOUT_RANKS) == "true"
    columns: dict[str, object] = {}
    for name in IMPORTABLE:
        if name == "documents" and not without_ranks:
            continue  # their number may exceed num_tokens, because it includes documents without scored tokens
        value = record.metrics.get(name) if BY_NAME[name].place is Place.METRIC else record.fact(name)
        if value not in (None, ""):
            columns[name] = value
    columns |= {name: value for name, value in record.metrics.items() if is_rbp_column(name) or name.endswith("_se")}
    try:
        row = ImportedRow.model_validate(columns)
    except ValidationError as error:
        yield from (broken.sentence for broken in broken_rules(error))
        return
    if record.metrics.get(Metric.BITS_PER_BYTE) == 0 and row.ce:
        yield f"{Metric.BITS_PER_BYTE} is 0, but ce is not"
    if not without_ranks:
        return
    unknown = sorted(record.metrics.keys() - columns.keys() - {Metric.LOG10_NON_EMBEDDING_PARAMS})
    if unknown:
        yield f"{shortened_list(unknown)} cannot be known without ranks"
    if "imported" not in record.identity:
        yield "it has no ranks, although it was not imported"
    if dict(record.curves.get(Metric.RBP_CURVE, [])) != row.rbp:
        yield "its curve of RBP_k disagrees with its numbers"


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
            fault = _fault_of_size(folder / name)
            if fault:
                yield fault
                return
        documents = _read_documents(folder / DOCUMENTS_FILE) if DOCUMENTS_FILE in present else None
        if documents is not None:
            yield from _faults_of_documents(record, documents)
        if RANKS_FILE in present:
            yield from _faults_of_ranks(record, folder / RANKS_FILE, documents)
        if UNSCORED_FILE in present:
            yield from _faults_of_unscored(read_table(folder / UNSCORED_FILE))
        if TOKENS_FILE in present:
            yield from _faults_of_tokens(parse_json((folder / TOKENS_FILE).read_bytes(), TOKENS_FILE))
    except (RbptrackError, OSError, ValueError, RecursionError) as error:
        yield first_line(error).replace(f"{folder}/", "")


def _fault_of_size(path: Path) -> str:
    """Return a message if a table cannot be read or has far too many rows for its size. Otherwise return "".

    Parquet stores billions of equal values in a few bytes. Reading such a table would fill the memory.
    """
    try:
        rows = pq.read_metadata(path).num_rows
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        return f"{path.name} cannot be read: {first_line(error)}"
    size = path.stat().st_size
    return f"{path.name} holds {rows:,} rows in {size:,} bytes" if rows > max(size, _FEW_ROWS) else ""


def _read_documents(path: Path) -> pa.Table:
    """Read the table of documents. Raises RbptrackError if a required column is missing."""
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
    stated = record.params.get("documents")
    if stated and int(stated) != len(documents):
        yield f"{DOCUMENTS_FILE} holds {len(documents):,} documents, but the param documents is {stated}"


def _faults_of_ranks(record: Record, path: Path, documents: pa.Table | None) -> Iterator[str]:
    """Yield faults of the rank table: a value outside its range, or a metric of the record that the ranks contradict.

    The metrics are computed only if all values are in their ranges.
    """
    table = RankTable.read(path)
    if len(table) != record.metrics.get(Metric.NUM_TOKENS) or not len(table):
        yield f"{RANKS_FILE} holds {len(table):,} ranks, but num_tokens is {record.metrics.get(Metric.NUM_TOKENS)}"
        return
    for name in table.table.column_names:
        if table.table.column(name).null_count:
            yield f"{RANKS_FILE}: the column {name} has empty cells"
            return
    smallest = min(int(table.table.column(n).to_numpy().min()) for n in ("document", "position", "greater"))
    logprob = table.column("logprob")
    above = table.above.astype(np.int64)
    number = table.column("document")
    floats = [field.name for field in table.table.schema if pa.types.is_floating(field.type)]
    if smallest < 0 or above.min() < 0 or above.max() >= table.vocab_size:
        yield f"{RANKS_FILE}: ranks must be from 1 to |V| = {table.vocab_size:,}, documents and positions from 0"
    elif (number[1:] < number[:-1]).any() or (documents is not None and number[-1] >= len(documents)):
        yield f"{RANKS_FILE}: its documents must be in ascending order, and each must be in {DOCUMENTS_FILE}"
    elif not all(np.isfinite(table.column(name)).all() for name in floats) or logprob.max() > 1e-3:
        yield f"{RANKS_FILE}: {', '.join(floats)} must be finite, and ln p at most 0"
    elif table.column_or("token", -1).min() < -1:
        yield f"{RANKS_FILE}: ids of tokens must be at least 0, or -1 if they are not known"
    elif (np.diff(table.column("position"))[np.diff(number) == 0] <= 0).any():
        yield f"{RANKS_FILE}: positions must rise within a document"
    else:
        yield from numbers_that_disagree(record, path)
        yield from _metrics_that_disagree(record, table, documents)


def _metrics_that_disagree(record: Record, table: RankTable, documents: pa.Table | None) -> Iterator[str]:
    """Yield a sentence for each metric that differs from the value that the ranks give.

    This includes metrics that `numbers_that_disagree` does not check, such as standard errors.
    """
    counts = table.document_counts(rbp_ks(record.metrics))
    if documents is not None and "group" in documents.column_names:
        groups = [str(group) for group in documents.column("group").to_pylist()]
        counts = counts.in_groups([groups[number] for number in counts.document.tolist()])
    computed = numbers(table.histogram(), counts)
    rank_sum, rest_sum, _ = rank_and_rest_sums(table)
    computed |= {Metric.CE_RANK: rank_sum / len(table), Metric.CE_REST: rest_sum / len(table)}
    if table.ties_known:
        computed[Metric.TIE_RATE] = table.tie_rate
    if table.has_reference:
        computed |= asdict(Comparison.from_sums(table.reference_sums(), len(table), 0.0))
        del computed["padding_mass"]  # the ranks do not determine it
    for name in (Metric.CE, Metric.NUM_TOKENS):
        if name not in record.metrics:
            yield f"{name} is missing"
    for name, value in record.metrics.items():
        known = computed.get(name)
        if known is None and (name.endswith("_se") or name in _REFERENCE_METRICS):
            yield f"{name} is {value}, but it cannot be computed from its ranks"
        elif known is not None and not math.isclose(value, known, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            yield f"{name} is {value}, but {known} according to its ranks"


def _faults_of_unscored(table: pa.Table) -> Iterator[str]:
    """Yield faults of the table of tokens that were not scored: a column is missing or has a wrong value."""
    for name in ("document", "position", "token"):
        if name not in table.column_names or not pa.types.is_integer(table.schema.field(name).type):
            yield f"{UNSCORED_FILE} lacks the column {name}, or it does not hold whole numbers"
        elif table.column(name).null_count or (len(table) and pc.min(table.column(name)).as_py() < 0):
            yield f"{UNSCORED_FILE}: the column {name} must hold numbers from 0, and no empty cells"


def _faults_of_tokens(texts: Any) -> Iterator[str]:
    """Yield faults of the texts of tokens, which must be a mapping of token ids to texts."""
    if not isinstance(texts, Mapping) or not all(_TOKEN.fullmatch(k) and isinstance(t, str) for k, t in texts.items()):
        yield f"{TOKENS_FILE} must be a JSON object with a text for each token id"
    elif not _can_be_written("".join(texts.values())):
        yield f"{TOKENS_FILE}: a text has a character that cannot be encoded as UTF-8"


def _can_be_written(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, where a lone surrogate stands for one byte."""
    try:
        text.encode(errors="surrogateescape")  # a token may hold only a part of a character
    except UnicodeEncodeError:
        return False
    return True
