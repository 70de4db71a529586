"""Where a model or dataset comes from: a hub repository pinned to a commit, or local files pinned to their hash."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from rbptrack.base.errors import BadInput
from rbptrack.base.files import regular_file
from rbptrack.config.paths import user_path
from rbptrack.config.patterns import natural_key
from rbptrack.config.schema import DatasetConfig, ModelConfig
from rbptrack.sources import hub
from rbptrack.sources.fingerprint import files_hash, folder_hash, visible_files
from rbptrack.sources.hub import Kind

_KINDS = {".txt": "text", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv"}
FILE_KINDS = {".parquet": "parquet"} | {
    ending + packed: kind for ending, kind in _KINDS.items() for packed in ("", ".gz", ".zst")
}
"""The endings of the files that `dataset.files` may name, and the kind of each file."""

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Pinned:
    """A pinned model or dataset.

    Attributes:
        location: what the loading library is given: a hub id or a folder; empty for files.
        revision: the hub commit to load; None for local files.
        identity: identifies the content on every machine: `id@commit`, or a hash of the files.
        files: the local files, in natural order; empty for a repository or folder.
        requested: the revision as the user gave it, such as `main`, for messages; empty for local files.
        gguf: the one file of the model that is loaded, where that is GGUF.

    """

    location: str
    revision: str | None
    identity: str
    files: tuple[Path, ...] = ()
    requested: str = ""
    gguf: str = ""


def of_model(config: ModelConfig) -> Pinned:
    """The pinned weights of a model; of a GGUF file in a folder, that file's alone."""
    if not config.gguf:
        return _resolve("model", repo=config.repo, path=config.path, revision=config.revision)
    if config.path:
        file = regular_file(user_path(config.path).absolute() / config.gguf, "model.gguf")
        return Pinned(str(file.parent), None, f"sha256:{files_hash([file])}", gguf=file.name)
    patterns = (config.gguf, "*.json")
    source = _resolve("model", repo=config.repo, path="", revision=config.revision, patterns=patterns)
    return replace(source, identity=f"{source.identity}/{config.gguf}", gguf=config.gguf)


def of_tokenizer(config: ModelConfig, model: Pinned) -> Pinned:
    """The pinned tokenizer: the model's own, or the repository or folder that `model.tokenizer` names."""
    if not config.tokenizer:
        return model
    if user_path(config.tokenizer).is_dir():
        return _resolve("model", repo="", path=config.tokenizer, revision="")
    return _resolve("model", repo=config.tokenizer, path="", revision="main")


def of_dataset(config: DatasetConfig) -> Pinned:
    """The pinned dataset; where a folder's data are text files, it stands for these files, a document each.

    A README.md may say how a dataset's files are read, which `datasets` knows.
    """
    if config.files and not config.repo:
        return _of_files(_matching(config.files))
    if config.path and not config.repo:
        folder = _folder("dataset", config.path)
        files = visible_files(folder)
        data = [path for path in files if path.name.lower().endswith(tuple(FILE_KINDS))]
        if data and all(FILE_KINDS[file_kind(path)] == "text" for path in data) and folder / "README.md" not in files:
            return _of_files(sorted(data, key=lambda path: natural_key(str(path))))
    patterns = needed_files(config)
    return _resolve("dataset", repo=config.repo, path=config.path, revision=config.revision, patterns=patterns)


def needed_files(config: DatasetConfig) -> tuple[str, ...]:
    """Return patterns of the files of a hub dataset that are read; empty for all files.

    The files of a configuration lie in a folder of its name, as is usual on the hub. README.md says which split they
    belong to.
    """
    if config.files:
        return ("README.md", *config.files)
    return ("README.md", f"{config.config}/*") if config.config else ()


def _resolve(kind: Kind, *, repo: str, path: str, revision: str, patterns: tuple[str, ...] = ()) -> Pinned:
    """Pin a repository to its commit, or a folder to the hash of its files.

    Args:
        kind: of the repository.
        repo: its id.
        path: of the folder; empty for a repository.
        revision: of the repository.
        patterns: of the files of the repository that are needed; empty for all.

    Raises:
        BadInput: the folder does not exist, or the hub does not know (or let us see) the repository or revision.

    """
    if path:
        folder = _folder(kind, path)
        return Pinned(str(folder), None, f"sha256:{folder_hash(folder)}")
    commit = hub.commit(kind, repo, revision, patterns)
    return Pinned(repo, commit, f"{repo}@{commit}", requested=revision)


def _folder(kind: Kind, path: str) -> Path:
    folder = user_path(path).absolute()
    if not folder.is_dir():
        raise BadInput(f"{kind}.path={path}: no such folder")
    return folder


def _of_files(files: Sequence[Path]) -> Pinned:
    return Pinned("", None, f"sha256:{files_hash(files)}", tuple(files))


def _matching(patterns: Sequence[str]) -> list[Path]:
    """The files that match, each once, in natural order by pattern; BadInput if one cannot be read."""
    matching: dict[Path, None] = {}
    for pattern in patterns:
        names = [str(user_path(pattern))]
        if not Path(names[0]).is_file():  # a name may hold the signs of a pattern: notes [2].txt
            names = sorted(glob.glob(names[0], recursive=True), key=natural_key)  # noqa: PTH207
        files = [Path(name).absolute() for name in names if not Path(name).is_dir()]
        if not files:
            raise BadInput(f"dataset.files: no file matches {pattern}")
        matching |= dict.fromkeys(files)
    for path in matching:
        regular_file(path, "dataset.files")
        file_kind(path)
    return list(matching)


def file_kind(file: Path | str) -> str:
    """Return the ending of a file's name that says how it is read, such as `.jsonl.zst`. BadInput for others."""
    name = str(file).rpartition("/")[2].lower()
    for ending in sorted(FILE_KINDS, key=len, reverse=True):
        if name.endswith(ending):
            return ending
    endings = ", ".join([*_KINDS, ".parquet"])
    raise BadInput(f"dataset.files: {file} cannot be read. Kinds of file: {endings}; all but .parquet also .gz or .zst")


def check_file(path: Path) -> None:
    """Refuse a file that the readers would take as it is: an empty one, or a .zst whose last frame is cut off.

    Raises:
        BadInput: the file is empty, damaged or not complete.

    """
    if not path.stat().st_size:
        raise BadInput(f"dataset.files: {path} is empty")
    if path.suffix.lower() != ".zst":
        return
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                while data:
                    if frame.eof:
                        frame = zstandard.ZstdDecompressor().decompressobj()
                    frame.decompress(data)
                    data = frame.unused_data
    except zstandard.ZstdError as error:
        raise BadInput(f"dataset.files: {path} is damaged: {error}") from error
    if not frame.eof:
        raise BadInput(f"dataset.files: {path} is not complete: its last frame is cut off")
