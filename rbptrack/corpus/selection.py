"""Read the rows of a dataset that a config selects, from files or with `datasets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.base.errors import BadInput
from rbptrack.base.tables import Row
from rbptrack.config.schema import DatasetConfig, Sampling
from rbptrack.corpus import rows
from rbptrack.corpus.fields import check_fields, named_columns, passes_filters
from rbptrack.sources import hub
from rbptrack.sources.cache import writable_folder
from rbptrack.sources.dataset_files import split_names
from rbptrack.sources.pin import Pinned, check_file_is_whole, has_known_ending, needed_files

_SHUFFLE_BUFFER = 10_000  # documents; not configurable, because it decides which documents a seed selects

# Options of pandas in a README.md that say how a CSV file is split, and those that say what types its cells have.
_CSV_OPTIONS = ("names", "encoding", "quotechar", "quoting", "escapechar", "doublequote")
_OPTIONS_OF_TYPES = {"na_values", "keep_default_na", "na_filter", "true_values", "false_values", "thousands", "decimal"}
_OPTIONS_OF_TYPES |= {"float_precision", "date_format", "converters", "engine", "memory_map", "chunksize"}


def read_selected_rows(config: DatasetConfig, pinned: Pinned) -> Iterable[Row]:
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
        unlisted = set(split_names(builder, config.split, location)) - {file.name for file in pinned.files}
        if pinned.revision is None and unlisted:
            raise BadInput(f"{location}/{min(unlisted)} is new since the folder was hashed. Start the command again")
    files, csv_options = _readable_files(builder, config.split)
    if files:
        return _rows_of_files(files, csv_options, config, pinned, draw=draws_from_all_rows)
    return _select_rows(_open_with_datasets(builder, arguments, config, streaming=not draws_from_all_rows), config)


def _rows_of_files(
    files: Sequence[str], csv_options: dict[str, Any], config: DatasetConfig, pinned: Pinned, *, draw: bool
) -> Iterable[Row]:
    """Return the rows of files that a config selects. If `draw` is true, they are drawn at random from all rows."""
    import datasets

    columns = named_columns(config)
    for file in files if pinned.revision is None else files[:1]:  # a repository may have thousands of files
        check_fields(rows.find_columns(file, columns, csv_options), columns, config)
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

    columns = named_columns(config)
    stream = builder.as_streaming_dataset(split=config.split)
    check_fields(list(stream.column_names or next(iter(stream), {})), columns, config)
    if streaming and not isinstance(builder, Parquet):
        return stream
    parquet_columns = {"columns": columns} if isinstance(builder, Parquet) else {}
    return datasets.load_dataset(split=config.split, streaming=streaming, **arguments, **parquet_columns)


def _select_rows(dataset: Any, config: DatasetConfig) -> Iterable[Row]:
    """Return the rows that a config selects from a dataset of `datasets`, streamed or whole."""
    passes = partial(passes_filters, config)
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
    passes = partial(passes_filters, config)
    count = sum(1 for row in read() if passes(row))
    order = np.random.default_rng(config.seed).permutation(count)[: config.documents].tolist()
    drawn = set(order)
    passing = (row for row in read() if passes(row))
    row_by_number = {number: row for number, row in enumerate(passing) if number in drawn}
    return [row_by_number[number] for number in order]
