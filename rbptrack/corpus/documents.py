"""From a dataset to documents: read its rows, keep those that are asked for, select some with a seed."""

from __future__ import annotations

import glob
import hashlib
import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import yaml

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.words import counted
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.console.output import say
from rbptrack.sources import hub
from rbptrack.sources.cache import cached
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.sources.pin import FILE_KINDS, Source, check_file, file_kind

_SHUFFLE_BUFFER = 10_000  # documents; a constant, because it decides which documents a seed selects
_ID = "__rbptrack_id__"
_COLUMNS = pa.schema({"id": pa.string(), "fields": pa.list_(pa.string()), "group": pa.string()})  # of the cache
# What `datasets` and the libraries below it raise for data that is damaged or of another kind.
_READING = (OSError, ValueError, OverflowError, EOFError, StopIteration, RuntimeError, zlib.error, pa.ArrowException)
_SHUTDOWN_SECONDS = 0.2  # that reads ahead in a local file need to end, once enough was taken; the library waits 5 s

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    """One text: its fields in order, as the dataset has them, and the source it comes from, where one is named."""

    id: str
    fields: tuple[str, ...]
    group: str = ""


def selection_identity(config: DatasetConfig, source: Source) -> dict[str, object]:
    """Everything that decides which texts are read: part of a measurement's fingerprint, and the key of the cache."""
    return {
        "dataset": source.identity,
        "config": config.config,
        "files": config.files if config.repo else [],
        "split": config.split,
        "fields": config.fields,
        "separator": config.separator if len(config.fields) > 1 else "",
        "id_field": config.id_field,
        "head": config.head,
        "where": dict(config.where),
        "longer_than": config.longer_than,
        "selection": [config.sampling.value, config.documents, config.seed] if config.documents else "all",
    }


def texts_hash(documents: Sequence[Document], *, chat: bool = False) -> str:
    """SHA-256 (hex) over the texts of the selection, in order; another for conversations, whose answers alone count."""
    total = hashlib.sha256(b"chat" if chat else b"")
    for document in documents:
        for text in document.fields:
            total.update(hashlib.sha256(text.encode()).digest())
        total.update(b"\n")
    return total.hexdigest()


def load_documents(config: DatasetConfig, source: Source) -> list[Document]:
    """Read and select documents; from the cache where this selection of a hub dataset was read before.

    Raises:
        BadInput: the dataset cannot be read, has no such split or field, or holds no text.

    """
    if source.revision is None:
        documents = _read(config, source)
    else:
        key = {**selection_identity(config, source), "group": config.group}
        table = cached(f"documents/{fingerprint(key)}", _COLUMNS, lambda: _to_table(_read(config, source)))
        documents = [Document(row["id"], tuple(row["fields"]), row["group"]) for row in table.to_pylist()]
    without = sum(not any(document.fields) for document in documents)
    if without:
        fields = ", ".join(config.fields)
        say(f"dataset {config.name}: {without:,} of {counted(len(documents), 'document')} without text in {fields}")
    return documents


def _to_table(documents: Sequence[Document]) -> pa.Table:
    columns = {
        "id": [document.id for document in documents],
        "fields": [list(document.fields) for document in documents],
        "group": [document.group for document in documents],
    }
    return pa.table(columns, _COLUMNS)


def only_split(config: DatasetConfig, source: Source) -> str:
    """The split of a dataset that names none.

    Raises:
        BadInput: the dataset cannot be read, or has several.

    """
    import datasets

    if source.files:
        return "train"  # what `datasets` calls files given by name

    def names() -> list[str]:
        found = datasets.get_dataset_split_names(
            source.location, config.config or None, data_files=list(config.files) or None, revision=source.revision
        )
        return list(map(str, found))

    splits = _through(config, source, names)
    if len(splits) != 1:
        raise BadInput(f"dataset {config.name} has several splits: give dataset.split=... Splits: {', '.join(splits)}")
    return splits[0]


def _read(config: DatasetConfig, source: Source) -> list[Document]:
    """Read and select documents from where they are; see `load_documents`."""
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # the error says what it would say
    patience = datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN
    try:
        if source.revision is None:
            datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = _SHUTDOWN_SECONDS
        documents = _through(config, source, lambda: _documents(config, source))
    finally:
        datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = patience
    if not any(any(document.fields) for document in documents):
        condition = f"; where={dict(config.where)}" if config.where else ""
        raise BadInput(
            f"dataset {config.name} is empty: {len(documents)} documents, none with text in {config.fields}{condition}"
        )
    return documents


def _through(config: DatasetConfig, source: Source, read: Callable[[], T]) -> T:
    """Do something with `datasets`; faults of the data and of the hub become lines."""
    import datasets

    try:
        if source.revision is None:
            return read()
        return hub.call("dataset", source.location, config.revision, read)
    except (*_READING, yaml.YAMLError, datasets.exceptions.DatasetsError) as error:
        where = source.location or ", ".join(map(str, source.files[:3]))
        reason = first_line(error)
        if isinstance(error, UnicodeDecodeError):
            reason = f"it is not UTF-8 text ({reason}); convert it, for example with iconv -f latin1 -t utf-8"
        raise BadInput(f"dataset {config.name} cannot be read from {where}: {reason}") from error


