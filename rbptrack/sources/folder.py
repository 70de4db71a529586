"""A local folder of data: which of its files `datasets` reads, and how it cuts their texts."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

from rbptrack.base.errors import shortened
from rbptrack.base.words import counted
from rbptrack.console.output import say

_KINDS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow")
_ABOUT = ("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_SHOWN = 5  # names of files in a sentence


def text_cut(folder: Path, *, name: str, config: str) -> str:
    """Tell how `datasets` cuts a folder's text files (`line`); empty where it reads no text files, or whole ones.

    `datasets` reads the most frequent kind of file; a sentence names the data files of other kinds.

    Args:
        folder: absolute.
        name: the dataset's, for the sentence.
        config: the name of a configuration in the folder's README.md; empty for the default.

    """
    files = {path: kind for path in sorted(folder.rglob("*")) if (kind := _kind(path))}
    kinds = Counter(files.values())
    if len(kinds) < 2 and ".txt" not in kinds:
        return ""
    import datasets

    loggers = [logging.getLogger(module) for module in ("datasets", "huggingface_hub")]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        builder = datasets.load_dataset_builder(str(folder), config or None)
    except Exception:  # reading the texts will say why, in a sentence
        return ""
    read = {Path(path) for paths in (builder.config.data_files or {}).values() for path in paths}
    left_out = [path.relative_to(folder).as_posix() for path in files if path.resolve() not in read]
    if left_out:
        kind = Counter(path.suffix for path in read).most_common(1)[0][0]
        say(
            f"dataset {name}: {folder} holds several kinds of file; only {counted(len(read), f'{kind} file')} can be "
            f"read together. Left out: {shortened(left_out, most=_SHOWN)}. 'dataset.files=[...]' reads several kinds"
        )
    cut = str(getattr(builder.config, "sample_by", ""))
    return "" if cut == "document" else cut


def _kind(path: Path) -> str:
    """Return the ending by which `datasets` would read a file; empty for what it ignores."""
    if path.name.startswith(".") or path.name in _ABOUT or not path.is_file():
        return ""
    return next((f".{ending}" for ending in path.name.lower().split(".")[1:] if f".{ending}" in _KINDS), "")
