"""Pin models and datasets: a Hub repository to its commit, local files to the hash of their content."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from rbptrack.base.errors import BadInput
from rbptrack.base.files import check_regular_file
from rbptrack.base.names import natural_key
from rbptrack.config.paths import user_path
from rbptrack.config.schema import DatasetConfig, ModelConfig
from rbptrack.sources import dataset_files, hub
from rbptrack.sources.hub import Kind
from rbptrack.sources.manifest import ManifestFile, content_hash, pin_file
from rbptrack.sources.model_files import model_file_names, tokenizer_file_names

_COMPRESSIBLE = {".txt": "text", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv"}
_FORMAT_BY_ENDING = {".parquet": "parquet"} | {
    ending + compression: name for ending, name in _COMPRESSIBLE.items() for compression in ("", ".gz", ".zst")
}

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Pinned:
    """A pinned model or dataset.

    Attributes:
        location: the Hub id or folder to load from; empty for single files.
        revision: the Hub commit to load; None for local files.
        identity: `id@commit`, or a hash of the files. It identifies the content on every machine.
        files: the local files that are read, in order; empty for a repository.
        requested: the revision as the user wrote it, such as `main`, for messages; empty for local files.
        gguf: the name of the GGUF file to load; empty for other models.

    """

    location: str
    revision: str | None
    identity: str
    files: tuple[ManifestFile, ...] = ()
    requested: str = ""
    gguf: str = ""

    def path(self, name: str) -> Path | None:
        """Return the path of a local file by its name, or None if the file is not among those that are read."""
        return next((file.path for file in self.files if file.name == name), None)


def pin_model(config: ModelConfig) -> Pinned:
    """Pin the weights of a model: its repository, its folder, or one GGUF file.

    Raises BadInput if the folder or one of its files does not exist, or if the Hub does not know the repository or
    revision.
    """
    if not config.gguf:
        if not config.path:
            return _pin_repository("model", config.repo, config.revision)
        folder = _existing_folder("model", config.path)
        names = model_file_names(folder, pickles=config.pickles, own_tokenizer=not config.tokenizer)
        return _pin_folder(folder, names, "model.path")
    if config.path:
        path = user_path(config.path).absolute() / config.gguf
        return replace(_pin_folder(path.parent, [path.name], "model.gguf"), gguf=path.name)
    pinned = _pin_repository("model", config.repo, config.revision, (config.gguf, "*.json"))
    return replace(pinned, identity=f"{pinned.identity}/{config.gguf}", gguf=config.gguf)


def pin_tokenizer(name: str) -> Pinned:
    """Pin a tokenizer: the repository or folder that `model.tokenizer` names.

    Raises BadInput if the folder holds no tokenizer, or the Hub does not know the repository.
    """
    folder = user_path(name).absolute()
    if folder.is_dir():
        return _pin_folder(folder, tokenizer_file_names(folder), "model.tokenizer")
    return _pin_repository("model", name, "main")


def pin_dataset(config: DatasetConfig) -> Pinned:
    """Pin a dataset: a repository, a folder, or single files.

    If all data files of a folder are text files, the files are pinned instead of the folder, and each is one document.
    A folder with a README.md is pinned as a folder, because a README.md can tell `datasets` how to read the files.

    Raises BadInput if a folder or file does not exist or cannot be read, or if the Hub does not know the repository.
    """
    if config.repo:
        return _pin_repository("dataset", config.repo, config.revision, needed_files(config))
    if config.files:
        return _pin_files(_matching_files(config.files))
    folder = _existing_folder("dataset", config.path)
    names = dataset_files.visible_names(folder)
    data_files = [name for name in names if has_known_ending(name)]
    only_texts = bool(data_files) and all(file_format(name) == "text" for name in data_files)
    if only_texts and dataset_files.README not in names:
        return _pin_files([folder / name for name in sorted(data_files, key=natural_key)])
    return _pin_folder(folder, dataset_files.read_names(folder, config.config), "dataset.path")


def needed_files(config: DatasetConfig) -> tuple[str, ...]:
    """Return patterns of the files of a Hub dataset that are read. Return no pattern if all files may be read.

    The files of a configuration are expected in a folder with the configuration's name, as is usual on the Hub.
    README.md is always read, because it assigns files to splits.
    """
    if config.files:
        return ("README.md", *config.files)
    return ("README.md", f"{config.config}/*") if config.config else ()


def _pin_folder(folder: Path, names: Iterable[str], option: str) -> Pinned:
    files = tuple(pin_file(folder / name, option, name) for name in names)
    return Pinned(str(folder), None, content_hash(files), files)


def _pin_repository(kind: Kind, repo: str, revision: str, patterns: tuple[str, ...] = ()) -> Pinned:
    commit = hub.find_commit(kind, repo, revision, patterns)
    return Pinned(repo, commit, f"{repo}@{commit}", requested=revision)


def _existing_folder(kind: Kind, path: str) -> Path:
    folder = user_path(path).absolute()
    if not folder.is_dir():
        raise BadInput(f"{kind}.path={path}: there is no such folder. Give the path of a folder that exists")
    return folder


def _pin_files(paths: Sequence[Path]) -> Pinned:
    files = tuple(pin_file(path, "dataset.files") for path in paths)
    return Pinned("", None, content_hash(files), files)


def _matching_files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that match some patterns, without repetition, in natural order for each pattern.

    Raises BadInput if no file matches a pattern, or if a file is not a regular file or has an unknown format.
    """
    matching: dict[Path, None] = {}
    for pattern in patterns:
        names = [str(user_path(pattern))]
        if not Path(names[0]).is_file():  # the name of a file may look like a pattern: notes [2].txt
            names = sorted(glob.glob(names[0], recursive=True), key=natural_key)  # noqa: PTH207
        files = [Path(name).absolute() for name in names if not Path(name).is_dir()]
        if not files:
            raise BadInput(f"dataset.files: no file matches {pattern}")
        matching |= dict.fromkeys(files)
    for path in matching:
        check_regular_file(path, "dataset.files")
        file_format(path)
    return list(matching)


