"""Fixtures of tests that measure: a store in the current folder, and configurations of small cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rbptrack.config.compose import compose
from rbptrack.config.schema import Config
from tests.store_fixtures import store

__all__ = ["store"]

Configs = Callable[..., list[Config]]
SMALL = ("model=nano/6k", "dataset=pydocs", "dataset.documents=3", "engine.threads=1")
"""The words of a command line that measures the smallest embedded model on three documents with one thread."""


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that takes any arguments and raises an error."""

    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configs:
    """A function that composes configurations of cells from words of a command line, in an empty current folder.

    The words of `SMALL` are added, except those whose key is in the given words.
    """
    monkeypatch.chdir(tmp_path)

    def compose_small(*words: str) -> list[Config]:
        keys = [word.partition("=")[0] for word in words]
        defaults = [word for word in SMALL if word.partition("=")[0] not in keys]
        return compose([*defaults, *words])

    return compose_small
