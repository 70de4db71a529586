"""Folders import downwards only, plugins use the public contract, and analysis never loads torch."""

import subprocess
import sys

from importlinter.cli import lint_imports

from tests.conftest import ROOT


def test_the_contracts_of_imports_hold() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_analysis_never_loads_torch() -> None:
    code = (
        "import sys, rbptrack.commands.analyze; from rbptrack.reporting.discovery import discover; discover();"
        "print(sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
