"""Tests of `Store.runs` and `Store.scores`: columns, filters, and what is read with each measurement."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from rbptrack.analysis.filters import Filters
from rbptrack.analysis.rank_store import Unreadable
from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError
from rbptrack.config.schema import Dtype
from rbptrack.measurement.record import ReportRecord, read_measurement
from rbptrack.ranks import RankTable
from rbptrack.tracking import Outbox, Store
from tests.conftest import block_reading
from tests.store_fixtures import WriteCell


def sweep_of(run_ids: Sequence[str]) -> ReportRecord:
    """Return the record of the sweep "second", which used measurements."""
    return ReportRecord(title="second", tags={"rbptrack.sweep": "second"}, covered_run_ids=list(run_ids))


def test_runs_are_ordered_by_size(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(2000))
    Outbox(store).deliver(write_cell(1000))
    frame = store.runs().frame
    assert frame["name"].tolist() == ["nano-1000/wiki", "nano-2000/wiki"]
    assert frame["non_embedding_params"].tolist() == [1000, 2000]
    assert frame["documents"].tolist() == [30, 30]
    assert frame["commit"].tolist() == ["org/nano@1000-0", "org/nano@2000-0"]


def test_runs_columns_have_types(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell(1000)
    began = read_measurement(folder).began
    Outbox(store).deliver(folder)
    frame = store.runs().frame
    assert frame["seq_len"].dtype == "Int64"
    assert frame["ce"].dtype == "Float64"
    assert isinstance(frame["started"].dtype, pd.DatetimeTZDtype)
    assert frame["started"][0] == pd.Timestamp(int(began * 1000), unit="ms", tz="UTC")


def test_runs_columns_have_no_prefix_and_hold_every_rbp_with_its_error(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    columns = store.runs().frame.columns
    rbp_columns = [name for name in columns if name.startswith("rbp_")]
    assert rbp_columns == ["rbp_1", "rbp_1_se", "rbp_10", "rbp_10_se", "rbp_100", "rbp_100_se"]
    assert not [name for name in columns if "." in name]
    assert not {"kind", "seal", "rbp_curve"} & set(columns)


def test_runs_columns_hold_params_and_are_empty_if_a_run_lacks_one(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(1000, seed=2, tokenizer="org/other"))
    Outbox(store).deliver(write_cell(1000, seed=3))
    frame = store.runs().frame
    assert sorted(frame["seed"].dropna()) == [2, 3]
    assert frame["tokenizer"].dropna().tolist() == ["org/other"]
    assert frame["device"].tolist() == ["cpu"] * 3


@pytest.fixture
def store_of_four(store: Store, write_cell: WriteCell) -> Store:
    """A store with two sizes on two datasets."""
    for s in (1000, 2000):
        for dataset in ("wiki", "code"):
            Outbox(store).deliver(write_cell(s, dataset=dataset))
    return store


def test_runs_with_filters_are_those_that_pass_all(store_of_four: Store) -> None:
    assert set(store_of_four.runs(Filters(dataset=["w*"]))["dataset"]) == {"wiki"}
    assert set(store_of_four.runs(Filters(size=["!1000"], dataset=["code"]))["name"]) == {"nano-2000/code"}
    assert len(store_of_four.runs(Filters("non_embedding_params > 1500"))) == 2


def test_runs_with_run_ids_are_those_runs(store_of_four: Store) -> None:
    run_ids = store_of_four.runs(Filters(dataset=["wiki"]))["run_id"].tolist()
    assert store_of_four.runs(run_ids=run_ids)["run_id"].tolist() == run_ids


def test_runs_refuses_an_empty_list_of_run_ids(store_of_four: Store) -> None:
    with pytest.raises(BadInput):
        store_of_four.runs(run_ids=[])


@pytest.mark.parametrize(
    ("filters", "value"),
    [
        ({"family": ["gpt*"]}, "gpt"),
        ({"where": "ce < 0"}, "ce < 0"),
        ({"where": "nothing == 1"}, "nothing"),
        ({"sweep": ["other"]}, "other"),
    ],
)
def test_runs_refuses_filters_that_no_measurement_passes(
    filters: dict[str, Any], value: str, store: Store, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell(1000))
    with pytest.raises(BadInput, match=re.escape(value)):
        store.runs(Filters(**filters))


def test_runs_of_a_sweep_are_those_that_it_measured_or_reused(store: Store, write_cell: WriteCell) -> None:
    reused = Outbox(store).deliver(write_cell(1000, sweep="first"))
    measured = Outbox(store).deliver(write_cell(2000, sweep="second"))
    assert store.runs(Filters(sweep=["second"]))["run_id"].tolist() == [measured]
    store.save("sweep", sweep_of([reused, measured]))
    assert store.runs(Filters(sweep=["sec*"]))["run_id"].tolist() == [reused, measured]
    assert store.runs(Filters(sweep=["first"]))["run_id"].tolist() == [reused]


def test_measurements_of_a_sweep_have_the_names_that_they_have_among_all(store: Store, write_cell: WriteCell) -> None:
    for dtype in (Dtype.float32, Dtype.bfloat16):
        Outbox(store).deliver(write_cell(sweep=dtype.value, dtype=dtype))
    [row] = store.runs(Filters(sweep=["bfloat16"]))
    assert row["dtype"] == "bfloat16"
    assert store.runs().row(row["name"])["run_id"] == row["run_id"]


def test_a_measurement_without_a_sweep_matches_no_beginning_of_a_sweep(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000, sweep="first"))
    Outbox(store).deliver(write_cell(2000, sweep=""))
    for pattern in ("n*", "N*", "<*"):
        with pytest.raises(BadInput):
            store.runs(Filters(sweep=[pattern]))


def test_runs_of_an_unknown_sweep_are_refused_with_the_ten_newest_sweeps(store: Store, write_cell: WriteCell) -> None:
    # The newest sweep is sweep01, the first in alphabetical order.
    sweeps = [f"sweep{number:02d}" for number in range(12, 0, -1)]
    for number, name in enumerate(sweeps):
        Outbox(store).deliver(write_cell(1000 + number, sweep=name))
    with pytest.raises(BadInput) as error:
        store.runs(Filters(sweep=["other"]))
    newest_first = sweeps[::-1]
    assert re.findall(r"sweep\d\d", str(error.value)) == newest_first[:10]


def test_a_run_with_a_wrong_time_is_left_out_and_reported(
    store: Store, write_cell: WriteCell, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Outbox(store).deliver(write_cell(1000))
    wrong = Outbox(store).deliver(write_cell(2000))
    with closing(sqlite3.connect(store.connection.database)) as database, database:  # SQLite checks no types
        database.execute("update runs set start_time = 'yesterday' where run_uuid = ?", [wrong])
    assert store.runs()["run_id"].tolist() == [kept]
    assert wrong in capsys.readouterr().err
    assert {fault.run_id for fault in store.verify()} == {wrong}


def test_runs_leaves_out_runs_that_other_programs_logged(store: Store, write_cell: WriteCell) -> None:
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


def test_runs_read_ranks_and_texts_of_a_measurement(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell(documents=60, groups=20)
    table = RankTable.read(folder / "ranks.parquet")
    run_id = Outbox(store).deliver(folder)
    runs = store.runs()
    assert runs.ranks(run_id).table.equals(table.table)
    assert sum(len(piece) for piece in runs.rank_pieces(run_id)) == len(table)
    assert runs.histogram(run_id).ce == pytest.approx(table.ce)
    assert runs.token_texts(run_id, [0, 7]) == ['" the"', "id 7"]


def test_runs_count_tokens_by_group_if_groups_are_known(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell(documents=60, groups=20))
    runs = store.runs()
    assert runs.groups(run_id)[:2] == ["site 0", "site 1"]
    assert runs["groups"].tolist() == [20]
    assert len(runs.document_counts(run_id, [10]).tokens) == 20


def test_runs_name_the_measurement_whose_ranks_are_missing(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    store.artifact(run_id, "ranks.parquet").unlink()
    with pytest.raises(Unreadable, match=run_id):
        store.runs().ranks(run_id)


def test_runs_name_the_reason_of_the_system_if_ranks_cannot_be_opened(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    block_reading(store.artifact(run_id, "ranks.parquet"))
    with pytest.raises(Unreadable, match=f"{run_id}.*{os.strerror(errno.ELOOP)}"):
        store.runs().ranks(run_id)


def test_runs_of_an_experiment_that_does_not_exist_are_refused_with_those_that_do(
    store: Store, write_cell: WriteCell
) -> None:
    with pytest.raises(BadInput, match="no experiment rbptrack"):
        store.runs()
    Outbox(store).deliver(write_cell())
    with pytest.raises(BadInput, match="Experiments: rbptrack"):
        Store(experiment="other").runs()


def score_table(scores: list[float]) -> pd.DataFrame:
    """Make the scores of the models `a` and `b` in the task `arc`."""
    return pd.DataFrame({"model": ["a", "b"], "revision": "", "task": "arc", "score": scores, "n": [100, None]})


def test_save_scores_saves_the_same_scores_once(store: Store) -> None:
    assert store.save_scores(score_table([0.25, 0.5]), "first.json") is not None
    assert store.save_scores(score_table([0.25, 0.5]), "again.json") is None


def test_scores_are_the_newest_of_each_model_and_task(store: Store) -> None:
    store.save_scores(score_table([0.25, 0.5]), "first.json")
    assert store.save_scores(score_table([0.3, 0.5]), "second.json") is not None
    scores = store.scores()
    assert scores.sort_values("model")["score"].tolist() == [0.3, 0.5]
    assert scores["model"].tolist() == ["a", "b"]


def put_a_folder_in_place_of(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flip_a_bit(path: Path) -> None:
    """Flip a bit in the middle of a file: a digit becomes another digit, and a letter another letter."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