def has_known_ending(file: Path | str) -> bool:
    """Return whether a file's name has the ending of a data file, such as `.jsonl.zst`. Names of archives do not."""
    return str(file).lower().endswith(tuple(_FORMAT_BY_ENDING))


def file_ending(file: Path | str) -> str:
    """Return the ending of a data file's name, such as `.jsonl.zst`. Raises BadInput if the ending is unknown."""
    name = str(file).rpartition("/")[2].lower()
    for ending in sorted(_FORMAT_BY_ENDING, key=len, reverse=True):
        if name.endswith(ending):
            return ending
    endings = ", ".join([*_COMPRESSIBLE, ".parquet"])
    raise BadInput(
        f"dataset.files: {file} cannot be read. Endings that can be read: {endings}, and all but .parquet also "
        "followed by .gz or .zst"
    )


def file_format(file: Path | str) -> str:
    """Return the format of a data file by the ending of its name: `text`, `json`, `csv` or `parquet`.

    Raises BadInput if the ending is unknown.
    """
    return _FORMAT_BY_ENDING[file_ending(file)]


def check_file_is_whole(path: Path) -> None:
    """Check that a data file is not empty, and that a .zst file is complete. Readers would not notice either fault.

    Raises BadInput if the file is empty, damaged or not complete.
    """
    if not path.stat().st_size:
        raise BadInput(f"dataset.files: {path} is empty")
    if path.suffix.lower() != ".zst":
        return
    try:
        is_complete = _last_frame_is_complete(path)
    except zstandard.ZstdError as error:
        raise BadInput(f"dataset.files: {path} is damaged: restore it from a copy") from error
    if not is_complete:
        raise BadInput(f"dataset.files: {path} is not complete, its end is missing: restore it from a copy")


def _last_frame_is_complete(path: Path) -> bool:
    """Decompress a .zst file, and return whether its last frame is complete."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            while data:
                if decompressor.eof:  # the file continues with another frame
                    decompressor = zstandard.ZstdDecompressor().decompressobj()
                decompressor.decompress(data)
                data = decompressor.unused_data
    return decompressor.eof
