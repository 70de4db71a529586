"""The plan of cells whose numbers are known."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rbptrack import sweep
from rbptrack.config.compose import compose
from rbptrack.sweep.cost import _count_documents, _weight_files
from rbptrack.tracking import Store
from tests.sweep.conftest import Configs


def test_the_embedded_models(store: Store, configs: Configs) -> None:
    sweep.run(configs("model=nano/15k"), [])
    plan = sweep.plan(configs("model=nano/6k,nano/15k", "dataset.seq_len=256,1000"))
    assert plan["model"].tolist() == ["nano-6k", "nano-6k", "nano-15k", "nano-15k"]
    small = plan.iloc[0]
    assert (small["S"], small["parameters"]) == (5676, 5676 + 4096 * 12)
    assert small["tokens"] == store.runs().frame["num_tokens"].iloc[0]
    assert small["FLOPs"] > 2 * small["tokens"] * (5676 + 4096 * 12)
    assert small["weights"] == 4 * small["parameters"]
    assert small["download"] == 0
    assert small["seconds"] > 0
    assert plan["status"].tolist()[::2] == ["to measure", "measured"]
    assert all("512" in str(error) for error in plan["error"][1::2])
    assert plan["FLOPs"][1::2].isna().all()
    again = sweep.plan(configs("model=nano/15k", "force=true")).iloc[0]
    assert again["status"] == "to measure"
    assert plan.loc[2, ["S", "parameters", "tokens", "FLOPs"]].tolist() == [*again[["S", "parameters", "tokens"]], 0]


def test_a_reference_costs_too(store: Store, configs: Configs) -> None:
    alone = sweep.plan(configs("model=nano/6k,nano/115k"))
    both = sweep.plan(configs("reference=nano/115k"))
    for column in ("FLOPs", "weights"):
        assert both[column].iloc[0] == alone[column].sum()


def test_what_nobody_knows_without_the_hub_is_missing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbptrack.sources.hub.commit", lambda *_: "a" * 40)
    plan = sweep.plan(compose(["model=nano/6k", "dataset=org/texts", "dataset.split=test", "dataset.documents=5"]))
    row = plan.iloc[0]
    assert row["S"] == 5676
    assert math.isnan(row["tokens"])
    assert math.isnan(row["seconds"])
    assert row["status"] == "to measure"


def test_lines_of_compressed_bytes_are_no_documents(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "A.TXT", "a.jsonl.gz", "a.json")]
    for path in paths:
        path.write_text("{}\n{}\n")
    assert [_count_documents(path) for path in paths[:2]] == [2, 1]
    assert all(math.isnan(_count_documents(path)) for path in paths[2:])


def test_weights_that_lie_beside_those_that_are_loaded_do_not_count() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    others = ["consolidated.safetensors", "model.fp16.safetensors", "pytorch_model.bin"]
    assert _weight_files([*shards, *others], pickles=True) == shards
    assert _weight_files(others, pickles=True) == ["pytorch_model.bin"]


def test_the_numbers_that_are_kept_follow_texts_and_rules(store: Store, configs: Configs, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"

    def tokens(content: str, *words: str) -> list[float]:
        text.write_text(content)
        table = sweep.plan(configs("model=nano/6k", f"dataset={text}", *words))
        return [*table["tokens"], *table["FLOPs"], *table["S"], *table["parameters"]]

    long = "the second text is longer " * 40
    first, second = tokens("a short text"), tokens(long)
    assert first != second
    assert tokens("a short text") == first
    assert tokens(long) == second
    assert tokens(long, "dataset.sequence=truncate", "dataset.seq_len=16")[0] == 15
