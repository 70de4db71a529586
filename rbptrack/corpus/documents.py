"""Make documents from the selected rows of a dataset, and keep those of the Hub in a cache."""

from __future__ import annotations

import hashlib
import logging
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.base.formatting import counted
from rbptrack.base.tables import Row
from rbptrack.config.schema import DatasetConfig
from rbptrack.corpus import rows
from rbptrack.corpus.fields import field_texts, field_value
from rbptrack.corpus.selection import read_selected_rows
from rbptrack.sources import hub
from rbptrack.sources.cache import cached_table, hash_settings
from rbptrack.sources.manifest import reading
from rbptrack.sources.pin import Pinned

_CACHE_SCHEMA = pa.schema({"id": pa.string(), "fields": pa.list_(pa.string()), "group": pa.string()})
# The time that `datasets` waits for its threads to end after local files were read. Its default of 5 s is too long.
_SHUTDOWN_SECONDS = 0.2

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

    def make_table() -> pa.Table:
        documents = _read_uncached(config, pinned)
        return pa.Table.from_pylist([vars(document) for document in documents], _CACHE_SCHEMA)

    key = {**selection_identity(config, pinned), "group": config.group}
    table = cached_table(f"documents/{hash_settings(key)}", _CACHE_SCHEMA, make_table)
    return [Document(row["id"], tuple(row["fields"]), row["group"]) for row in table.to_pylist()]


def describe_empty_documents(documents: Sequence[Document], config: DatasetConfig) -> str:
    """Return a sentence about the documents without text; empty if every document has text."""
    empty = [document for document in documents if not any(document.fields)]
    if not empty:
        return ""
    num_documents = counted(len(documents), "document")
    fields = ", ".join(config.fields)
    return f"{config.name}: {len(empty):,} of {num_documents} have no text in {fields}; the first is {empty[0].id}"


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
        documents = _call_reader(config, pinned, lambda: _make_documents(config, read_selected_rows(config, pinned)))
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
            value = field_value(row, config.group)
            has_group = value not in (None, "")
            some_have_group = some_have_group or has_group
            # A document without a group is a group of its own.
            group = str(value) if has_group else f"document {number} (no {config.group})"
        documents.append(Document(str(document_id), field_texts(row, config), group))
    if config.group and documents and not some_have_group:
        raise BadInput(f"dataset.group={config.group}: no document of {config.name} has this field")
    return documents
