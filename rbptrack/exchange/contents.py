"""What a measurement that somebody else made must say: a record of the right types, and files that give its numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.files import sha256
from rbptrack.base.parquet import read_table
from rbptrack.base.validation import faults_of
from rbptrack.facts import FACTS
from rbptrack.ranks import RankTable
from rbptrack.sources.fingerprint import fingerprint as fingerprint_of
from rbptrack.tracking import Record
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
from rbptrack.tracking.record import size_metrics
from rbptrack.tracking.verify import numbers_that_disagree

_KEY = re.compile(r"[/\w.\- :]{1,250}")  # of params, metrics and tags in MLflow
_LONGEST = 6000  # characters of a param in MLflow
_MAX_ROWS = 2**31  # of a table: a run of equal values packs into nothing
_STATED_TWICE = [fact.name for fact in FACTS if fact.decides and fact.name not in ("model", "tokenizer")]
_REQUIRED = (Tag.FINGERPRINT, Tag.FAMILY, Tag.MODEL, Tag.DATASET)
_Record = TypeAdapter(Record)


def faults_of_measurement(folder: Path, fingerprint: str) -> Iterator[str]:
    """Every fault of an unpacked measurement."""
    try:
        text = (folder / RECORD_FILE).read_bytes()
        record = Record.parse(text)
        _Record.validate_json(text, strict=True)
    except ValidationError as error:
        yield f"{RECORD_FILE}: {next(faults_of(error)).sentence}"
        return
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        yield f"{RECORD_FILE} cannot be read: {first_line(error)}"
        return
    faults = [*_faults_of_entries(record), *_faults_of_identity(record, fingerprint)]
    if not faults:
        faults = [*_faults_of_size(record), *_faults_of_files(record, folder)]
    yield from faults


def _faults_of_entries(record: Record) -> Iterator[str]:
    """Tags, params and numbers that are missing, or that MLflow does not take."""
    if record.tags.get(Tag.KIND) != Kind.MEASUREMENT:
        yield "is no measurement"
    for tag in _REQUIRED:
        if not record.tags.get(tag):
            yield f"the tag {tag} is missing"
    for tag in record.tags:
        if not tag.startswith(Tag.PREFIX):
            yield f"the tag {tag[:60]!r} is none of rbptrack's"
    for key in (*record.tags, *record.params, *record.metrics, *record.curves):
        if not _KEY.fullmatch(key) or any(part in ("", ".", "..") for part in key.split("/")):
            yield f"{key[:60]!r} is no name that MLflow takes"
    for key, value in (record.tags | record.params).items():
        if len(value) > _LONGEST or not value.isprintable():
            yield f"{key}: at most {_LONGEST:,} printable characters"
    values = [*record.metrics.values(), *(value for curve in record.curves.values() for _, value in curve)]
    if not all(map(math.isfinite, values)):
        yield "every number must be finite"


def _faults_of_identity(record: Record, fingerprint: str) -> Iterator[str]:
    """Where the fingerprint, what it is the hash of, and the rest of the record disagree."""
    if fingerprint_of(record.identity) != fingerprint:
        yield "its fingerprint is not that of what it says it measured"
    if record.tags.get(Tag.FINGERPRINT) != fingerprint:
        yield "its record has another fingerprint than its folder"
    identity: dict[str, Any] = dict(record.identity)
    if identity.get("matmul") == "tf32":
        identity["dtype"] = "tf32"
    for name in _STATED_TWICE:
        value = identity.get(name)
        if value and isinstance(value, (str, int)) and str(value) != record.fact(name):
            yield f"{name} is {record.fact(name)}, and {value} in what its fingerprint is made of"


def _faults_of_size(record: Record) -> Iterator[str]:
    """An S that its logarithm or the number of all parameters rules out."""
    size = record.metrics.get(Metric.NON_EMBEDDING_PARAMS)
    if size is None:
        return
    total = record.params.get("total_params", "")
    if not size_metrics(int(size)).items() <= record.metrics.items():
        yield f"{Metric.NON_EMBEDDING_PARAMS} is {size}, and its logarithm that of another number"
    if total and not (total.isdecimal() and size <= int(total)):
        yield f"{Metric.NON_EMBEDDING_PARAMS} is {size}, and total_params {total[:40]}"


def _faults_of_files(record: Record, folder: Path) -> Iterator[str]:
    present = {path.name for path in folder.iterdir()} - {RECORD_FILE}
    for name in sorted(set(record.files) ^ present):
        yield f"{name} is missing, or not in the record"
    for name in sorted(set(record.files) & present):
        if sha256(folder / name) != record.files[name]:
            yield f"{name} is damaged"
    if record.tags.get(Tag.WITHOUT_RANKS) != "true" and RANKS_FILE not in present:
        yield f"{RANKS_FILE} is missing"
    try:
        if RANKS_FILE in present:
            yield from _faults_of_ranks(record, folder / RANKS_FILE)
        if DOCUMENTS_FILE in present:
            yield from _faults_of_documents(read_table(folder / DOCUMENTS_FILE).column_names)
        if UNSCORED_FILE in present:
            yield from _faults_of_unscored(read_table(folder / UNSCORED_FILE))
        if TOKENS_FILE in present:
            yield from _faults_of_tokens(json.loads((folder / TOKENS_FILE).read_bytes()))
    except (RbptrackError, OSError, ValueError, RecursionError) as error:
        yield first_line(error).replace(f"{folder}/", "")


def _faults_of_ranks(record: Record, path: Path) -> Iterator[str]:
    try:
        rows = pq.read_metadata(path).num_rows
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        yield f"{RANKS_FILE} cannot be read: {first_line(error)}"
        return
    if rows != record.metrics.get(Metric.NUM_TOKENS) or not 0 < rows < _MAX_ROWS:
        yield f"{RANKS_FILE} holds {rows:,} ranks, and num_tokens is {record.metrics.get(Metric.NUM_TOKENS)}"
        return
    table = RankTable.read(path)
    for name in table.table.column_names:
        if table.table.column(name).null_count:
            yield f"{RANKS_FILE}: the column {name} has empty cells"
            return
    smallest = min(int(table.table.column(n).to_numpy().min()) for n in ("document", "position", "greater"))
    logprob = table.column("logprob")
    above = table.above.astype(np.int64)
    if smallest < 0 or above.min() < 0 or above.max() >= table.vocab_size:
        yield f"{RANKS_FILE}: ranks must be from 1 to |V| = {table.vocab_size:,}, documents and positions from 0"
    elif not np.isfinite(logprob).all() or logprob.max() > 1e-3:
        yield f"{RANKS_FILE}: ln p must be finite and at most 0"
    else:
        yield from numbers_that_disagree(record, path)


def _faults_of_documents(columns: list[str]) -> Iterator[str]:
    missing = [name for name in ("document", "id", "tokens") if name not in columns]
    if missing:
        yield f"{DOCUMENTS_FILE} lacks the columns {', '.join(missing)}"


def _faults_of_unscored(table: pa.Table) -> Iterator[str]:
    for name in ("document", "position", "token"):
        if name not in table.column_names or not pa.types.is_integer(table.schema.field(name).type):
            yield f"{UNSCORED_FILE} lacks the column {name}, or it does not hold whole numbers"
        elif table.column(name).null_count or (len(table) and pc.min(table.column(name)).as_py() < 0):
            yield f"{UNSCORED_FILE}: the column {name} must hold numbers from 0, and no empty cells"


def _faults_of_tokens(texts: Any) -> Iterator[str]:
    if not isinstance(texts, Mapping) or not all(key.isdecimal() and isinstance(t, str) for key, t in texts.items()):
        yield f"{TOKENS_FILE} is no object of texts by token id"
