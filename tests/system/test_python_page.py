"""Tests that the Python code of docs/howto/python.md and examples/notebook.ipynb runs as it is printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def run_python(words: list[str], folder: Path) -> None:
    """Run Python with these arguments in a folder, and assert that it succeeds."""
    process = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_code_blocks_of_python_page_run_in_an_empty_folder(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    (tmp_path / "page.py").write_text("\n".join(blocks))
    run_python(["page.py"], tmp_path)


def test_cells_of_notebook_run_on_measurements_of_demo_models(tmp_path: Path) -> None:
    few = ["dataset.documents=20", "dataset.sequence=truncate", "analyzers=[]"]
    run_python(["-m", "rbptrack", "model=nano/*", "dataset=pydocs,stdlib", *few], tmp_path)
    notebook = json.loads((ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 10
    (tmp_path / "notebook.py").write_text("\n".join(cells))
    run_python(["notebook.py"], tmp_path)