def _documents(config: DatasetConfig, source: Source) -> list[Document]:
    documents: list[Document] = []
    grouped = False
    for number, row in enumerate(_select(_rows(config, source), config)):
        id_ = str(row[config.id_field]) if config.id_field else str(row.get(_ID, number))
        group = ""
        if config.group:
            source_of_row = _value(row, config.group)
            has_source = source_of_row not in (None, "")
            grouped = grouped or has_source
            group = str(source_of_row) if has_source else f"document {number} (no {config.group})"  # no other's name
        documents.append(Document(id_, _fields(row, config), group))
    if config.group and documents and not grouped:
        raise BadInput(f"dataset.group={config.group}: no document of {config.name} has this field")
    return documents


def _rows(config: DatasetConfig, source: Source) -> Any:
    """The split as `datasets` gives it: streamed, or whole where a permutation of all rows is asked for."""
    import datasets

    streaming = config.sampling is Sampling.stream or not config.documents or bool(config.head)
    if source.files:
        parts = [_file(path, streaming=streaming) for path in source.files]
        return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
    location = source.location
    revision = source.revision
    if revision is not None and not hub.online():
        folder = hub.snapshot("dataset", source.location, revision)
        if folder is None:
            raise hub.unreachable("dataset", source.location, config.revision)
        location = str(folder)
        revision = None
    return datasets.load_dataset(
        location,
        config.config or None,
        data_files=list(config.files) or None,
        split=config.split,
        revision=revision,
        streaming=streaming,
    )


def _file(path: Path, *, streaming: bool) -> Any:
    """Read one local file; its rows get an id from the file's name and the row's number."""
    import datasets

    check_file(path)
    kind = FILE_KINDS[file_kind(path)]
    options = {"sample_by": "document", "encoding": "utf-8-sig"} if kind == "text" else {}  # without Windows' mark
    pattern = glob.escape(str(path))
    rows = datasets.load_dataset(kind, data_files=[pattern], split="train", streaming=streaming, **options)

    def named(row: Row, number: int) -> Row:
        return {_ID: path.name if kind == "text" else f"{path.name}:{number}"}

    return rows.map(named, with_indices=True)


def _select(rows: Any, config: DatasetConfig) -> Iterable[Row]:
    """The rows that are asked for: head, then filters, then the seeded selection."""
    _check_fields(rows, config)
    keep = _filter(config)
    if config.head:
        wanted = [row for row in islice(rows, config.head) if keep(row)]
        if not config.documents:
            return wanted
        order = np.random.default_rng(config.seed).permutation(len(wanted))
        return [wanted[i] for i in order[: config.documents]]
    if config.where or config.longer_than:
        rows = rows.filter(keep)
    if config.documents and config.sampling is Sampling.stream:
        rows = rows.shuffle(seed=config.seed, buffer_size=_SHUFFLE_BUFFER)
    elif config.documents:
        rows = rows.shuffle(seed=config.seed)
    return islice(rows, config.documents or None)


def _check_fields(rows: Any, config: DatasetConfig) -> None:
    columns = list(rows.column_names or next(iter(rows), {}))  # a stream of JSON says only when it is read
    named = [*config.fields]
    if config.id_field:
        named.append(config.id_field)
    named += [key.split(".")[0] for key in config.where]
    if config.group:
        named.append(config.group.split(".")[0])
    absent = [name for name in named if name not in columns]
    if absent:
        fields = ", ".join(c if c == c.strip() else repr(c) for c in columns if c != _ID)
        raise BadInput(f"dataset {config.name} has no field {', '.join(absent)}. Fields: {fields}")


def _filter(config: DatasetConfig) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        if config.longer_than and len(config.separator.join(_fields(row, config))) <= config.longer_than:
            return False
        return all(str(_value(row, key)) == str(wanted) for key, wanted in config.where.items())

    return keep


def _value(row: Row, key: str) -> object:
    """The value of a field, or of a part of one (`meta.site`); None where the row has none.

    Raises:
        BadInput: the key names a part of a value that has no parts.

    """
    value: Any = row
    read: list[str] = []
    for part in key.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            field = ".".join(read)
            raise BadInput(f"{key}: the field {field} holds a {type(value).__name__}, which has no parts; give {field}")
        value = value.get(part)
        read.append(part)
    return value


def _fields(row: Row, config: DatasetConfig) -> tuple[str, ...]:
    return tuple(_as_text(row[name], name, config) for name in config.fields)


def _as_text(value: object, field: str, config: DatasetConfig) -> str:
    """A field's text; an empty text for a missing one."""
    if value is None:
        return ""
    if isinstance(value, str):
        if "\0" in value and config.files:  # UTF-16 without its mark reads as UTF-8 with a NUL between any two letters
            raise BadInput(
                f"dataset {config.name}: field {field} holds NUL bytes, so a file is not UTF-8 text; "
                "convert it, for example with iconv -f utf-16 -t utf-8"
            )
        return value
    raise BadInput(
        f"dataset {config.name}: field {field} holds a {type(value).__name__}, not text; dataset.fields must name "
        "fields of text"
    )
