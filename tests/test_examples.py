"""The notebooks of examples/ run from their first cell to the last, in an empty folder, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT, Program

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
RUN = """
import json, pathlib, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.loads(pathlib.Path(sys.argv[1]).read_text())["cells"]:
    if cell["cell_type"] == "code":
        shell.run_cell("".join(cell["source"])).raise_error()
"""


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path: Path, program: Program, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: pip install '.[dev]'")
    cells = json.loads(path.read_text())["cells"]
    assert any(cell.get("outputs") for cell in cells)  # as a reader sees it who does not run it
    done = program("-c", RUN, str(path), cwd=tmp_path, IPYTHONDIR=str(tmp_path_factory.mktemp("ipython")))
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (0, False), done.stdout + done.stderr
    assert "Out[" in done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {"mlruns"}
