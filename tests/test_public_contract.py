"""The public contract: importing it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

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
        discovery = importlib.import_module("rbptrack.analysis.discovery")
        discovery.discover(discovery.ANALYZERS).load()
    print(package, *sorted(heavy & set(sys.modules)))
"""


def test_importing_it_loads_nothing_heavy() -> None:
    """Nor do analyses load torch."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["rbptrack", "rbptrack.stats", "rbptrack.analysis", "rbptrack.commands.analyze"]
