"""Run a notebook from its first cell to its last and keep the outputs in it, as a reader sees it who does not run it.

python -m tools.notebook examples/notebook.ipynb
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


def run(path: Path) -> None:
    """Execute the code cells in an empty folder and write their outputs into the file; an error ends it."""
    notebook = json.loads(path.read_text())
    shell = InteractiveShell.instance()
    results: list[dict[str, str]] = []
    shell.displayhook.write_output_prompt = lambda: None
    shell.displayhook.write_format_data = lambda data, metadata=None: results.append(data)
    back = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(cells, start=1):
                with capture_output() as shown:
                    result = shell.run_cell("".join(cell["source"]), store_history=True)
                result.raise_error()
                cell["execution_count"] = number
                cell["outputs"] = _outputs(shown, results, number)
                results.clear()
        finally:
            os.chdir(back)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def _outputs(shown: Any, results: list[dict[str, str]], number: int) -> list[dict[str, Any]]:
    """Return what a cell printed, then what it displayed, as nbformat has it."""
    text = shown.stdout.rstrip("\n")
    printed = [{"output_type": "stream", "name": "stdout", "text": _lines(f"{text}\n")}] if text else []
    return printed + [
        {
            "output_type": "execute_result",
            "execution_count": number,
            "metadata": {},
            "data": {kind: _lines(part) for kind, part in data.items()},
        }
        for data in results
    ]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run(Path(name).resolve())
