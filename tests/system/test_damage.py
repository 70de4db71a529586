"""Tests that a flipped bit in a file, or an alteration of a store, never changes a number without an error."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import RbptrackError
from rbptrack.base.parquet import read_table
from rbptrack.config.compose import compose
from rbptrack.engine import Transformers, measure
from rbptrack.engine.blocks import Blocks
from rbptrack.exchange import export_bundle, import_bundle
from rbptrack.measurement.document import names_of
from rbptrack.measurement.parts import Label
from rbptrack.measurement.record import read_measurement
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources import cache
from rbptrack.sweep import resolve
from rbptrack.sweep.load import Loader
from rbptrack.tracking import Outbox, Store
from tests.conftest import examples
from tests.system import small_stores

READERS: dict[str, Callable[[Path], Any]] = {
    "ranks.parquet": lambda path: RankTable.read(path).table,
    "histogram.parquet": lambda path: values_of(RankHistogram.read(path)),
    "documents.parquet": read_table,
}
"""How analyzers read the files of a run, by file name. rbptrack only compares the hashes of all other files."""

FILES_OF_WAITING_CELL = ("record.json", "store.json", "ranks.parquet")
NUMBER = itertools.count()


def new_experiment_name() -> str:
    """Return the name of an experiment that no other example has used."""
    return f"example{next(NUMBER)}"


def values_of(histogram: RankHistogram) -> dict[str, object]:
    return {name: np.asarray(value).tolist() for name, value in vars(histogram).items()}


@dataclass(frozen=True)
class CheckedFile:
    """A file and its check.

    Attributes:
        path: the file.
        check: function that reads the file after a test has changed it. It raises RbptrackError if rbptrack notices the
            change. It raises AssertionError if rbptrack does not notice the change and reads other contents.

    """

    path: Path
    check: Callable[[], None]


def artifacts_of(store: Store) -> Iterator[CheckedFile]:
    """Yield the files of a run. `verify` must find a changed file. Readers must refuse it or read the original."""
    (run,) = store.finished_runs()
    for path in store.artifact(run.info.run_id, "record.json").parent.iterdir():
        if path.suffix == ".png":  # rbptrack never reads pictures
            continue
        read = READERS.get(path.name)
        before = read(path) if read else None

        def check(path: Path = path, read: Callable[[Path], Any] | None = read, before: Any = before) -> None:
            assert list(store.verify())
            assert read is None or read(path) == before

        yield CheckedFile(path, check)


def bundle_of(store: Store, path: Path) -> CheckedFile:
    """Export a store to a bundle. If the bundle is changed, the import must refuse it or import the original values."""
    export_bundle(store.runs(), path)
    expected = small_stores.metrics_and_hashes(store)

    def check() -> None:
        target = Store(store.uri, new_experiment_name())
        import_bundle(path, target)
        assert small_stores.metrics_and_hashes(target) == expected
        assert not list(target.verify())

    return CheckedFile(path, check)


def block_of_unfinished_measurement(folder: Path) -> CheckedFile:
    """Interrupt the measurement of a cell. A changed block must be left out, or have the original scores."""
    (config,) = compose(["model=nano/6k", *small_stores.SMALL_SWEEP])
    model, corpus = Loader().load(resolve(config))

    def interrupt(tokens: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(Transformers(model, corpus, config.engine), corpus, ks=[10], folder=folder, progress=interrupt)
    (path,) = (folder / "blocks").glob("*.parquet")
    original = RankTable.read(path).table

    def check() -> None:
        blocks = Blocks(corpus, folder / "blocks")
        for block in blocks.saved:
            assert blocks.read(block).table.equals(original)

    return CheckedFile(path, check)


def cached_documents() -> CheckedFile:
    """Save documents in the user's cache. If the file is changed, the cache must still return the documents."""
    table = pa.table({"id": ["a", "b"] * 50, "text": ["Some words.", "Others."] * 50})

    def read() -> pa.Table:
        return cache.cached_table("damage", table.schema, lambda: table)

    def check() -> None:
        assert read().equals(table)

    read()
    return CheckedFile(cache.root() / "damage.parquet", check)


