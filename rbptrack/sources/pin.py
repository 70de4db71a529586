"""Where a model or dataset comes from: a hub repository pinned to a commit, or local files pinned to their hash."""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.user_paths import user_path
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import DatasetConfig, ModelConfig
from rbptrack.sources import hub
from rbptrack.sources.fingerprint import files_hash, folder_hash
from rbptrack.sources.folder import text_cut
from rbptrack.sources.hub import Kind

FILE_KINDS = {
    ".txt": "text",
    ".jsonl": "json",
    ".jsonl.zst": "json",
    ".jsonl.gz": "json",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
"""Which files `dataset.files` may name, and the loader of `datasets` that reads each."""

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """A pinned model or dataset.

    Attributes:
        location: what the loading library is given: a hub id or a folder; empty for files.
        revision: the hub commit to load; None for local files.
        identity: what makes it the same thing on another machine: `id@commit`, or a hash of the files.
        files: the local files, in natural order; empty for a repository or folder.
        requested: the revision as the user gave it, such as `main`, for messages; empty for local files.
        gguf: the one file of the model that is loaded, where that is GGUF.
        cut: what a document of a folder's text files is (`line`); empty for whole files and rows.

    """

    location: str
    revision: str | None
    identity: str
    files: tuple[Path, ...] = ()
    requested: str = ""
    gguf: str = ""
    cut: str = ""


def of_model(config: ModelConfig) -> Source:
    """Return the pinned weights of a model; of a GGUF file in a folder, that file's alone."""
    if not config.gguf:
        return resolve("model", repo=config.repo, path=config.path, revision=config.revision)
    if config.path:
        file = user_path(config.path).absolute() / config.gguf
        if not file.is_file():
            raise BadInput(f"model.gguf={config.gguf}: no such file in model.path={config.path}")
        return Source(str(file.parent), None, f"sha256:{files_hash([file])}", gguf=file.name)
    source = resolve("model", repo=config.repo, path="", revision=config.revision)
    return replace(source, identity=f"{source.identity}/{config.gguf}", gguf=config.gguf)


def of_tokenizer(config: ModelConfig, model: Source) -> Source:
    """Return the pinned tokenizer: the model's own, or the repository or folder that `model.tokenizer` names."""
    if not config.tokenizer:
        return model
    local = user_path(config.tokenizer).is_dir()
    return resolve(
        "model", repo="" if local else config.tokenizer, path=config.tokenizer if local else "", revision="main"
    )


def chat_file(path: str) -> str:
    """Read the chat template that `model.chat_template` names; BadInput where it cannot be read."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"model.chat_template={path} cannot be read: {first_line(error)}") from error


def of_dataset(config: DatasetConfig) -> Source:
    """Return the pinned dataset."""
    if config.files and not config.repo:
        files = _matching(config.files)
        return Source("", None, f"sha256:{files_hash(files)}", tuple(files))
    source = resolve("dataset", repo=config.repo, path=config.path, revision=config.revision)
    if not config.path:
        return source
    return replace(source, cut=text_cut(Path(source.location), name=config.name, config=config.config))


def resolve(kind: Kind, *, repo: str, path: str, revision: str) -> Source:
    """Pin a repository to its commit, or a folder to the hash of its files.

    Raises:
        BadInput: the folder does not exist, or the hub does not know (or let us see) the repository or revision.

    """
    if path:
        folder = user_path(path).absolute()
        if not folder.is_dir():
            raise BadInput(f"{kind}.path={path}: no such folder")
        return Source(str(folder), None, f"sha256:{folder_hash(folder)}")
    commit = hub.commit(kind, repo, revision)
    return Source(repo, commit, f"{repo}@{commit}", requested=revision)


def file_kind(path: Path) -> str:
    """Return the ending of a file name that says how it is read, such as `.jsonl.zst`; BadInput without a
    reader.
    """
    for ending in sorted(FILE_KINDS, key=len, reverse=True):
        if path.name.lower().endswith(ending):
            return ending
    raise BadInput(f"dataset.files: {path} cannot be read. Kinds of file: {', '.join(FILE_KINDS)}")


def check_file(path: Path) -> None:
    """Refuse a data file that is empty, cut off in its compressed stream, or of another encoding.

    Readers would see fewer rows, or none, or a NUL between any two letters.

    Raises:
        BadInput: the file is empty, or it is not what its name says, or it is damaged.

    """
    if not path.stat().st_size:
        raise BadInput(f"dataset.files: {path} is empty")
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                while file.read(_CHUNK_BYTES):
                    pass
        elif path.suffix == ".zst":
            _check_zstandard(path)
        elif path.suffix == ".txt":
            with path.open("rb") as text:
                binary = any(b"\0" in chunk for chunk in iter(lambda: text.read(_CHUNK_BYTES), b""))
            if binary:
                raise BadInput(
                    f"dataset.files: {path} holds NUL bytes: it is not UTF-8 text; "
                    "convert it, for example with iconv -f utf-16 -t utf-8"
                )
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise BadInput(f"dataset.files: {path} is damaged or not complete: {first_line(error)}") from error


def _check_zstandard(path: Path) -> None:
    """Read every frame; EOFError where the last one is cut off, which zstandard's readers do not say."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            while data:
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                frame.decompress(data)
                data = frame.unused_data
    if not frame.eof:
        raise EOFError("the compressed stream ends before its end marker")


def _matching(patterns: Sequence[str]) -> list[Path]:
    matching: dict[Path, None] = {}
    for pattern in patterns:
        names = sorted(glob.glob(str(user_path(pattern)), recursive=True), key=size_key)  # noqa: PTH207
        files = [Path(name).absolute() for name in names if Path(name).is_file()]
        if not files:
            raise BadInput(f"dataset.files: no file matches {pattern}")
        matching |= dict.fromkeys(files)
    for path in matching:
        file_kind(path)
    return list(matching)
