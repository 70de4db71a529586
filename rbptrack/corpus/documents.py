"""Reads the documents of a dataset. It reads rows, filters them, and selects some of them with a seed."""

from __future__ import annotations

import hashlib
import logging
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.base.formatting import counted
from rbptrack.base.tables import Row
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.corpus import rows
from rbptrack.sources import hub
from rbptrack.sources.cache import cached_table, hash_settings, writable_folder
from rbptrack.sources.dataset_files import check_listed, split_names
from rbptrack.sources.manifest import reading
from rbptrack.sources.pin import Pinned, check_file_is_whole, has_known_ending, needed_files

_SHUFFLE_BUFFER = 10_000  # documents; not configurable, because it decides which documents a seed selects
_CACHE_SCHEMA = pa.schema({"id": pa.string(), "fields": pa.list_(pa.string()), "group": pa.string()})
# The time that `datasets` waits for its threads to end after local files were read. Its default of 5 s is too long.
_SHUTDOWN_SECONDS = 0.2

# Options of pandas in a README.md that say how a CSV file is split, and those that say what types its cells have.
_CSV_OPTIONS = ("names", "encoding", "quotechar", "quoting", "escapechar", "doublequote")
_OPTIONS_OF_TYPES = {"na_values", "keep_default_na", "na_filter", "true_values", "false_values", "thousands", "decimal"}
_OPTIONS_OF_TYPES |= {"float_precision", "date_format", "converters", "engine", "memory_map", "chunksize"}

T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    """One text of a dataset.

    Attributes:
        id: the document's id in the dataset.
        fields: the texts of the fields that `dataset.fields` names, in that order.
        group: the book, site or other group that the document comes from; empty if `dataset.group` names no field.

    """

    id: str
    fields: tuple[str, ...]
    group: str = ""


def selection_identity(config: DatasetConfig, pinned: Pinned) -> dict[str, object]:
    """Return the settings that decide which texts are read.

    They are a part of a measurement's fingerprint, and of the key under which documents are cached.
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
    digest = hashlib.sha256(b"chat" if chat else b"")
    for document in documents:
        for text in document.fields:
            digest.update(hashlib.sha256(text.encode()).digest())
        digest.update(b"\n")
    return digest.hexdigest()


def load_documents(config: DatasetConfig, pinned: Pinned) -> list[Document]:
    """Return the selected documents of a dataset.

    The documents of a Hub dataset are cached. The next call with these settings reads the cache.

    Raises:
        BadInput: the dataset cannot be read, has changed since it was hashed, does not have the split or field, or
            holds no text.

    """
    if pinned.revision is None:
        with reading(pinned.files):
            return _read_uncached(config, pinned)
    key = {**selection_identity(config, pinned), "group": config.group}
    table = cached_table(
        f"documents/{hash_settings(key)}", _CACHE_SCHEMA, lambda: _document_table(_read_uncached(config, pinned))
    )
    return [Document(row["id"], tuple(row["fields"]), row["group"]) for row in table.to_pylist()]


def describe_empty_documents(documents: Sequence[Document], config: DatasetConfig) -> str:
    """Return a sentence about the documents without text; empty if every document has text."""
    empty = [document for document in documents if not any(document.fields)]
    if not empty:
        return ""
    num_documents = counted(len(documents), "document")
    fields = ", ".join(config.fields)
    return f"{config.name}: {len(empty):,} of {num_documents} have no text in {fields}; the first is {empty[0].id}"


def _document_table(documents: Sequence[Document]) -> pa.Table:
    return pa.Table.from_pylist([vars(document) for document in documents], _CACHE_SCHEMA)


def find_only_split(config: DatasetConfig, pinned: Pinned) -> str:
    """Return the name of a dataset's only split.

    Raises BadInput if the dataset cannot be read, or has several splits.
    """
    import datasets

    if not pinned.location:
        return "train"  # the name that `datasets` gives to local files

    def read_names() -> list[str]:
        names = datasets.get_dataset_split_names(
            pinned.location, config.config or None, data_files=list(config.files) or None, revision=pinned.revision
        )
        return list(map(str, names))

    with reading(pinned.files):
        splits = _call_reader(config, pinned, read_names)
    if len(splits) != 1:
        raise BadInput(f"dataset {config.name} has several splits: give dataset.split=... Splits: {', '.join(splits)}")
    return splits[0]


def _read_uncached(config: DatasetConfig, pinned: Pinned) -> list[Document]:
    """Read and select documents without the cache. Raises BadInput if the dataset cannot be read or has no text."""
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # it would log errors that rbptrack reports itself
    default_seconds = datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN
    try:
        if pinned.revision is None:
            datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = _SHUTDOWN_SECONDS
        documents = _call_reader(config, pinned, lambda: _make_documents(config, _read_selected_rows(config, pinned)))
    finally:
        datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = default_seconds
    if not any(any(document.fields) for document in documents):
        condition = f"; where={dict(config.where)}" if config.where else ""
        raise BadInput(
            f"dataset {config.name} has no text: none of {counted(len(documents), 'document')} has text in "
            f"{', '.join(config.fields)}{condition}"
        )
    return documents


def _call_reader(config: DatasetConfig, pinned: Pinned, read: Callable[[], T]) -> T:
    """Call a function that uses `datasets`, and return its result. Raises BadInput if the data cannot be read."""
    try:
        if pinned.revision is None:
            return read()
        return hub.call_hub("dataset", pinned.location, config.revision, read)
    except RbptrackError:
        raise
    except Exception as error:  # `datasets` and its dependencies raise many types for damaged files
        source = pinned.location or ", ".join(str(file.path) for file in pinned.files[:3])
        reason = _reading_fault(error)
        raise BadInput(f"dataset {config.name} cannot be read from {source}: {reason}") from error


def _reading_fault(error: Exception) -> str:
    """Explain in one line why a dataset cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text ({first_line(error)}); convert it, for example with iconv -f latin1 -t utf-8"
    if isinstance(error, FileNotFoundError):
        return f"{error.filename or 'a file'} is gone: it was there when the command began"
    if isinstance(error, zipfile.BadZipFile | zlib.error | lzma.LZMAError | EOFError):
        return f"it is damaged or not complete ({first_line(error) or 'its end is missing'}): restore it from a copy"
    return first_line(error) or type(error).__name__


