"""A working folder with a store, and configs of small cells on the embedded models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rbptrack.config.compose import compose
from rbptrack.config.schema import Config
from tests.store_fixtures import empty_database, store

__all__ = ["empty_database", "store"]

Configs = Callable[..., list[Config]]
SMALL = ("model=nano/6k", "dataset=pydocs", "dataset.documents=3", "engine.threads=1")


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configs:
    """Compose cells of words: three documents, and nano/6k on pydocs where the words choose nothing else."""
    monkeypatch.chdir(tmp_path)

    def compose_small(*words: str) -> list[Config]:
        keys = [word.partition("=")[0] for word in words]
        return compose([*(word for word in SMALL if word.partition("=")[0] not in keys), *words])

    return compose_small
