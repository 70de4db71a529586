"""From a dataset to documents: read its rows, keep those that are asked for, select some with a seed."""

from __future__ import annotations

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
from rbptrack.corpus import rows
from rbptrack.corpus.rows import Row
from rbptrack.sources import hub
from rbptrack.sources.cache import cached, writable
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.sources.pin import Pinned, check_file, file_kind, needed_files

_SHUFFLE_BUFFER = 10_000  # documents; a constant, because it decides which documents a seed selects
_COLUMNS = pa.schema({"id": pa.string(), "fields": pa.list_(pa.string()), "group": pa.string()})  # of the cache
# What `datasets` and the libraries below it raise for data that is damaged or of another kind.
_READING = (OSError, ValueError, OverflowError, EOFError, StopIteration, RuntimeError, zlib.error, pa.ArrowException)
_SHUTDOWN_SECONDS = 0.2  # that reads ahead in a local file need to end, once enough was taken; the library waits 5 s

T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    """One text: its fields in order, as the dataset has them, and its source if the dataset names one."""

    id: str
    fields: tuple[str, ...]
    group: str = ""


def selection_identity(config: DatasetConfig, source: Pinned) -> dict[str, object]:
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


def load_documents(config: DatasetConfig, source: Pinned) -> list[Document]:
    """Read and select documents. A selection of a hub dataset that was read before comes from the cache.

    Raises:
        BadInput: the dataset cannot be read, has no such split or field, or holds no text.

    """
    if source.revision is None:
        documents = _read(config, source)
    else:
        key = {**selection_identity(config, source), "group": config.group}
        table = cached(f"documents/{fingerprint(key)}", _COLUMNS, lambda: _to_table(_read(config, source)))
        documents = [Document(row["id"], tuple(row["fields"]), row["group"]) for row in table.to_pylist()]
    without = [document for document in documents if not any(document.fields)]
    if without:
        fields = ", ".join(config.fields)
        say(
            f"{config.name}: {len(without):,} of {counted(len(documents), 'document')} without text in {fields}; "
            f"the first is {without[0].id}"
        )
    return documents


def _to_table(documents: Sequence[Document]) -> pa.Table:
    columns = {
        "id": [document.id for document in documents],
        "fields": [list(document.fields) for document in documents],
        "group": [document.group for document in documents],
    }
    return pa.table(columns, _COLUMNS)


def only_split(config: DatasetConfig, source: Pinned) -> str:
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


def _read(config: DatasetConfig, source: Pinned) -> list[Document]:
    """Read and select documents without the cache. Raises BadInput if the dataset cannot be read or holds no text."""
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


def _through(config: DatasetConfig, source: Pinned, read: Callable[[], T]) -> T:
    """Call a function that reads with `datasets`. Raises BadInput if the data or the hub fail."""
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


def _documents(config: DatasetConfig, source: Pinned) -> list[Document]:
    documents: list[Document] = []
    grouped = False
    for number, row in enumerate(_selected(config, source)):
        id_ = str(row[config.id_field]) if config.id_field else str(row.get(rows.ID, number))
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


def _selected(config: DatasetConfig, source: Pinned) -> Iterable[Row]:
    """Yield the rows that are asked for: head, then filters, then the seeded selection."""
    import datasets

    whole = config.sampling is Sampling.shuffle and bool(config.documents) and not config.head
    wanted = _named_columns(config)
    csv: dict[str, Any] = {}
    if source.files:
        for path in source.files:
            check_file(path)
        files: Sequence[str] = [str(path) for path in source.files]
    else:
        location, revision = _reachable(config, source)
        names = {
            "path": location,
            "name": config.config or None,
            "data_files": list(config.files) or None,
            "revision": revision,
            "cache_dir": str(writable(Path(datasets.config.HF_DATASETS_CACHE))),
        }
        builder = datasets.load_dataset_builder(**names)
        files, csv = _files_of(builder, config.split)
        if not files:
            return _select(_rows_of_library(builder, names, config, streaming=not whole), config)
    for file in files if source.revision is None else files[:1]:  # a repository may have thousands
        _check_fields(rows.columns_of(file, wanted, csv), wanted, config)
    if whole:
        if source.revision is not None:  # they are read twice
            files = datasets.DownloadManager().download(files)
        return _drawn_from_all(lambda: rows.read_rows(files, wanted, csv), config)
    arguments = {"files": list(files), "columns": tuple(wanted), "csv": csv}
    return _select(datasets.IterableDataset.from_generator(rows.read_rows, gen_kwargs=arguments), config)


