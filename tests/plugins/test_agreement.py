from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plugins.agreement import Agreement
from rbptrack.analysis import Runs
from rbptrack.analysis.rank_store import Tables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.base.errors import BadInput
from rbptrack.figures.charts import save
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore, rank_table

TOKENS = 20


def table(seed: int, *, documents: int = 30, worse: float = 0.0, **columns: Any) -> RankTable:
    """The same texts for every seed; ranks and probabilities are the seed's, `worse` by so many nats."""
    rng = np.random.default_rng(seed)
    n = documents * TOKENS
    rank = rng.integers(1, 6, n)
    logprob = np.minimum(-np.log(rank) - worse - 0.3 * rng.random(n), 0)
    about = {"token": np.arange(n) % 64, "top": rng.integers(0, 2, n), "logprob": logprob}
    return rank_table(rank, documents=documents, **about | columns)


def measured(tables: dict[str, RankTable], **columns: list[Any]) -> Runs:
    """Measurements of one model on one text, which differ in the columns given."""
    ids = list(tables)
    frame = pd.DataFrame({"run_id": ids, "family": "toy", "size": "1m", "model": "toy-1m", "dataset": "text"})
    frame = frame.assign(non_embedding_params=10**6, vocab_size=64, documents_hash="h", sequence="slide", **columns)
    return Runs(frame, MemoryRankStore(tables, texts={i: f" w{i}" for i in range(64)}))


def pairs(report: Any) -> list[str]:
    return list(dict.fromkeys(report.results["pair"]))


def test_precisions_are_paired_with_float32() -> None:
    tables = {"b": table(0), "f": table(0), "h": table(1)}
    report = Agreement(worst=4).analyze(measured(tables, dtype=["bfloat16", "float32", "float16"]))
    assert pairs(report) == ["toy-1m@float32 / toy-1m@float16", "toy-1m@float32 / toy-1m@bfloat16"]
    same = report.frame("same_top").set_index("pair")["same_top"]
    assert same["toy-1m@float32 / toy-1m@bfloat16"] == 1
    change = report.frame("change")
    equal = change[change["pair"] == "toy-1m@float32 / toy-1m@bfloat16"]
    assert set(equal["change"]) == {0.0}
    assert set(equal["verdict"]) == {"undecided"}
    worst = report.tables["worst_tokens"]
    assert len(worst) == 4, "two equal measurements have no worst token"
    assert worst["nats"].is_monotonic_decreasing
    assert worst["token"].str.match(r" w\d+").all()


def test_checkpoints_go_from_one_to_the_next(tmp_path: Path) -> None:
    """A later checkpoint that loses half a nat is below in nothing, above in CE."""
    tables = {"late": table(2, worse=0.5), "early": table(2), "middle": table(2)}
    revision = ["step30", "step10", "step20"]
    report = Agreement().analyze(measured(tables, training_tokens=[3.0, 1.0, 2.0], revision=revision, commit=revision))
    assert len(pairs(report)) == 2
    change = report.frame("change")
    ce = change[change["metric"] == "ce"].set_index("pair")
    assert ce["change"].tolist() == pytest.approx([0.0, 0.5], abs=1e-6)
    assert ce["verdict"].tolist() == ["undecided", "above"]
    assert report.headline.startswith("CE differs in 1 of 2 pairs")
    save(report.figures["change"], tmp_path / "change.svg")