KINDS_OF_DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "a flipped bit": flip_a_bit,
    "a number": lambda path: path.write_bytes(b"5"),
    "an object": lambda path: path.write_bytes(b'{"model": 1}'),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a folder": put_a_folder_in_place_of,
    "a loop of links": block_reading,
}
"""Functions that damage a file, by what remains of it."""


@pytest.mark.parametrize("damage", KINDS_OF_DAMAGE)
def test_damaged_scores_are_refused_and_kept(damage: str, store: Store) -> None:
    store.save_scores(score_table([0.25, 0.5]), "first.json")
    (run,) = store.reports.search("")
    path = store.artifact(run.info.run_id, "scores.csv")
    KINDS_OF_DAMAGE[damage](path)
    with pytest.raises(RbptrackError):
        store.scores()
    with pytest.raises(RbptrackError):
        store.save_scores(score_table([0.25, 0.75]), "second.json")
    assert len(list(store.reports.search(""))) == 1
    assert damage == "missing" or os.path.lexists(path)


@pytest.mark.parametrize("score", ["text", "", "nan", "1e400"])
def test_scores_that_are_not_finite_numbers_are_refused(score: str, store: Store) -> None:
    content = f"model,revision,task,score,n\na,,arc,{score},1\n"
    store.save("scores", ReportRecord(title="scores"), {"scores.csv": content})
    with pytest.raises(MissingArtifact):
        store.scores()


