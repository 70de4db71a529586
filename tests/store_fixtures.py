"""Fixtures: stores in folders of their own, and cells that were measured, which are folders with a record.

A room's conftest imports them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rbptrack.config.paths import cells_folder
from rbptrack.config.schema import Config, DatasetConfig, KConfig, ModelConfig
from rbptrack.ranks.measurement import Measurement
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking import Facts, Store, write_record
from tests.rank_tables import power_law_rank_table

WriteCell = Callable[..., Path]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file as MLflow makes it, which takes three seconds."""
    folder = tmp_path_factory.mktemp("database")
    store = Store(f"sqlite:///{folder}/mlflow.db")
    store.connection.client.search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def store(empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The default store of a working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return Store()


@pytest.fixture
def write_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteCell:
    """Lay a finished cell of 38,000 parameters into its folder, or another one."""
    monkeypatch.chdir(tmp_path)

    def lay(
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
        identity = {"family": "nano", "size": str(s), "dataset": dataset, "seq_len": 64, **model}
        name = fingerprint(identity)
        folder = folder or cells_folder() / name
        folder.mkdir(parents=True)
        table = power_law_rank_table(s, documents=documents, tokens=20)
        table.write(folder / "ranks.parquet")
        measurement = Measurement(
            folder,
            table.histogram(),
            table.document_counts([1, 10, 100]),
            num_bytes=4 * len(table),
            tied=0,
            seconds=2.0,
            fresh_tokens=len(table),
            peak_memory_bytes=10**9,
            batch_tokens=2048,
            chunk_tokens=512,
        )
        config = Config(
            model=ModelConfig(family="nano", size=str(s), **model),  # type: ignore[arg-type]
            dataset=DatasetConfig(name=dataset, seq_len=64, group="site" if groups else ""),
            k=KConfig(values=[1, 10, 100]),
        )
        facts = Facts.of(
            config,
            identity,
            {
                "sweep": sweep,
                "commit": f"org/nano@{s}",
                "documents_hash": "d" * 64,
                "non_embedding_params": s,
                "total_params": 2 * s,
                "vocab_size": 512,
                "documents": documents,
                "device": "cpu",
                "forced": forced,
            },
        )
        of_documents = pd.DataFrame({"document": range(documents), "id": [f"doc {i}" for i in range(documents)]})
        of_documents = of_documents.assign(tokens=20, bytes=80)
        if groups:
            of_documents["group"] = [f"site {i % groups}" for i in range(documents)]
        write_record(
            folder,
            measurement,
            facts,
            documents=of_documents,
            unscored=pd.DataFrame({"document": range(documents), "position": 20, "token": 1}),
            token_texts={0: " the", 1: "<s>"},
            began=time.time() - 2,
        )
        return folder

    return lay
