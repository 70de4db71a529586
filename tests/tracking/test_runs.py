"""Measurements as they come out of a store."""

from __future__ import annotations

import re

import mlflow
import pandas as pd
import pytest

from rbptrack.analysis.rank_store import Unreadable
from rbptrack.analysis.runs import Filters
from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.tracking import Outbox, Record, Store
from tests.store_fixtures import WriteCell


def test_columns_are_typed_and_named_without_prefix(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(2000))
    smaller = write_cell(1000)
    began = Record.read(smaller).began
    Outbox(store).deliver(smaller)
    frame = store.runs().frame
    assert frame["name"].tolist() == ["nano-1000/wiki", "nano-2000/wiki"]  # by size
    assert frame["non_embedding_params"].tolist() == [1000, 2000]
    assert frame["documents"].tolist() == [30, 30]
    assert frame["commit"].tolist() == ["org/nano@1000", "org/nano@2000"]
    assert frame["seq_len"].dtype == "Int64"
    assert frame["ce"].dtype == "Float64"
    assert isinstance(frame["started"].dtype, pd.DatetimeTZDtype)
    assert frame["started"][0] == pd.Timestamp(int(began * 1000), unit="ms", tz="UTC")
    shares = [name for name in frame.columns if name.startswith("rbp_")]
    assert shares == ["rbp_1", "rbp_1_se", "rbp_10", "rbp_10_se", "rbp_100", "rbp_100_se"]
    assert not [name for name in frame.columns if "." in name or name in ("kind", "seal", "rbp_curve")]


def test_params_are_columns_with_their_types(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(1000, seed=2, tokenizer="org/other"))
    Outbox(store).deliver(write_cell(1000, seed=3))
    frame = store.runs().frame
    assert sorted(frame["seed"].dropna()) == [2, 3]
    assert frame["tokenizer"].dropna().tolist() == ["org/other"]
    assert frame["device"].tolist() == ["cpu"] * 3


def test_filters_and_conditions(store: Store, write_cell: WriteCell) -> None:
    for s in (1000, 2000):
        for dataset in ("wiki", "code"):
            Outbox(store).deliver(write_cell(s, dataset=dataset))
    assert set(store.runs(Filters(dataset=["w*"]))["dataset"]) == {"wiki"}
    assert set(store.runs(Filters(size=["!1000"], dataset=["code"]))["name"]) == {"nano-2000/code"}
    assert len(store.runs(Filters("non_embedding_params > 1500"))) == 2
    chosen = store.runs(Filters(dataset=["wiki"]))["run_id"].tolist()
    assert store.runs(run_ids=chosen)["run_id"].tolist() == chosen
    with pytest.raises(BadInput):
        store.runs(run_ids=[])
    for arguments in ({"family": ["gpt*"]}, {"where": "ce < 0"}, {"where": "nothing == 1"}, {"sweep": ["other"]}):
        with pytest.raises(BadInput):
            store.runs(Filters(**arguments))


def test_a_sweep_has_what_it_measured_and_what_it_found(store: Store, write_cell: WriteCell) -> None:
    before = Outbox(store).deliver(write_cell(1000, sweep="first"))
    new = Outbox(store).deliver(write_cell(2000, sweep="second"))
    assert store.runs(Filters(sweep=["second"]))["run_id"].tolist() == [new]
    store.save("sweep", "second", sweep="second", covers=[before, new])
    assert store.runs(Filters(sweep=["sec*"]))["run_id"].tolist() == [before, new]
    assert store.runs(Filters(sweep=["first"]))["run_id"].tolist() == [before]


def test_an_unknown_sweep_is_answered_with_the_newest_sweeps(store: Store, write_cell: WriteCell) -> None:
    made = [f"sweep{number:02d}" for number in range(12, 0, -1)]  # the newest is alphabetically first
    for number, name in enumerate(made):
        Outbox(store).deliver(write_cell(1000 + number, sweep=name))
    with pytest.raises(BadInput) as refused:
        store.runs(Filters(sweep=["other"]))
    assert re.findall(r"sweep\d\d", str(refused.value)) == made[:1:-1]


def test_runs_of_others_in_the_experiment_are_left_alone(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    mlflow.set_tracking_uri(store.uri)
    try:
        mlflow.set_experiment("rbptrack")
        with mlflow.start_run():
            mlflow.log_metric("ce", 1.0)
    finally:
        mlflow.set_tracking_uri(None)
        mlflow.tracking.fluent._active_experiment_id = None
    assert store.runs()["run_id"].tolist() == [run_id]


def test_ranks_texts_and_sources_are_read_on_demand(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell(documents=60, groups=20)
    table = RankTable.read(folder / "ranks.parquet")
    run_id = Outbox(store).deliver(folder)
    runs = store.runs()
    assert runs.ranks(run_id).table.equals(table.table)
    assert sum(len(piece) for piece in runs.rank_pieces(run_id)) == len(table)
    assert runs.histogram(run_id).ce == pytest.approx(table.ce)
    assert runs.token_texts(run_id, [0, 7]) == ['" the"', "id 7"]
    assert runs.groups(run_id)[:2] == ["site 0", "site 1"]
    assert runs["groups"].tolist() == [20]
    assert len(runs.document_counts(run_id, [10]).tokens) == 20


def test_a_missing_artifact_is_one_line(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    store.artifact(run_id, "ranks.parquet").unlink()
    with pytest.raises(Unreadable, match=run_id):
        store.runs().ranks(run_id)


def test_what_a_store_has_is_said_where_nothing_was_measured(store: Store, write_cell: WriteCell) -> None:
    with pytest.raises(BadInput, match="no experiment rbptrack"):
        store.runs()
    Outbox(store).deliver(write_cell())
    with pytest.raises(BadInput, match="Experiments: rbptrack"):
        Store(experiment="other").runs()


def test_scores_are_kept_once_and_the_newest_of_a_model_and_task_counts(store: Store) -> None:
    table = pd.DataFrame({"model": ["a", "b"], "revision": "", "task": "arc", "score": [0.25, 0.5], "n": [100, None]})
    assert store.save_scores(table, "first.json")
    assert not store.save_scores(table, "again.json")
    assert store.save_scores(table.assign(score=[0.3, 0.5]), "second.json")
    scores = store.scores()
    assert scores.sort_values("model")["score"].tolist() == [0.3, 0.5]
    assert scores["model"].tolist() == ["a", "b"]
    with pytest.raises(BadInput):
        store.runs()
