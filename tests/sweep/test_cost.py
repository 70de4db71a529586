"""Tests of `plan`: the estimated cost of cells."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rbptrack import sweep
from rbptrack.config.compose import compose
from rbptrack.sweep.sizes import _weight_files
from rbptrack.tracking import Store
from tests.sweep.conftest import Configs

S_OF_6K = 5676
PARAMETERS_OF_6K = 5676 + 4096 * 12  # 4,096 entries of the vocabulary times the width 12


def test_plan_of_a_cell_counts_parameters_tokens_flops_and_bytes(store: Store, configs: Configs) -> None:
    (config,) = configs("dataset.seq_len=256")
    row = sweep.plan([config]).iloc[0]
    assert (row["S"], row["parameters"]) == (S_OF_6K, PARAMETERS_OF_6K)
    assert row["FLOPs"] > 2 * row["tokens"] * PARAMETERS_OF_6K
    assert row["weights"] == 4 * row["parameters"]
    assert row["download"] == 0
    assert row["seconds"] > 0
    sweep.run([config], [])
    assert row["tokens"] == store.runs().frame["num_tokens"].iloc[0]


def test_plan_says_which_cells_are_measured_and_which_are_impossible(store: Store, configs: Configs) -> None:
    sweep.run(configs("model=nano/15k"), [])
    plan = sweep.plan(configs("model=nano/6k,nano/15k", "dataset.seq_len=256,1000"))
    assert plan["model"].tolist() == ["nano-6k", "nano-6k", "nano-15k", "nano-15k"]
    assert plan["status"].tolist() == ["to measure", "impossible", "measured", "impossible"]
    impossible = plan[plan["status"] == "impossible"]
    assert all("512" in str(error) for error in impossible["error"])  # the most tokens that the models can read
    assert impossible["FLOPs"].isna().all()


def test_plan_of_a_measured_cell_costs_nothing_unless_it_is_forced(store: Store, configs: Configs) -> None:
    sweep.run(configs("model=nano/15k"), [])
    measured = sweep.plan(configs("model=nano/15k")).iloc[0]
    forced = sweep.plan(configs("model=nano/15k", "force=true")).iloc[0]
    assert (measured["status"], forced["status"]) == ("measured", "to measure")
    for column in ("S", "parameters", "tokens"):
        assert measured[column] == forced[column]
    assert measured["FLOPs"] == 0
    assert forced["FLOPs"] > 0


def test_plan_adds_the_cost_of_a_reference(store: Store, configs: Configs) -> None:
    each_alone = sweep.plan(configs("model=nano/6k,nano/115k"))
    with_reference = sweep.plan(configs("reference=nano/115k"))
    for column in ("FLOPs", "weights"):
        assert with_reference[column].iloc[0] == each_alone[column].sum()


def test_plan_leaves_numbers_empty_that_only_the_hub_knows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbptrack.sources.hub.find_commit", lambda *_: "a" * 40)
    plan = sweep.plan(compose(["model=nano/6k", "dataset=org/texts", "dataset.split=test", "dataset.documents=5"]))
    row = plan.iloc[0]
    assert row["S"] == S_OF_6K
    assert math.isnan(row["tokens"])
    assert math.isnan(row["seconds"])
    assert row["status"] == "to measure"


@pytest.mark.parametrize(
    ("name", "documents"), [("a.jsonl", 2), ("A.TXT", 1), ("a.jsonl.gz", math.nan), ("a.json", math.nan)]
)
def test_plan_estimates_tokens_of_large_files_if_it_can_count_their_documents(
    name: str, documents: float, store: Store, configs: Configs, tmp_path: Path
) -> None:
    """Above 50 MB, 4 bytes count as one token. The first token of each document is not scored."""
    (tmp_path / name).write_text("{}\n{}\n".ljust(60_000_000))
    row = sweep.plan(configs("model=nano/6k", f"dataset={tmp_path / name}", "dataset.documents=0")).iloc[0]
    assert row["status"] == "to measure"
    assert row["tokens"] == pytest.approx(15_000_000 - documents, abs=0, nan_ok=True)


def test_weight_files_are_only_those_that_transformers_loads() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    others = ["consolidated.safetensors", "model.fp16.safetensors", "pytorch_model.bin"]
    assert _weight_files([*shards, *others], pickles=True) == shards
    assert _weight_files(others, pickles=True) == ["pytorch_model.bin"]


def plan_of_text(configs: Configs, content: str, *words: str) -> list[float]:
    """Return tokens, FLOPs, S and parameters in the plan of nano/6k on a file with the given content."""
    path = Path("text.txt").absolute()
    path.write_text(content)
    row = sweep.plan(configs("model=nano/6k", f"dataset={path}", *words)).iloc[0]
    return [row["tokens"], row["FLOPs"], row["S"], row["parameters"]]


def test_plan_follows_changes_of_a_text_file(store: Store, configs: Configs) -> None:
    """Counts of tokens are kept on disk. They belong to the content of the file, not to its name."""
    long_text = "the second text is longer " * 40
    plan_of_short_text = plan_of_text(configs, "a short text")
    plan_of_long_text = plan_of_text(configs, long_text)
    assert plan_of_short_text != plan_of_long_text
    assert plan_of_text(configs, "a short text") == plan_of_short_text
    assert plan_of_text(configs, long_text) == plan_of_long_text


def test_plan_follows_changes_of_the_rules_for_sequences(store: Store, configs: Configs) -> None:
    long_text = "the second text is longer " * 40
    plan_of_text(configs, long_text)
    tokens, *_ = plan_of_text(configs, long_text, "dataset.sequence=truncate", "dataset.seq_len=16")
    assert tokens == 15  # all tokens of the sequence but the first
