"""Tests of the exporter `hub`, which writes measurements as a dataset for the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import DatasetCard

from plugins.exporters.hub import DATA, Hub
from plugins.importers.table import Table
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.exchange import check_imported

ROW = {
    "run_id": "r", "family": "pythia", "size": "70m", "model": "pythia-70m", "dataset": "wiki/en",
    "repo": "EleutherAI/pythia-70m", "dataset_repo": "org/wiki", "dataset_commit": "org/wiki@abc", "dtype": "float32",
    "non_embedding_params": 18_915_328, "num_tokens": 1000, "documents": 30, "ce": 3.5, "ce_se": 0.1, "rbp_1": 0.25,
    "rbp_1_se": 0.01, "rbp_10": 0.5, "started": pd.Timestamp("2026-11-24T10:00:00Z"),
}  # fmt: skip


@pytest.fixture
def runs() -> Runs:
    """Three runs: a model on the Hub in two precisions, and a model that is not on the Hub."""
    local = ROW | {"run_id": "s", "model": "mine-1b", "family": "mine", "size": "1b", "repo": None, "rbp_10": None}
    bfloat16 = ROW | {"run_id": "t", "dtype": "bfloat16"}
    return Runs(pd.DataFrame([ROW, local, bfloat16]), RankTables({}))


def test_export_returns_number_of_measurements(runs: Runs, tmp_path: Path) -> None:
    assert "3 measurements" in Hub().export(runs, tmp_path)


def test_export_writes_card_that_the_hubs_library_reads(runs: Runs, tmp_path: Path) -> None:
    Hub().export(runs, tmp_path)
    card = DatasetCard.load(tmp_path / "README.md")
    assert "configs" in card.data.to_dict()
    assert card.data.pretty_name == "Ranks of mine, pythia on wiki/en"
    assert card.data.configs[0]["data_files"][0]["path"] == DATA


def test_card_names_the_k_of_the_table(runs: Runs, tmp_path: Path) -> None:
    Hub().export(Runs(runs.frame.assign(rbp_1000=np.nan), RankTables({})), tmp_path)
    assert "k = 1, 10," in (tmp_path / "README.md").read_text()


def test_card_of_a_table_without_rbp_names_no_k(runs: Runs, tmp_path: Path) -> None:
    Hub().export(Runs(runs.frame.drop(columns=["rbp_1", "rbp_1_se", "rbp_10"]), RankTables({})), tmp_path)
    assert "RBP_k" not in (tmp_path / "README.md").read_text()


def test_exported_table_can_be_imported(runs: Runs, tmp_path: Path) -> None:
    Hub().export(runs, tmp_path)
    importer = Table()
    assert importer.takes(tmp_path / DATA)
    rows = [
        measurement.measurement for measurement in check_imported(tmp_path, importer.read(tmp_path / DATA)).measurements
    ]
    assert [(row.model, row.dtype) for row in rows] == [
        ("pythia-70m", "float32"), ("mine-1b", "float32"), ("pythia-70m", "bfloat16"),
    ]  # fmt: skip
    assert (rows[0].ce_se, rows[0].rbp_se) == (0.1, {1: 0.01})
    assert rows[0].rbp == {1: 0.25, 10: 0.5}
    assert rows[1].rbp == {1: 0.25}
