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


SHOWN = (
    "measured.plot()",
    "runs.plot(k=",
    "runs.compare(",
    "runs.filter(",
    'runs["nano-38k/pydocs"]',
    'report["laws"]',
    "rbptrack.report(",
    "k=(1, 5, 50)",
    ".to_pandas()",
)


def test_one_notebook_shows_the_whole_api() -> None:
    (path,) = NOTEBOOKS
    sources = "".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
    assert not [call for call in SHOWN if call not in sources]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path: Path, program: Program, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: pip install '.[dev]'")
    cells = json.loads(path.read_text())["cells"]
    assert any(cell.get("outputs") for cell in cells)  # as a reader sees it who does not run it
    done = program("-c", RUN, str(path), cwd=tmp_path, IPYTHONDIR=str(tmp_path_factory.mktemp("ipython")))
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (0, False), done.stdout + done.stderr
    assert "Out[" in done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {"mlruns"}
