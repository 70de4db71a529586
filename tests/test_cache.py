"""What is fetched from elsewhere is fetched once, and makes room for other files when it was not used for longest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rbptrack.commands import cache as command
from rbptrack.sources import cache

Fetch = Callable[[Path], Path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetching(counted: list[Path], content: str = "0123456789") -> Fetch:
    def fetch(folder: Path) -> Path:
        path = folder / "ranks.parquet"
        path.write_text(content)
        counted.append(path)
        return path

    return fetch


def test_fetched_once(place: Path) -> None:
    counted: list[Path] = []
    first = cache.fetched("http://a run ranks.parquet", fetching(counted))
    assert cache.fetched("http://a run ranks.parquet", fetching(counted)) == first
    assert (first.read_text(), first.suffix, len(counted)) == ("0123456789", ".parquet", 1)
    assert cache.fetched("http://b run ranks.parquet", fetching(counted, "other")).read_text() == "other"
    assert cache.contents() == {"artifacts": (2, 15)}
    assert not counted[0].parent.exists()


def test_a_file_that_cannot_be_fetched_leaves_nothing(place: Path) -> None:
    def fail(folder: Path) -> Path:
        (folder / "half").touch()
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        cache.fetched("http://a run x", fail)
    assert [p.suffix for p in (place / "artifacts").iterdir()] in ([], [".lock"])


def test_what_was_used_longest_ago_makes_room(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE_BYTES", "25")
    paths = [cache.fetched(f"http://a run{i}", fetching([])) for i in range(2)]
    for age, path in zip((100, 200), paths, strict=True):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    assert cache.fetched("http://a run1", fetching([])) == paths[1]  # used now
    third = cache.fetched("http://a run2", fetching([]))
    assert [path.exists() for path in (*paths, third)] == [False, True, True]
    huge = cache.fetched("http://a run3", fetching([], "x" * 30))
    assert huge.exists()
    assert cache.contents() == {"artifacts": (1, 30)}


def test_shown_and_cleared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cache.fetched("http://a run ranks.parquet", fetching([]))
    (place / "artifacts/fetching-dead").mkdir()
    mine = place / "artifacts/notes.txt"
    mine.write_text("the user's")
    assert command.main([]) == 0
    assert "artifacts      1 files" in capsys.readouterr().out
    assert command.main(["clear"]) == 0
    assert not path.exists()
    assert list(place.rglob("*")) == [place / "artifacts", mine]


def test_a_copy_that_is_no_good_is_forgotten(place: Path, tmp_path: Path) -> None:
    counted: list[Path] = []
    path = cache.fetched("http://a run x", fetching(counted))
    assert cache.forget(path)
    assert not cache.forget(tmp_path / "x")
    cache.fetched("http://a run x", fetching(counted))
    assert len(counted) == 2
