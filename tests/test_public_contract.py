"""The public contract: what plugins may import resolves, is documented, and loads nothing heavy."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import rbptrack.analysis
import rbptrack.stats

PUBLIC = [(package, name) for package in (rbptrack.analysis, rbptrack.stats) for name in package.__all__]


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=lambda part: getattr(part, "__name__", part))
def test_every_public_name_has_a_docstring(package: ModuleType, name: str) -> None:
    value = getattr(package, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert (value.__doc__ or "").strip()
        assert not (value.__doc__ or "").startswith(f"{value.__name__}("), "the signature that dataclass writes"


@pytest.mark.parametrize("name", [n for n in rbptrack.stats.__all__ if inspect.isfunction(getattr(rbptrack.stats, n))])
def test_every_formula_names_its_source(name: str) -> None:
    """A paper by its arXiv number, or authors and a year."""
    assert re.search(r"arXiv \d{4}\.\d{5}|\b(18|19|20)\d\d\b|Source: ", getattr(rbptrack.stats, name).__doc__)


@pytest.mark.parametrize("package", ["rbptrack.analysis", "rbptrack.stats"])
def test_importing_the_contract_loads_nothing_heavy(package: str) -> None:
    heavy = "{'torch', 'transformers', 'datasets', 'mlflow', 'matplotlib', 'scipy', 'lmfit'}"
    code = f"import sys, {package}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_public_name_is_hidden_by_a_module() -> None:
    """A module that is imported becomes an attribute of its package, in place of what has its name there."""
    for package in (rbptrack.analysis, rbptrack.stats):
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
        assert not [name for name in package.__all__ if inspect.ismodule(getattr(package, name))]


def test_there_is_no_other_name() -> None:
    for package in (rbptrack.analysis, rbptrack.stats):
        with pytest.raises(AttributeError, match="has no attribute 'absent'"):
            package.absent  # noqa: B018