def _make_documents(config: DatasetConfig, selected_rows: Iterable[Row]) -> list[Document]:
    """Make a document from each row. Raises BadInput if `dataset.group` names a field that no row has."""
    documents: list[Document] = []
    some_have_group = False
    for number, row in enumerate(selected_rows):
        place = str(row.get(rows.ID_KEY, number))
        document_id = row.get(config.id_field) if config.id_field else place
        if document_id is None:
            raise BadInput(f"dataset.id_field={config.id_field}: row {place} of {config.name} does not have this field")
        group = ""
        if config.group:
            value = _field_value(row, config.group)
            has_group = value not in (None, "")
            some_have_group = some_have_group or has_group
            # A document without a group is a group of its own.
            group = str(value) if has_group else f"document {number} (no {config.group})"
        documents.append(Document(str(document_id), _field_texts(row, config), group))
    if config.group and documents and not some_have_group:
        raise BadInput(f"dataset.group={config.group}: no document of {config.name} has this field")
    return documents


def _read_selected_rows(config: DatasetConfig, pinned: Pinned) -> Iterable[Row]:
    """Return the rows that a config selects.

    The first `dataset.head` rows are filtered, and `dataset.documents` of the remaining ones are drawn with the seed.
    """
    import datasets

    draws_from_all_rows = config.sampling is Sampling.shuffle and bool(config.documents) and not config.head
    if not pinned.location:
        for file in pinned.files:
            check_file_is_whole(file.path)
        return _rows_of_files([str(file.path) for file in pinned.files], {}, config, pinned, draw=draws_from_all_rows)
    location, revision = _reachable_location(config, pinned)
    arguments = {
        "path": location,
        "name": config.config or None,
        "data_files": list(config.files) or None,
        "revision": revision,
        "cache_dir": str(writable_folder(Path(datasets.config.HF_DATASETS_CACHE))),
    }
    builder = datasets.load_dataset_builder(**arguments)
    if revision is None:  # of a repository online, `datasets` checks that the files are its own
        names = split_names(builder, config.split, location)
        if pinned.revision is None:
            check_listed(names, [file.name for file in pinned.files], location)
    files, csv_options = _readable_files(builder, config.split)
    if files:
        return _rows_of_files(files, csv_options, config, pinned, draw=draws_from_all_rows)
    return _select_rows(_open_with_datasets(builder, arguments, config, streaming=not draws_from_all_rows), config)


