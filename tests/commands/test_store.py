"""`verify` and `ui`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Typed


def test_an_untouched_store_verifies(on_store: Typed) -> None:
    code, _, err = on_store("verify")
    assert (code, err) == (0, "")


def test_a_damaged_file_is_found_and_marked(
    store: Path, on_store: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store whose artifacts lie in this folder: MLflow keeps absolute addresses."""
    uri = f"--tracking-uri sqlite:///{tmp_path}/mlflow.db"
    bundle = tmp_path / "b.zip"
    assert on_store(f"export {bundle} --dataset code --model nano-6k")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert on_store(f"import {bundle} {uri}")[0] == 0
    (ranks,) = tmp_path.rglob("ranks.parquet")
    content = bytearray(ranks.read_bytes())
    content[len(content) // 2] ^= 4
    ranks.write_bytes(content)
    code, out, _ = on_store(f"verify {uri}")
    assert code == 1
    assert "ranks.parquet" in out
    assert on_store(f"verify --repair {uri}")[0] == 1


def test_ui_becomes_mlflows_server(on_store: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: executed.append(words))
    code, out, _ = on_store("ui --port 5123")
    assert code == 0
    assert "http://127.0.0.1:5123/#/experiments/" in out
    (words,) = executed
    assert words[1:4] == ["-m", "mlflow", "server"]
    assert words[words.index("--backend-store-uri") + 1].startswith("sqlite:///")
