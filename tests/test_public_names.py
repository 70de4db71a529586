"""Tests of the names that `import rbptrack` gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rbptrack


def test_import_rbptrack_does_not_import_torch_or_mlflow() -> None:
    code = "import rbptrack, sys; print('torch' in sys.modules, 'mlflow' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]


def test_rbptrack_has_its_public_names_and_refuses_an_unknown_one() -> None:
    for name in rbptrack.__all__:
        assert getattr(rbptrack, name) is not None
    with pytest.raises(AttributeError):
        rbptrack.nonsense  # noqa: B018
