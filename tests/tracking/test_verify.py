"""What was measured is what the store says: the seal, the hashes, the ranks."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.tracking import Record, Store
from tests.cells import Measured

FILES = (
    "ranks.parquet",
    "histogram.parquet",
    "documents.parquet",
    "config.yaml",
    "tokens.json",
    "record.json",
)
ALTERATIONS = {
    "a metric by its last digit": "update latest_metrics set value = value + 1e-15 where key = 'ce'",
    "S": "update latest_metrics set value = 39000 where key = 'non_embedding_params'",
    "bits per byte": "update latest_metrics set value = value * 2 where key = 'bits_per_byte'",
    "a standard error": "update latest_metrics set value = 0 where key = 'rbp_10_se'",
    "a metric taken away": "delete from latest_metrics where key = 'rbp_100'",
    "a metric added": "update latest_metrics set key = 'rbp_99' where key = 'rbp_100'",
    "a param": "update params set value = 'bfloat16' where key = 'dtype'",
    "a param taken away": "delete from params where key = 'seq_len'",
    "a param added": "insert into params select 'seed', '7', run_uuid from runs",
    "the family": "update tags set value = 'other' where key = 'rbptrack.family'",
    "the dataset": "update tags set value = 'other' where key = 'rbptrack.dataset'",
    "the fingerprint": "update tags set value = 'f' where key = 'rbptrack.fingerprint'",
    "the commit": "delete from tags where key = 'rbptrack.commit'",
    "the seal": "update tags set value = 'f' where key = 'rbptrack.seal'",
    "the seal taken away": "delete from tags where key = 'rbptrack.seal'",
    "a point of the curve": "update metrics set value = value / 2 where key = 'rbp_curve' and step = 7",
    "a k of the curve": "update metrics set step = 511 where key = 'rbp_curve' and step = 512",
    "a point taken away": "delete from metrics where key = 'rbp_curve' and step = 7",
}


def test_a_store_that_nobody_touched_has_no_fault(store: Store, measured: Measured) -> None:
    store.deliver(measured(1000))
    store.deliver(measured(2000, documents=40, sources=20))
    store.save_view()
    assert list(store.verify(repair=True)) == []
    assert len(store.runs()) == 2


def test_an_experiment_that_is_not_there_is_not_sound(store: Store, measured: Measured) -> None:
    store.deliver(measured())
    with pytest.raises(BadInput, match="other"):
        list(Store(store.uri, "other").verify())


def test_every_alteration_is_noticed(store: Store, measured: Measured) -> None:
    run_id = store.deliver(measured())
    noticed = []
    with closing(sqlite3.connect("mlflow.db")) as database, closing(sqlite3.connect(":memory:")) as before:
        database.backup(before)
        for what, statement in ALTERATIONS.items():
            assert database.execute(statement).rowcount > 0, what
            database.commit()
            if {fault.run_id for fault in store.verify()} == {run_id}:
                noticed.append(what)
            before.backup(database)
    assert noticed == list(ALTERATIONS)
    assert list(store.verify()) == []


def test_flipped_bits_and_missing_files_are_noticed(store: Store, measured: Measured) -> None:
    run_id = store.deliver(measured())
    rng = np.random.default_rng(0)
    for name in FILES:
        path = store.artifact(run_id, name)
        content = path.read_bytes()
        for place in rng.integers(0, len(content), 6).tolist():
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            assert list(store.verify()), (name, place)
        path.unlink()
        assert [name in fault.text for fault in store.verify()] == [True]
        path.write_bytes(content)
    assert list(store.verify()) == []


def test_numbers_that_the_ranks_do_not_give_are_noticed_though_they_are_sealed(
    store: Store, measured: Measured
) -> None:
    folder = measured()
    table = RankTable.read(folder / "ranks.parquet")
    greater = table.column("greater").copy()
    greater[0] = 200
    columns = {name: table.column(name) for name in table.table.column_names}
    RankTable.from_arrays(vocab_size=512, **columns | {"greater": greater}).write(folder / "ranks.parquet")
    Record.read(folder).write(folder)
    store.deliver(folder)
    assert any("rbp_100" in fault.text for fault in store.verify())


def test_repair_lets_the_next_sweep_measure_again(store: Store, measured: Measured) -> None:
    folder = measured()
    name = folder.name
    damaged = store.deliver(folder)
    sound = store.deliver(measured(1000))
    store.artifact(damaged, "ranks.parquet").unlink()
    assert len(list(store.verify(repair=True))) == 1
    assert store.find(name) is None
    assert store.runs()["run_id"].tolist() == [sound]
    assert store.connection.client.get_run(damaged).data.tags["rbptrack.damaged"]
    again = store.deliver(measured())
    assert store.find(name) == again
    assert list(store.verify()) == []
