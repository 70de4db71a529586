"""tools/synthetic_store.py writes measurements that the program reads, with the law that it promises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.store import Store
from tools import synthetic_store


def test_its_measurements_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--models", "3", "--datasets", "1", "--tokens", "6000", "--documents", "20"]
    monkeypatch.setattr(sys, "argv", ["synthetic_store", str(tmp_path), *words])
    synthetic_store.main()
    runs = Store(TrackingConfig()).reader.runs(FilterConfig())
    frame = runs.frame.sort_values("non_embedding_params")
    assert list(frame["model"]) == ["pythia-14m", "pythia-31m", "pythia-70m"]
    assert frame["rbp_1"].is_monotonic_increasing
    assert [len(runs.ranks(run_id)) for run_id in frame["run_id"]] == [6000] * 3
