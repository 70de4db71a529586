"""Tests that loaders open exactly the files of a manifest, and that a change of one of them is found."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.sources.manifest import (
    ManifestFile,
    check_inside,
    check_unchanged,
    content_hash,
    linked_folder,
    pin_file,
    reading,
)

HOUR = 3600 * 10**9


@pytest.fixture
def file(tmp_path: Path) -> ManifestFile:
    """Pin a file that was written an hour ago."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"first")
    set_age(path, HOUR)
    return pin_file(path, "dataset.files")


def set_age(path: Path, age_ns: int) -> None:
    written = time.time_ns() - age_ns
    os.utime(path, ns=(written, written))


def test_pin_file_gives_name_size_and_hash(file: ManifestFile) -> None:
    assert (file.name, file.size) == ("a.txt", 5)
    assert file.sha256 == "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"


@pytest.mark.parametrize("kind", ["fifo", "folder", "nothing", "broken link", "device"])
def test_pin_file_refuses_what_is_not_a_regular_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    makers: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "nothing": lambda: None,
        "broken link": lambda: path.symlink_to("/nowhere"),
        "device": lambda: path.symlink_to("/dev/zero"),
    }
    makers[kind]()
    with pytest.raises(BadInput):
        pin_file(path, "model.path")


def test_check_unchanged_accepts_a_file_that_was_only_touched_or_copied(file: ManifestFile) -> None:
    file.path.touch()
    check_unchanged([file])
    copy = file.path.with_suffix(".copy")
    copy.write_bytes(file.path.read_bytes())
    copy.replace(file.path)
    check_unchanged([file])


@pytest.mark.parametrize("change", ["longer", "same size", "same size and time", "replaced", "removed", "fifo", "link"])
def test_check_unchanged_refuses_a_change(change: str, file: ManifestFile, tmp_path: Path) -> None:
    path = file.path
    written = path.stat().st_mtime_ns
    other = tmp_path / "other"
    other.write_bytes(b"other")
    if change == "longer":
        path.write_bytes(b"longer")
    elif change.startswith("same size"):
        path.write_bytes(b"other")
        if change.endswith("time"):
            os.utime(path, ns=(written, written))
    elif change == "replaced":
        other.replace(path)
    else:
        path.unlink()
        if change == "fifo":
            os.mkfifo(path)
        elif change == "link":
            path.symlink_to(other)
    with pytest.raises(BadInput, match=r"a\.txt"):
        check_unchanged([file])


def test_check_unchanged_compares_the_content_of_a_file_that_had_just_been_written(tmp_path: Path) -> None:
    """A later write can leave the times of such a file as they are, because clocks of file systems are coarse."""
    path = tmp_path / "a"
    path.write_bytes(b"first")
    file = pin_file(path, "dataset.files")
    times = path.stat()
    path.write_bytes(b"other")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(BadInput):
        check_unchanged([file])


def test_reading_reports_a_change_instead_of_the_error_that_it_causes(file: ManifestFile) -> None:
    def read() -> None:
        with reading([file]):
            file.path.write_bytes(b"{")
            json.loads(file.path.read_text())

    with pytest.raises(BadInput, match="has changed"):
        read()


def test_reading_refuses_a_file_that_had_another_content_meanwhile(file: ManifestFile) -> None:
    content = file.path.read_bytes()

    def read() -> None:
        with reading([file]):
            file.path.write_bytes(b"other")
            file.path.write_bytes(content)

    with pytest.raises(BadInput, match=r"a\.txt"):
        read()


def test_reading_passes_other_errors_on(file: ManifestFile) -> None:
    def fail() -> None:
        with reading([file]):
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()


def test_content_hash_depends_on_names_and_contents_and_not_on_the_folder(tmp_path: Path) -> None:
    def pin(folder: str, name: str, content: str) -> str:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return content_hash([pin_file(path, "model.path", name)])

    first = pin("a", "x", "1")
    assert pin("b", "x", "1") == first
    assert len({first, pin("c", "y", "1"), pin("d", "x", "2")}) == 3


def test_linked_folder_holds_the_files_of_the_manifest_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a", "sub/b", "secret"):
        (tmp_path / name).write_text(name)
    files = tuple(pin_file(tmp_path / name, "model.path", name) for name in ("a", "sub/b"))
    folder = linked_folder(files)
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert present == {"a", "sub/b"}
    assert (folder / "sub/b").read_text() == "sub/b"


@pytest.mark.parametrize("name", ["a.safetensors", "sub/a.safetensors", "é b.jsonl", "a..b"])
def test_check_inside_accepts_names_in_the_folder(name: str) -> None:
    check_inside(name, "index")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../a",
        "a/../../b",
        ".a",
        "a/.b/c",
        "~/a",
        "https://x/a",
        "hf://datasets/a",
        "..",
        "a\\b",
        "a\0",
    ],
)
def test_check_inside_refuses_names_that_leave_the_folder_or_are_hidden(name: str) -> None:
    with pytest.raises(BadInput, match="index"):
        check_inside(name, "index")
