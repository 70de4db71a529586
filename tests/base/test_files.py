"""Tests that files are written completely or not at all, and that options accept only files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.base.files import read_small, regular_file, replacing, sha256, sync, sync_tree, write_whole


def test_write_whole_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert list(tmp_path.iterdir()) == [path]


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

    def interrupted() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole_syncs_the_content_and_then_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "a.txt", "text")
    assert len(synced) == 2
    assert synced[0].endswith(".tmp")
    assert synced[1] == tmp_path.name


def test_sync_tree_syncs_all_files_and_folders_and_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cell"
    (folder / "blocks").mkdir(parents=True)
    (folder / "blocks/0.parquet").write_text("x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    sync_tree(folder)
    assert synced == ["blocks", "0.parquet", "cell", tmp_path.name]


def test_sync_ignores_file_systems_that_cannot_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(number: int) -> None:
        def fsync(_: int) -> None:
            raise OSError(number, "no")

        monkeypatch.setattr(os, "fsync", fsync)

    fails(errno.EINVAL)
    sync(tmp_path)
    fails(errno.EIO)
    with pytest.raises(OSError, match="no"):
        sync(tmp_path)


@pytest.mark.parametrize("kind", ["link", "broken link", "folder", "fifo"])
def test_write_whole_refuses_links_folders_and_pipes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    target = tmp_path / "target"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    if kind == "link":
        target.write_text("mine")
    with pytest.raises(BadInput):
        write_whole(path, "text")
    assert kind != "link" or target.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that takes no files")
def test_write_whole_names_a_folder_that_takes_no_files() -> None:
    with pytest.raises(BadInput, match="/proc"):
        write_whole(Path("/proc/x.html"), "x")


def test_write_whole_writes_a_name_of_the_largest_length(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".html")
    write_whole(path, "whole")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_read_small_refuses_large_files_and_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text("{{ é }}")
    assert read_small(path, "model.chat_template") == "{{ é }}"
    with path.open("ab") as file:
        file.truncate(16 * 2**20)
    assert len(read_small(path, "x")) > 16_000_000
    with path.open("ab") as file:
        file.truncate(16 * 2**20 + 1)
    with pytest.raises(BadInput, match="16,777,217 bytes"):
        read_small(path, "x")
    path.write_bytes("é".encode("latin-1"))
    with pytest.raises(BadInput, match="not UTF-8"):
        read_small(path, "x")


@pytest.mark.parametrize(
    "name", ["nothing", "folder", "fifo", "/dev/zero", "a" * 300, "zero\0byte", "loop", "missing/x"]
)
def test_read_small_refuses_everything_but_files_at_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    outcome: list[BaseException] = []

    def read() -> None:
        try:
            read_small(tmp_path / name, "x")
        except BaseException as error:
            outcome.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert [type(error) for error in outcome] == [BadInput]
    assert "\n" not in str(outcome[0])


def test_regular_file_accepts_any_size_and_links(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(2**40)
    assert regular_file(path, "model.gguf") == path
    (tmp_path / "link").symlink_to(path)
    assert regular_file(tmp_path / "link", "model.gguf") == tmp_path / "link"


def test_sha256_of_abc_is_known(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