def _rows_of_files(
    files: Sequence[str], csv_options: dict[str, Any], config: DatasetConfig, pinned: Pinned, *, draw: bool
) -> Iterable[Row]:
    """Return the rows of files that a config selects. If `draw` is true, they are drawn at random from all rows."""
    import datasets

    columns = _named_columns(config)
    for file in files if pinned.revision is None else files[:1]:  # a repository may have thousands of files
        _check_fields(rows.find_columns(file, columns, csv_options), columns, config)
    if draw:
        if pinned.revision is not None:  # downloaded first, because the files are read twice
            files = datasets.DownloadManager().download(files)
        return _draw_from_all_rows(lambda: rows.read_rows(files, columns, csv_options), config)
    arguments = {"files": list(files), "columns": tuple(columns), "csv_options": csv_options}
    return _select_rows(datasets.IterableDataset.from_generator(rows.read_rows, gen_kwargs=arguments), config)


def _readable_files(builder: Any, split: str) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the files of a split if `read_rows` can read them, and the CSV options that README.md may set.

    No file is returned if `datasets` must read the split, because its files have another format or are in archives.
    """
    from datasets.packaged_modules.csv.csv import Csv
    from datasets.packaged_modules.json.json import Json

    files = (builder.config.data_files or {}).get(split) or []
    if not all(map(has_known_ending, files)):
        return [], {}
    if isinstance(builder, Csv):
        options = _csv_options(builder.config.pd_read_csv_kwargs)
        return ([], {}) if options is None else (files, options)
    if isinstance(builder, Json) and not builder.config.field:
        return files, {}
    return [], {}


def _csv_options(pandas_options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of `read_rows` that follow from pandas' options in a README.md. Return None if none follow."""
    from datasets.packaged_modules.csv.csv import CsvConfig

    defaults = CsvConfig().pd_read_csv_kwargs
    changed = {name: value for name, value in pandas_options.items() if value != defaults.get(name)}
    options = {name: changed.pop(name) for name in _CSV_OPTIONS if name in changed}
    separator = changed.pop("sep", "")
    header = changed.pop("header", "infer")
    has_names_twice = header == 0 and "names" in options
    has_no_names = header is None and "names" not in options
    if has_names_twice or has_no_names or changed.keys() - _OPTIONS_OF_TYPES:
        return None
    return options | ({"separator": separator} if separator else {})


def _reachable_location(config: DatasetConfig, pinned: Pinned) -> tuple[str, str | None]:
    """Return the location and the revision from which `datasets` can load a dataset.

    If the Hub cannot be reached, they are the folder of the Hub's cache and None. Raises NotCached if there is no such
    folder.
    """
    if pinned.revision is None or hub.is_online():
        return pinned.location, pinned.revision
    folder = hub.find_snapshot("dataset", pinned.location, pinned.revision)
    if folder is None:
        missing = hub.MissingRepository("dataset", pinned.location, config.revision, needed_files(config))
        raise hub.NotCached([missing])
    return str(folder), None


def _open_with_datasets(builder: Any, arguments: dict[str, Any], config: DatasetConfig, *, streaming: bool) -> Any:
    """Open a split with `datasets`, streamed or whole. Of Parquet files, only the named columns are read.

    Raises BadInput if the split does not have a column that the config names.
    """
    import datasets
    from datasets.packaged_modules.parquet.parquet import Parquet

    columns = _named_columns(config)
    stream = builder.as_streaming_dataset(split=config.split)
    _check_fields(list(stream.column_names or next(iter(stream), {})), columns, config)
    if streaming and not isinstance(builder, Parquet):
        return stream
    parquet_columns = {"columns": columns} if isinstance(builder, Parquet) else {}
    return datasets.load_dataset(split=config.split, streaming=streaming, **arguments, **parquet_columns)