def test_scores_can_be_imported_again_after_verify_marked_the_damaged_ones(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    store.save_scores(score_table([0.25, 0.5]), "first.json")
    (run,) = store.reports.search("")
    flip_a_bit(store.artifact(run.info.run_id, "scores.csv"))
    assert len(list(store.verify(repair=True))) == 1
    assert store.save_scores(score_table([0.25, 0.5]), "first.json") is not None
    assert store.scores()["score"].tolist() == [0.25, 0.5]


@pytest.mark.parametrize("damage", KINDS_OF_DAMAGE)
def test_a_damaged_list_of_the_measurements_of_a_sweep_is_refused_and_reported(
    damage: str, store: Store, write_cell: WriteCell
) -> None:
    reused = Outbox(store).deliver(write_cell(1000, sweep="first"))
    sweep = store.save("sweep", sweep_of([reused]))
    KINDS_OF_DAMAGE[damage](store.artifact(sweep, "record.json"))
    with pytest.raises(RbptrackError):
        store.runs(Filters(sweep=["second"]))
    assert store.runs()["run_id"].tolist() == [reused]
    (fault,) = store.verify()
    assert fault.run_id == sweep


@pytest.mark.parametrize("damage", [*KINDS_OF_DAMAGE][1:])  # not "missing", because imported ranks have no texts
def test_damaged_texts_of_tokens_are_refused(damage: str, store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    KINDS_OF_DAMAGE[damage](store.artifact(run_id, "tokens.json"))
    with pytest.raises(Unreadable, match=run_id):
        store.runs().token_texts(run_id, [0])


@pytest.mark.parametrize("name", ["documents.parquet", "unscored.parquet"])
def test_a_damaged_table_of_documents_is_refused_but_a_missing_one_has_no_rows(
    name: str, store: Store, write_cell: WriteCell
) -> None:
    run_id = Outbox(store).deliver(write_cell())
    read = {"documents.parquet": store.documents, "unscored.parquet": store.unscored}[name]
    path = store.artifact(run_id, name)
    flip_a_bit(path)
    with pytest.raises(MissingArtifact):
        read(run_id)
    path.unlink()
    assert not len(read(run_id))


def test_runs_of_a_store_with_only_scores_are_refused(store: Store) -> None:
    store.save_scores(score_table([0.25, 0.5]), "first.json")
    with pytest.raises(BadInput):
        store.runs()