def files_of_waiting_cell(folder: Path) -> Iterator[CheckedFile]:
    """Measure a cell without delivering it, and yield its files.

    If a file is changed, the store must refuse the measurement or get the original numbers.
    """
    folder.mkdir()
    words = ("model=nano/6k", *small_stores.SMALL_SWEEP, "analyzers=[]", "deliver=false")
    small_stores.run_rbptrack(folder, *words)
    (cell,) = (path for path in (folder / "mlruns/cells").iterdir() if path.is_dir())
    expected = read_measurement(cell).metrics

    def check() -> None:
        target = Store(f"sqlite:///{folder}/mlflow.db", new_experiment_name())
        shutil.copytree(cell, copy := folder / "copy" / cell.name)
        try:
            Outbox(target).deliver(copy)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        (run,) = target.finished_runs()
        metrics = {name: value for name, value in run.data.metrics.items() if name != "rbp_curve"}
        assert metrics == expected
        assert not list(target.verify())

    for name in FILES_OF_WAITING_CELL:
        yield CheckedFile(cell / name, check)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CheckedFile]]:
    """A file of every kind, by its name."""
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        store = small_stores.build_store(folder / "store", "nano/6k")
        files = {f"artifact {file.path.name}": file for file in artifacts_of(store)}
        files["bundle"] = bundle_of(store, folder / "bundle.zip")
        files["block"] = block_of_unfinished_measurement(folder / "unfinished")
        files["cache"] = cached_documents()
        files |= {f"waiting {file.path.name}": file for file in files_of_waiting_cell(folder / "waiting")}
        yield files


@examples(120)
@given(data=st.data())
def test_flipped_bit_in_file_is_noticed_or_changes_nothing(files: dict[str, CheckedFile], data: st.DataObject) -> None:
    file = files[data.draw(st.sampled_from(sorted(files)), "file")]
    content = file.path.read_bytes()
    byte = data.draw(st.integers(0, len(content) - 1), "byte")
    bit = data.draw(st.integers(0, 7), "bit")
    flipped = bytearray(content)
    flipped[byte] ^= 1 << bit
    file.path.write_bytes(flipped)
    try:
        file.check()
    except RbptrackError:
        pass  # the damage was noticed
    finally:
        file.path.write_bytes(content)


@dataclass(frozen=True)
class Value:
    """A value of a run in MLflow's database that the record of the run seals.

    Attributes:
        table: the table of the database.
        row: the ID of the row.
        name: the name of the metric, param or tag.
        value: the value.

    """

    table: str
    row: int
    name: str
    value: float | str

    def alter(self, database: sqlite3.Connection) -> None:
        """Change the last bit of a number, or lengthen a text."""
        altered = np.nextafter(self.value, np.inf) if isinstance(self.value, float) else f"{self.value}1"
        database.execute(f"update {self.table} set value = ? where rowid = ?", (altered, self.row))

    def delete(self, database: sqlite3.Connection) -> None:
        database.execute(f"delete from {self.table} where rowid = ?", (self.row,))


def sealed_values(database: sqlite3.Connection, run_id: str) -> Iterator[Value]:
    """Yield all values of a run that `verify` compares. Only the curve of RBP_k is read from the table `metrics`."""
    not_sealed = ("rbptrack.kind", "rbptrack.writer", *(f"rbptrack.{label}" for label in names_of(Label)))
    for table in ("latest_metrics", "metrics", "params", "tags"):
        rows = database.execute(f"select rowid, key, value from {table} where run_uuid = ?", (run_id,)).fetchall()
        for row, name, value in rows:
            if table == "tags" and (not name.startswith("rbptrack.") or name in not_sealed):
                continue
            if table not in ("latest_metrics", "metrics") or (name == "rbp_curve") == (table == "metrics"):
                yield Value(table, row, name, value)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of two measurements."""
    return small_stores.build_store(tmp_path_factory.mktemp("altered") / "store", "nano/6k", "nano/15k")


@examples(40)
@given(data=st.data())
def test_verify_finds_altered_value(store: Store, data: st.DataObject) -> None:
    """Alterations of other kinds are in tests/tracking/test_verify.py."""
    run_id = next(store.finished_runs()).info.run_id
    path = store.uri.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(":memory:")) as backup:
        database.backup(backup)
        value = data.draw(st.sampled_from(list(sealed_values(database, run_id))), "value")
        change = data.draw(st.sampled_from([Value.alter, Value.delete]), "change")
        change(value, database)
        database.commit()
        try:
            assert {fault.run_id for fault in store.verify()} == {run_id}
        finally:
            backup.backup(database)


def test_verify_of_unaltered_store_finds_nothing(store: Store) -> None:
    assert not list(store.verify())
