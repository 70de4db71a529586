"""Reads the documents of a dataset: reads rows, filters them, and selects some with a seed."""

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
from rbptrack.base.formatting import counted
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.console.output import say
from rbptrack.corpus import rows
from rbptrack.corpus.rows import Row
from rbptrack.sources import hub
from rbptrack.sources.cache import cached_table, writable
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.sources.pin import Pinned, check_file, file_kind, needed_files

_SHUFFLE_BUFFER = 10_000  # documents; not configurable, because it decides which documents a seed selects
_COLUMNS = pa.schema({"id": pa.string(), "fields": pa.list_(pa.string()), "group": pa.string()})  # columns of the cache
# `datasets` and its dependencies raise these if a file is damaged or has another format than its name says.
_READING_ERRORS = (
    OSError,
    ValueError,
    OverflowError,
    EOFError,
    StopIteration,
    RuntimeError,
    zlib.error,
    pa.ArrowException,
)
# How long `datasets` waits for its threads to end. Its default is 5 s, but 0.2 s are enough for local files.
_SHUTDOWN_SECONDS = 0.2

T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    """One text of a dataset.

    Attributes:
        id: the document's id in the dataset.
        fields: the texts of the fields that `dataset.fields` names, in that order.
        group: the book, site or other group that the document comes from. Empty if `dataset.group` names no field.

    """

    id: str
    fields: tuple[str, ...]
    group: str = ""


