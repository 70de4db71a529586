"""Tests that plugins import nothing but the public names of rbptrack, and that these names exist."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rbptrack.analysis.testing import PUBLIC, foreign_imports

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "plugins").rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_plugin_imports_only_public_names(file: Path) -> None:
    assert foreign_imports(file) == []


@pytest.mark.parametrize(
    "line",
    [
        "import mlflow",
        "import rbptrack",
        "import rbptrack.analysis",
        "from torch.nn import Linear",
        "from rbptrack.base.formatting import counted",
        "from rbptrack.analysis import compose",
        "from rbptrack import runs",
    ],
)
def test_foreign_imports_lists_import_that_is_not_public(line: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import numpy\nfrom rbptrack.analysis import Report\n{line}\n")
    assert len(foreign_imports(file)) == 1


@pytest.mark.parametrize("name", PUBLIC)
def test_public_module_has_all_names_of_its_all(name: str) -> None:
    module = importlib.import_module(name)
    assert [member for member in module.__all__ if not hasattr(module, member)] == []
