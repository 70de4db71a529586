"""Find out which files of a dataset's folder are read. The library `datasets` decides it, from names and README.md."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.files import describe_kind
from rbptrack.sources.cache import writable_folder
from rbptrack.sources.manifest import check_inside

README = "README.md"
"""The file in which a dataset can say how its files are read."""

_INFOS = "dataset_infos.json"  # older versions of `datasets` wrote it, newer ones read it
_HIDDEN_README = ".huggingface.yaml"  # `datasets` reads it in addition to README.md
_MAX_FILES = 100_000


def visible_names(folder: Path) -> list[str]:
    """Return the names of a dataset's files, in order, without hidden files and hidden folders such as .git.

    Raises BadInput if the folder cannot be a dataset: it is the home folder or a folder above it, holds more than
    100,000 files, or holds something that `datasets` would silently leave out, such as a link to a folder.
    """
    resolved = folder.resolve()
    home = Path.home().resolve()
    if resolved == home or resolved in home.parents:
        raise BadInput(f"dataset.path={folder} is not a dataset, but holds your home folder: give the dataset's folder")
    if (folder / _HIDDEN_README).exists():
        raise BadInput(f"{folder / _HIDDEN_README} is hidden and would change what is read: write it into {README}")
    names: list[str] = []
    pending = [""]
    while pending:
        parent = pending.pop()
        for entry in list(os.scandir(folder / parent)):
            if entry.name.startswith("."):
                continue
            name = f"{parent}/{entry.name}" if parent else entry.name
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False) and name != README:
                pending.append(name)
            elif path.is_file():  # of a loop of links, `entry.is_file` raises OSError
                names.append(name)
            else:
                raise BadInput(
                    f"dataset.path={folder}: {name} is {describe_kind(path)}, which would be left out. "
                    "Remove it, or name the files: dataset.files=FILES"
                )
        if len(names) > _MAX_FILES:
            raise BadInput(
                f"dataset.path={folder} holds more than {_MAX_FILES:,} files: give the dataset's own folder, or name "
                "the files: dataset.files=FILES"
            )
    return sorted(names)


def read_names(folder: Path, config: str) -> list[str]:
    """Return the names of the files of a dataset's folder that are read for one of its configurations, in order.

    Raises BadInput if `datasets` cannot read the folder, or if README.md names a file outside of it.
    """
    import datasets

    cache = writable_folder(Path(datasets.config.HF_DATASETS_CACHE))
    try:
        builder = datasets.load_dataset_builder(str(folder), config or None, cache_dir=str(cache))
    except Exception as error:  # a README.md can be wrong in many ways
        raise BadInput(f"dataset.path={folder} cannot be read: {first_line(error)}") from error
    names = {name for split in builder.config.data_files or {} for name in split_names(builder, split, str(folder))}
    names |= {name for name in (README, _INFOS) if (folder / name).is_file()}
    return sorted(names)


def split_names(builder: Any, split: str, location: str) -> list[str]:
    """Return the names of a split's files in the folder of a dataset.

    Args:
        builder: the dataset's builder of the library `datasets`.
        split: the name of the split.
        location: the dataset's folder.

    Raises:
        BadInput: README.md names a file outside of the folder, a hidden file, or an address.

    """
    root = f"{Path(location).resolve().as_posix()}/"
    source = f"{location}/{README}"
    names = []
    for file in map(str, (builder.config.data_files or {}).get(split) or ()):
        path = file.rpartition("::")[2]  # an archive is given as zip://member::archive
        name = path.removeprefix(root)
        check_inside(name, source)
        names.append(name)
    return names
