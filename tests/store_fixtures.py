"""Fixtures: a tracking store in a temporary folder, and folders of finished cells.

The conftest of a test folder imports the fixtures that its tests use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig
from rbptrack.tracking import Store
from studies import synthetic
from tests.rank_tables import power_law_rank_table

WriteCell = Callable[..., Path]
"""The type of the fixture `write_cell`, which says what the arguments mean."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The default store of the current folder, which is `tmp_path`. It holds no runs."""
    monkeypatch.chdir(tmp_path)
    store = Store()
    assert store.connection.experiment_names() == []  # creates the database
    return store


@pytest.fixture
def write_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteCell:
    """A function that writes the folder of a finished cell and returns its path. The current folder is `tmp_path`.

    Each document has 20 tokens, whose ranks follow the law of `power_law_rank_table`. Arguments of the function:

    - s: the number of parameters without embeddings, which is also the name of the size.
    - dataset, sweep: the names of the dataset and of the sweep.
    - documents: the number of documents.
    - groups: the number of groups to which the documents belong in turn; 0 means that groups are unknown.
    - forced: whether the cell was measured with force=true.
    - folder: the folder to write. None means the one in mlruns/cells that is named by the fingerprint.
    - model: further options of the model, such as `dtype` or `seed`.
    """
    monkeypatch.chdir(tmp_path)

    def write(
        s: int = 38_000,
        *,
        dataset: str = "wiki",
        sweep: str = "first",
        documents: int = 30,
        groups: int = 0,
        forced: bool = False,
        folder: Path | None = None,
        **model: object,
    ) -> Path:
        table = power_law_rank_table(s, documents=documents, tokens=20)
        config = Config(
            model=ModelConfig(family="nano", size=str(s), **model),  # type: ignore[arg-type]
            dataset=DatasetConfig(name=dataset, seq_len=64, group="site" if groups else ""),
            k=KConfig(values=[1, 10, 100]),
        )
        values = {
            "sweep": sweep,
            "documents_hash": "d" * 64,
            "non_embedding_params": s,
            "total_params": 2 * s,
            "device": "cpu",
            "forced": forced,
        }
        return synthetic.write_cell(table, config, values, documents=documents, groups=groups, folder=folder)

    return write