def _files_of(builder: Any, split: str) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the CSV or JSON files of a split and the options of the CSV, which a README.md may give.

    No files if `datasets` must read the split: it is of another kind, or its files are in archives.
    """
    from datasets.packaged_modules.csv.csv import Csv
    from datasets.packaged_modules.json.json import Json

    files = (builder.config.data_files or {}).get(split) or []
    if not all(_is_readable(file) for file in files):
        return [], {}
    if isinstance(builder, Csv):
        return files, builder.config.pd_read_csv_kwargs
    if isinstance(builder, Json) and not builder.config.field:
        return files, {}
    return [], {}


def _is_readable(file: str) -> bool:
    """Whether `rows` knows the kind of a file by its name; an archive holds files of which it does not."""
    try:
        return bool(file_kind(file))
    except BadInput:
        return False


def _reachable(config: DatasetConfig, source: Pinned) -> tuple[str, str | None]:
    """Return location and revision for `datasets`: the hub, or without a network the folder of its cache."""
    if source.revision is None or hub.online():
        return source.location, source.revision
    folder = hub.snapshot("dataset", source.location, source.revision)
    if folder is None:
        missing = hub.Missing("dataset", source.location, config.revision, needed_files(config))
        raise hub.NotCached([missing])
    return str(folder), None


def _rows_of_library(builder: Any, names: dict[str, Any], config: DatasetConfig, *, streaming: bool) -> Any:
    """Return the split as `datasets` gives it, streamed or whole; of Parquet files the named columns."""
    import datasets
    from datasets.packaged_modules.parquet.parquet import Parquet

    wanted = _named_columns(config)
    streamed = builder.as_streaming_dataset(split=config.split)
    _check_fields(list(streamed.column_names or next(iter(streamed), {})), wanted, config)
    if streaming and not isinstance(builder, Parquet):
        return streamed
    columns = {"columns": wanted} if isinstance(builder, Parquet) else {}
    return datasets.load_dataset(split=config.split, streaming=streaming, **names, **columns)


def _select(stream: Any, config: DatasetConfig) -> Iterable[Row]:
    """The rows that are asked for of a dataset of the library."""
    keep = _filter(config)
    if config.head:
        wanted = [row for row in islice(stream, config.head) if keep(row)]
        if not config.documents:
            return wanted
        order = np.random.default_rng(config.seed).permutation(len(wanted))
        return [wanted[i] for i in order[: config.documents]]
    if config.where or config.longer_than:
        stream = stream.filter(keep)
    if config.documents and config.sampling is Sampling.stream:
        stream = stream.shuffle(seed=config.seed, buffer_size=_SHUFFLE_BUFFER)
    elif config.documents:
        stream = stream.shuffle(seed=config.seed)
    return islice(stream, config.documents or None)


def _drawn_from_all(read: Callable[[], Iterable[Row]], config: DatasetConfig) -> list[Row]:
    """Return the first rows of a permutation of all rows that pass the filters, as `datasets` draws it.

    The rows are read twice: first to count them, then to keep those that are drawn. Only those are in memory.
    """
    keep = _filter(config)
    count = sum(1 for row in read() if keep(row))
    order = np.random.default_rng(config.seed).permutation(count)[: config.documents].tolist()
    drawn = set(order)
    passing = (row for row in read() if keep(row))
    row_by_number = {number: row for number, row in enumerate(passing) if number in drawn}
    return [row_by_number[number] for number in order]


def _named_columns(config: DatasetConfig) -> list[str]:
    """The columns that a config names, once each."""
    named = [*config.fields]
    if config.id_field:
        named.append(config.id_field)
    named += [key.split(".")[0] for key in config.where]
    if config.group:
        named.append(config.group.split(".")[0])
    return list(dict.fromkeys(named))


def _check_fields(columns: Sequence[str], wanted: Sequence[str], config: DatasetConfig) -> None:
    absent = [name for name in wanted if name not in columns]
    if absent:
        fields = ", ".join(c if c == c.strip() else repr(c) for c in columns)
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
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInput(
                f"dataset {config.name}: field {field} holds half of a surrogate pair, such as \\ud800 in "
                "JSON, which is not text: repair the file"
            )
        return value
    raise BadInput(
        f"dataset {config.name}: field {field} holds a {type(value).__name__}, not text; dataset.fields must name "
        "fields of text"
    )