def selection_identity(config: DatasetConfig, pinned: Pinned) -> dict[str, object]:
    """Return the settings that decide which texts are read.

    They are part of a measurement's fingerprint and the key of the cache of documents.
    """
    return {
        "dataset": pinned.identity,
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
    """Return the SHA-256 (hex) of the texts of documents, in order.

    The hash differs for conversations (`chat`), because only their answers are scored.
    """
    total = hashlib.sha256(b"chat" if chat else b"")
    for document in documents:
        for text in document.fields:
            total.update(hashlib.sha256(text.encode()).digest())
        total.update(b"\n")
    return total.hexdigest()


def load_documents(config: DatasetConfig, pinned: Pinned) -> list[Document]:
    """Read a dataset and return its selected documents.

    The documents of a hub dataset are cached. The next call with the same settings reads the cache.

    Raises:
        BadInput: the dataset cannot be read, does not have the split or field, or holds no text.

    """
    if pinned.revision is None:
        documents = _read_uncached(config, pinned)
    else:
        key = {**selection_identity(config, pinned), "group": config.group}
        table = cached_table(
            f"documents/{fingerprint(key)}", _COLUMNS, lambda: _to_table(_read_uncached(config, pinned))
        )
        documents = [Document(row["id"], tuple(row["fields"]), row["group"]) for row in table.to_pylist()]
    without = [document for document in documents if not any(document.fields)]
    if without:
        fields = ", ".join(config.fields)
        say(
            f"{config.name}: {len(without):,} of {counted(len(documents), 'document')} have no text in {fields}; "
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


def only_split(config: DatasetConfig, pinned: Pinned) -> str:
    """Return the name of a dataset's only split.

    Raises:
        BadInput: the dataset cannot be read, or has several splits.

    """
    import datasets

    if pinned.files:
        return "train"  # the name that `datasets` gives to local files

    def read_names() -> list[str]:
        names = datasets.get_dataset_split_names(
            pinned.location, config.config or None, data_files=list(config.files) or None, revision=pinned.revision
        )
        return list(map(str, names))

    splits = _call_reader(config, pinned, read_names)
    if len(splits) != 1:
        raise BadInput(f"dataset {config.name} has several splits: give dataset.split=... Splits: {', '.join(splits)}")
    return splits[0]


def _read_uncached(config: DatasetConfig, pinned: Pinned) -> list[Document]:
    """Read and select documents without the cache. Raises BadInput if the dataset cannot be read or holds no text."""
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # our error message repeats what it would log
    patience = datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN
    try:
        if pinned.revision is None:
            datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = _SHUTDOWN_SECONDS
        documents = _call_reader(config, pinned, lambda: _documents(config, pinned))
    finally:
        datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = patience
    if not any(any(document.fields) for document in documents):
        condition = f"; where={dict(config.where)}" if config.where else ""
        raise BadInput(
            f"dataset {config.name} has no text: none of {counted(len(documents), 'document')} has text in "
            f"{', '.join(config.fields)}{condition}"
        )
    return documents


def _call_reader(config: DatasetConfig, pinned: Pinned, read: Callable[[], T]) -> T:
    """Call a function that uses `datasets`, and return its result. Raises BadInput if the data cannot be read."""
    import datasets

    try:
        if pinned.revision is None:
            return read()
        return hub.call("dataset", pinned.location, config.revision, read)
    except (*_READING_ERRORS, yaml.YAMLError, datasets.exceptions.DatasetsError) as error:
        where = pinned.location or ", ".join(map(str, pinned.files[:3]))
        reason = first_line(error)
        if isinstance(error, UnicodeDecodeError):
            reason = f"it is not UTF-8 text ({reason}); convert it, for example with iconv -f latin1 -t utf-8"
        raise BadInput(f"dataset {config.name} cannot be read from {where}: {reason}") from error


def _documents(config: DatasetConfig, pinned: Pinned) -> list[Document]:
    documents: list[Document] = []
    grouped = False
    for number, row in enumerate(_selected_rows(config, pinned)):
        id_ = str(row[config.id_field]) if config.id_field else str(row.get(rows.ID, number))
        group = ""
        if config.group:
            value = _field_value(row, config.group)
            has_group = value not in (None, "")
            grouped = grouped or has_group
            # A document without a group is a group of its own.
            group = str(value) if has_group else f"document {number} (no {config.group})"
        documents.append(Document(id_, _field_texts(row, config), group))
    if config.group and documents and not grouped:
        raise BadInput(f"dataset.group={config.group}: no document of {config.name} has this field")
    return documents


def _selected_rows(config: DatasetConfig, pinned: Pinned) -> Iterable[Row]:
    """Return the rows that a config selects. The order is: head, filters, selection with the seed."""
    import datasets

    from_all_rows = config.sampling is Sampling.shuffle and bool(config.documents) and not config.head
    requested = _named_columns(config)
    csv: dict[str, Any] = {}
    if pinned.files:
        for path in pinned.files:
            check_file(path)
        files: Sequence[str] = [str(path) for path in pinned.files]
    else:
        location, revision = _reachable(config, pinned)
        names = {
            "path": location,
            "name": config.config or None,
            "data_files": list(config.files) or None,
            "revision": revision,
            "cache_dir": str(writable(Path(datasets.config.HF_DATASETS_CACHE))),
        }
        builder = datasets.load_dataset_builder(**names)
        files, csv = _split_files(builder, config.split)
        if not files:
            return _select_rows(_rows_of_library(builder, names, config, streaming=not from_all_rows), config)
    for file in files if pinned.revision is None else files[:1]:  # a repository may have thousands of files
        _check_fields(rows.columns_of(file, requested, csv), requested, config)
    if from_all_rows:
        if pinned.revision is not None:  # downloaded first, because the files are read twice
            files = datasets.DownloadManager().download(files)
        return _draw_from_all_rows(lambda: rows.read_rows(files, requested, csv), config)
    arguments = {"files": list(files), "columns": tuple(requested), "csv": csv}
    return _select_rows(datasets.IterableDataset.from_generator(rows.read_rows, gen_kwargs=arguments), config)


def _split_files(builder: Any, split: str) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the CSV or JSON files of a split, and the options for CSV that the dataset's README.md may set.

    Return no files if `datasets` itself must read the split, because its files have another format or are in archives.
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
    """Return whether the ending of a file's name is one that `read_rows` can read. Endings of archives are not."""
    try:
        return bool(file_kind(file))
    except BadInput:
        return False


def _reachable(config: DatasetConfig, pinned: Pinned) -> tuple[str, str | None]:
    """Return the location and revision to give to `datasets`.

    Without a network, the location is the folder of the hub's cache, and the revision is None.
    """
    if pinned.revision is None or hub.online():
        return pinned.location, pinned.revision
    folder = hub.snapshot("dataset", pinned.location, pinned.revision)
    if folder is None:
        missing = hub.Missing("dataset", pinned.location, config.revision, needed_files(config))
        raise hub.NotCached([missing])
    return str(folder), None


def _rows_of_library(builder: Any, names: dict[str, Any], config: DatasetConfig, *, streaming: bool) -> Any:
    """Open a split with `datasets`, streamed or whole. Of Parquet files, only the named columns are read."""
    import datasets
    from datasets.packaged_modules.parquet.parquet import Parquet

    requested = _named_columns(config)
    streamed = builder.as_streaming_dataset(split=config.split)
    _check_fields(list(streamed.column_names or next(iter(streamed), {})), requested, config)
    if streaming and not isinstance(builder, Parquet):
        return streamed
    columns = {"columns": requested} if isinstance(builder, Parquet) else {}
    return datasets.load_dataset(split=config.split, streaming=streaming, **names, **columns)


def _select_rows(stream: Any, config: DatasetConfig) -> Iterable[Row]:
    """Apply head, filters and selection of a config to a dataset that `datasets` has opened."""
    keep = _filter(config)
    if config.head:
        passing = [row for row in islice(stream, config.head) if keep(row)]
        if not config.documents:
            return passing
        order = np.random.default_rng(config.seed).permutation(len(passing))
        return [passing[i] for i in order[: config.documents]]
    if config.where or config.longer_than:
        stream = stream.filter(keep)
    if config.documents and config.sampling is Sampling.stream:
        stream = stream.shuffle(seed=config.seed, buffer_size=_SHUFFLE_BUFFER)
    elif config.documents:
        stream = stream.shuffle(seed=config.seed)
    return islice(stream, config.documents or None)


def _draw_from_all_rows(read: Callable[[], Iterable[Row]], config: DatasetConfig) -> list[Row]:
    """Draw rows at random, with the seed, from all rows that pass the filters.

    `datasets` would draw the same rows with this seed. The rows are read twice: first to count them, then to keep the
    drawn ones. Only the drawn rows are in memory.
    """
    keep = _filter(config)
    count = sum(1 for row in read() if keep(row))
    order = np.random.default_rng(config.seed).permutation(count)[: config.documents].tolist()
    drawn = set(order)
    passing = (row for row in read() if keep(row))
    row_by_number = {number: row for number, row in enumerate(passing) if number in drawn}
    return [row_by_number[number] for number in order]


def _named_columns(config: DatasetConfig) -> list[str]:
    """Return the columns that a config names, without repetition."""
    named = [*config.fields]
    if config.id_field:
        named.append(config.id_field)
    named += [key.split(".")[0] for key in config.where]
    if config.group:
        named.append(config.group.split(".")[0])
    return list(dict.fromkeys(named))


def _check_fields(columns: Sequence[str], requested: Sequence[str], config: DatasetConfig) -> None:
    absent = [name for name in requested if name not in columns]
    if absent:
        fields = ", ".join(c if c == c.strip() else repr(c) for c in columns)
        raise BadInput(f"dataset {config.name} has no field {', '.join(absent)}. Fields: {fields}")


def _filter(config: DatasetConfig) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        if config.longer_than and len(config.separator.join(_field_texts(row, config))) <= config.longer_than:
            return False
        return all(str(_field_value(row, key)) == str(value) for key, value in config.where.items())

    return keep


def _field_value(row: Row, key: str) -> object:
    """Return the value of a field, or of a part of a field (`meta.site`). Return None if the row does not have it.

    Raises:
        BadInput: the key names a part of a field that is not an object.

    """
    value: Any = row
    read: list[str] = []
    for part in key.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            field = ".".join(read)
            raise BadInput(f"{key}: the field {field} holds {value!r:.60}, which has no parts; give {field}")
        value = value.get(part)
        read.append(part)
    return value


def _field_texts(row: Row, config: DatasetConfig) -> tuple[str, ...]:
    return tuple(_as_text(row[name], name, config) for name in config.fields)


def _as_text(value: object, field: str, config: DatasetConfig) -> str:
    """Return a field's value as text. A missing value is an empty text. Raises BadInput if the value is not text."""
    if value is None:
        return ""
    if isinstance(value, str):
        # UTF-16 without a byte order mark can be read as UTF-8. Then a NUL stands between the letters.
        if "\0" in value and config.files:
            raise BadInput(
                f"dataset {config.name}: field {field} holds NUL bytes, so a file is not UTF-8 text; "
                "convert it, for example with iconv -f utf-16 -t utf-8"
            )
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInput(
                f"dataset {config.name}: field {field} holds half of a surrogate pair, such as \\ud800 in JSON. This "
                "is not valid text: repair the file"
            )
        return value
    raise BadInput(
        f"dataset {config.name}: field {field} holds {value!r:.60}, which is not text. dataset.fields must name "
        "fields that hold text"
    )
