"""The notebooks of examples/ run from their first cell to the last, in an empty folder, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.patience import PATIENCE

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(
    path: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[dev]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    notebook = nbformat.read(path, as_version=4)
    assert any(cell.get("outputs") for cell in notebook.cells)  # as a reader sees it who does not run it
    # Files in place of ports, which are chosen some time before they are taken.
    sockets = {"transport": "ipc", "ip": str(tmp_path_factory.mktemp("kernel") / "socket")}
    told = pytest.importorskip("traitlets.config").Config(KernelManager=sockets)
    client = nbclient.NotebookClient(
        notebook,
        timeout=PATIENCE,
        startup_timeout=PATIENCE,
        resources={"metadata": {"path": str(tmp_path)}},
        config=told,
    )
    client.execute()
    assert any(cell.get("outputs") for cell in notebook.cells)
    assert {p.name for p in tmp_path.iterdir()} == {"mlruns"}