def _select_rows(dataset: Any, config: DatasetConfig) -> Iterable[Row]:
    """Return the rows that a config selects from a dataset of `datasets`, streamed or whole."""
    passes = partial(_passes_filters, config)
    if config.head:
        passing = [row for row in islice(dataset, config.head) if passes(row)]
        if not config.documents:
            return passing
        order = np.random.default_rng(config.seed).permutation(len(passing))
        return [passing[index] for index in order[: config.documents]]
    if config.where or config.longer_than:
        dataset = dataset.filter(passes)
    if config.documents and config.sampling is Sampling.stream:
        dataset = dataset.shuffle(seed=config.seed, buffer_size=_SHUFFLE_BUFFER)
    elif config.documents:
        dataset = dataset.shuffle(seed=config.seed)
    return islice(dataset, config.documents or None)


def _draw_from_all_rows(read: Callable[[], Iterable[Row]], config: DatasetConfig) -> list[Row]:
    """Draw rows at random, with the seed, from all rows that pass the filters.

    `datasets` would draw these rows, too. They are read twice: first to count them, and then to keep the drawn ones.
    Only the drawn rows are in memory.
    """
    passes = partial(_passes_filters, config)
    count = sum(1 for row in read() if passes(row))
    order = np.random.default_rng(config.seed).permutation(count)[: config.documents].tolist()
    drawn = set(order)
    passing = (row for row in read() if passes(row))
    row_by_number = {number: row for number, row in enumerate(passing) if number in drawn}
    return [row_by_number[number] for number in order]


def _named_columns(config: DatasetConfig) -> list[str]:
    """Return the columns that a config names for texts, ids, filters and groups, without repetition."""
    names = [*config.fields]
    if config.id_field:
        names.append(config.id_field)
    names += [key.split(".")[0] for key in config.where]
    if config.group:
        names.append(config.group.split(".")[0])
    return list(dict.fromkeys(names))


def _check_fields(columns: Sequence[str], named_columns: Sequence[str], config: DatasetConfig) -> None:
    missing = [name for name in named_columns if name not in columns]
    if missing:
        fields = ", ".join(name if name == name.strip() else repr(name) for name in columns)
        remedy = ". Choose with dataset.fields=NAME" if set(missing) & set(config.fields) else ""
        raise BadInput(f"dataset {config.name} has no field {', '.join(missing)}. Fields: {fields}{remedy}")


def _passes_filters(config: DatasetConfig, row: Row) -> bool:
    """Return whether a row passes the filters `longer_than` and `where` of a config."""
    if config.longer_than and len(config.separator.join(_field_texts(row, config))) <= config.longer_than:
        return False
    return all(_has_value(_field_value(row, key), value) for key, value in config.where.items())


def _has_value(value: object, typed: str) -> bool:
    """Return whether a value of a row is the one that a user typed: `true` is True, and `1.10` is 1.1.

    A missing value is not equal to any text.
    """
    if value is None:
        return False
    if isinstance(value, bool):
        return typed.lower() == str(value).lower()
    if isinstance(value, float):
        with suppress(ValueError):
            return float(typed) == value
    return str(value) == typed


def _field_value(row: Row, key: str) -> object:
    """Return the value of a field, or of a part of a field (`meta.site`). Return None if the row does not have it.

    Raises BadInput if the key names a part of a field that is not an object.
    """
    value: Any = row
    parent: list[str] = []
    for part in key.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            field = ".".join(parent)
            raise BadInput(f"{key}: the field {field} holds {value!r:.60}, which has no parts; give {field}")
        value = value.get(part)
        parent.append(part)
    return value


def _field_texts(row: Row, config: DatasetConfig) -> tuple[str, ...]:
    return tuple(_field_text(row.get(name), name, config) for name in config.fields)


def _field_text(value: object, field: str, config: DatasetConfig) -> str:
    """Return a field's value as text. A missing value is an empty text. Raises BadInput if the value is not text."""
    if value is None:
        return ""
    if isinstance(value, str):
        # UTF-16 without a byte order mark can be decoded as UTF-8. There is then a NUL between the letters.
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
