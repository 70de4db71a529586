"""The public contract: importing it loads nothing heavy, and names that moved are found for one release."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import rbptrack.analysis
import rbptrack.stats
from tests.conftest import ROOT

LIGHT = """
import importlib, sys
for package, heavy in {
    "rbptrack": {"torch", "mlflow", "transformers", "pandas", "hydra"},
    "rbptrack.stats": {"torch", "transformers", "datasets", "mlflow", "matplotlib", "scipy", "lmfit"},
    "rbptrack.analysis": {"torch", "transformers", "datasets", "mlflow", "matplotlib", "scipy", "lmfit"},
    "rbptrack.commands.analyze": {"torch", "transformers", "datasets"},
}.items():
    importlib.import_module(package)
    if package == "rbptrack.commands.analyze":
        importlib.import_module("rbptrack.reporting.discovery").discover()
    print(package, *sorted(heavy & set(sys.modules)))
"""


def test_importing_it_loads_nothing_heavy() -> None:
    """Nor do analyses load torch."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["rbptrack", "rbptrack.stats", "rbptrack.analysis", "rbptrack.commands.analyze"]


@pytest.mark.parametrize(
    ("package", "name", "home"),
    [
        (rbptrack.stats, "fit_power_law", "rbptrack.stats.power_law"),
        (rbptrack.analysis, "draw_laws", "rbptrack.analysis.law_figures"),
        (rbptrack.analysis, "counted", "rbptrack.base.words"),
        (rbptrack.analysis, "law_cells", "rbptrack.analysis.former"),
    ],
)
def test_a_name_that_moved_is_found_with_a_warning(package: ModuleType, name: str, home: str) -> None:
    with pytest.warns(FutureWarning, match=f"import {name} from {home}, not from {package.__name__}"):
        assert getattr(package, name).__module__ == home


@pytest.mark.parametrize("package", [rbptrack.analysis, rbptrack.stats])
def test_there_is_no_other_name(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        package.absent  # noqa: B018
