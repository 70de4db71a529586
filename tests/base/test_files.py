"""Tests of functions that write a file completely or not at all, and of functions that accept only regular files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.base.files import check_regular_file, read_small, replacing, sha256, sync, sync_tree, write_whole


def test_write_whole_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole_gives_a_new_file_the_mode_of_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "one")
    write_whole(path, b"two")
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_write_whole_keeps_the_mode_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("private")
    path.chmod(0o600)
    write_whole(path, "still private")
    assert path.read_text() == "still private"
    assert path.stat().st_mode & 0o777 == 0o600


def test_replacing_keeps_the_old_file_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and folders that a test syncs, in order. Nothing is synced."""
    names: list[str] = []

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def test_write_whole_syncs_the_content_and_then_the_folder(tmp_path: Path, synced: list[str]) -> None:
    write_whole(tmp_path / "a.txt", "text")
    assert len(synced) == 2
    assert synced[0].endswith(".tmp")
    assert synced[1] == tmp_path.name


def test_sync_tree_syncs_all_files_and_folders_and_the_parent(tmp_path: Path, synced: list[str]) -> None:
    folder = tmp_path / "cell"
    (folder / "blocks").mkdir(parents=True)
    (folder / "blocks/0.parquet").write_text("x")
    sync_tree(folder)
    assert synced == ["blocks", "0.parquet", "cell", tmp_path.name]


def test_sync_ignores_file_systems_that_cannot_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(os, "fsync", fsync)
    sync(tmp_path)


def test_sync_raises_errors_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="no"):
        sync(tmp_path)


def test_write_whole_refuses_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    path = tmp_path / "a.txt"
    path.symlink_to(target)
    with pytest.raises(BadInput):
        write_whole(path, "text")
    assert target.read_text() == "mine"


@pytest.mark.parametrize("kind", ["broken link", "folder", "fifo"])
def test_write_whole_refuses_broken_links_folders_and_pipes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "missing")
    with pytest.raises(BadInput):
        write_whole(path, "text")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="this system has no /proc, a folder without new files")
def test_write_whole_names_the_folder_if_it_accepts_no_files() -> None:
    with pytest.raises(BadInput, match="/proc"):
        write_whole(Path("/proc/x.html"), "x")


def test_write_whole_accepts_a_file_name_of_255_bytes(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".html")
    assert len(path.name.encode()) == 255
    write_whole(path, "whole")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_read_small_returns_the_text_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text("{{ é }}")
    assert read_small(path, "model.chat_template") == "{{ é }}"


def test_read_small_accepts_at_most_16_mebibytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text("{{ é }}")
    with path.open("ab") as file:
        file.truncate(16 * 2**20)
    assert len(read_small(path, "x")) > 16_000_000
    with path.open("ab") as file:
        file.truncate(16 * 2**20 + 1)
    with pytest.raises(BadInput, match="16,777,217"):
        read_small(path, "x")


def test_read_small_refuses_text_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_bytes("é".encode("latin-1"))
    with pytest.raises(BadInput, match="UTF-8"):
        read_small(path, "x")


@pytest.mark.parametrize(
    "name", ["nothing", "folder", "fifo", "/dev/zero", "a" * 300, "zero\0byte", "loop", "missing/x"]
)
def test_read_small_refuses_at_once_what_is_not_a_regular_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    errors: list[BaseException] = []

    def read() -> None:
        try:
            read_small(tmp_path / name, "x")
        except BaseException as error:
            errors.append(error)

    # In a thread: reading a pipe or /dev/zero would never end.
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(300)
    assert [type(error) for error in errors] == [BadInput]
    assert "\n" not in str(errors[0])


def test_check_regular_file_accepts_a_file_of_a_tebibyte(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(2**40)
    assert check_regular_file(path, "model.gguf") == path


def test_check_regular_file_accepts_a_link_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("x")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert check_regular_file(link, "model.gguf") == link


def test_sha256_of_a_file_with_abc_is_the_published_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