def test_gained_minus_lost_has_the_interval_of_the_change_of_rbp_1() -> None:
    ranks = np.tile([1, 1, 2, 3, 4], 30 * TOKENS // 5)
    worse = np.where(np.random.default_rng(0).random(len(ranks)) < 0.4, 5, ranks)
    tables = {"a": rank_table(ranks, documents=30), "b": rank_table(worse, documents=30)}
    report = Agreement(ks=[1]).analyze(measured(tables, dtype=["float32", "bfloat16"]))
    change = report.frame("change").set_index("metric").loc["rbp_1"]
    (flips,) = report.frame("flips").to_dict("records")
    assert flips["flips"] < -0.1
    assert [flips[name] for name in ("flips", "low", "high")] == [change[name] for name in ("change", "low", "high")]
    assert flips["p"] != change["p"], "its p is McNemar's"


def test_models_are_chosen_by_name() -> None:
    tables = {"a": table(0), "b": table(1), "c": table(2)}
    given = measured(tables, model=["base-1m", "small-1m", "tiny-1m"], family=["base", "small", "tiny"])
    assert pairs(Agreement(a="base*").analyze(given)) == ["base-1m / small-1m", "base-1m / tiny-1m"]
    assert pairs(Agreement(a="tiny*", b="base*").analyze(given)) == ["tiny-1m / base-1m"]
    assert Agreement(a="none").analyze(given).notes
    assert Agreement().analyze(given).notes, "models of other families are no pair of one model"
    with pytest.raises(BadInput, match="max_pairs=1"):
        Agreement(a="base*", max_pairs=1).analyze(given)


def test_one_thing_changes_in_a_pair() -> None:
    """Two checkpoints in two precisions, one of them also with a reference, and another seed of the size, without S."""
    about = [("m@1", "float32", 1), ("m@1", "bfloat16", 1), ("m@2", "float32", 2), ("m@2", "bfloat16", 2)]
    about += [("m@2", "float32", 2), ("m-seed1@2", "float32", 2)]
    model, dtype, tokens = map(list, zip(*about, strict=True))
    tables = {name: table(seed) for name, seed in zip("abcdef", (0, 1, 2, 3, 2, 5), strict=True)}
    given = measured(tables, model=model, revision=model, dtype=dtype, training_tokens=tokens)
    frame = given.frame.drop(columns="name").assign(non_embedding_params=None, reference=[None] * 4 + ["big", None])
    found = pairs(Agreement().analyze(Runs(frame, given.store)))
    assert [pair.replace("@none", "") for pair in found] == [
        "m@1@float32 / m@2@float32",
        "m@1@bfloat16 / m@2@bfloat16",
        "m@1@float32 / m@1@bfloat16",
        "m@2@float32 / m@2@bfloat16",
    ]


def test_a_pair_is_named_by_what_differs_and_not_by_hashes() -> None:
    tables = {"a": table(0), "b": table(1), "c": table(2)}
    commit = ["aaaa", "bbbb", "bbbb"]
    given = measured(
        tables, dtype=["float32", "float32", "bfloat16"], commit=commit, weights=[None, "Q4_K_M", "Q4_K_M"]
    )
    names = pairs(Agreement(a="*").analyze(given))
    assert names == [
        "toy-1m / toy-1m@Q4_K_M",
        "toy-1m@float32 / toy-1m@Q4_K_M@bfloat16",
        "toy-1m@float32 / toy-1m@bfloat16",
    ]
    retrained = measured({"a": table(0), "b": table(1)}, dtype="float32", commit=["aaaa", "bbbb"])
    assert pairs(Agreement(a="*").analyze(retrained)) == ["toy-1m@aaaa / toy-1m@bbbb"]


def test_a_pair_says_that_its_sources_could_not_be_read() -> None:
    tables = {"a": table(0), "b": table(1)}
    frame = measured(tables, dtype=["float32", "bfloat16"], groups=[2, 2]).frame.drop(columns="name")
    report = Agreement().analyze(Runs(frame, Tables(tables)))
    assert len(pairs(report)) == 1
    assert any("/ toy-1m@bfloat16 on text: its groups cannot be read" in note for note in report.notes)


def test_imports_without_token_ids_and_first_tokens_have_the_rest() -> None:
    def imported(seed: int) -> RankTable:
        whole = table(seed, token=np.full(30 * TOKENS, -1))
        names = [name for name in whole.table.column_names if name not in ("ties", "top")]
        return RankTable(whole.table.select(names), 64)

    report = Agreement().analyze(measured({"a": imported(0), "b": imported(1)}, dtype=["float32", "bfloat16"]))
    assert report.questions == ["change", "flips"]
    assert set(report.tables["worst_tokens"]["token"]) == {""}


def test_a_note_says_where_few_documents_decide() -> None:
    """One document of thirty changes alone."""
    worse = table(3)
    logprob = worse.column("logprob").copy()
    logprob[:TOKENS] -= 3
    tables = {"a": worse, "b": table(3, logprob=logprob)}
    report = Agreement().analyze(measured(tables, dtype=["float32", "bfloat16"]))
    assert any("1.0 documents" in note for note in report.notes)  # 1.07, rounded down
    ce = report.frame("change").set_index("metric").loc["ce"]
    assert np.isfinite(ce["low"])
    assert ce["verdict"] == ""


class TestContract(NeedsRanks):
    analyzer = Agreement(worst=2)

    def runs(self, *, documents: int = 30) -> Runs:
        tables = {name: table(i, documents=documents) for i, name in enumerate("abcd")}
        given = measured(tables, dtype=["float32", "bfloat16", "float16", "float64"])
        return Runs(given.frame.drop(columns="name"), Tables(tables))
