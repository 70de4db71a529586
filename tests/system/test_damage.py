"""Tests that a flipped bit in a file, or an alteration of a store, never changes a number without an error."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
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
from rbptrack.measurement.record import read_measurement
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources import cache
from rbptrack.sweep import resolve
from rbptrack.sweep.load import Loader
from rbptrack.tracking import Outbox, Store
from tests.conftest import examples
from tests.system import small_stores
from tests.system.alterations import alterations_of

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
    expected = read_measurement(cell).metrics()

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
class AlterableStore:
    """A store of two measurements.

    Attributes:
        store: the store.
        run_id: the run that can be altered.
        alterations: functions that alter the run, by name.
        restore: function that undoes all alterations.

    """

    store: Store
    run_id: str
    alterations: dict[str, Callable[[], object]] = field(repr=False)
    restore: Callable[[], None]


@pytest.fixture(scope="module")
def alterable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AlterableStore]:
    folder = tmp_path_factory.mktemp("altered") / "store"
    store = small_stores.build_store(folder, "nano/6k", "nano/15k")
    run_id, other_run_id = (str(run.info.run_id) for run in store.finished_runs())
    artifacts = store.artifact(run_id, "record.json").parent
    artifacts_of_other = store.artifact(other_run_id, "record.json").parent
    copy = folder / "copy"
    shutil.copytree(artifacts, copy)
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, closing(sqlite3.connect(":memory:")) as backup:
        database.backup(backup)

        def restore() -> None:
            backup.backup(database)
            shutil.rmtree(artifacts)
            shutil.copytree(copy, artifacts)

        alterations = dict(alterations_of(database, run_id, artifacts, artifacts_of_other))
        yield AlterableStore(store, run_id, alterations, restore)


@examples(40)
@given(data=st.data())
def test_verify_finds_altered_run(alterable: AlterableStore, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(alterable.alterations)), "alteration")
    alterable.alterations[name]()
    try:
        assert {fault.run_id for fault in alterable.store.verify()} == {alterable.run_id}
    finally:
        alterable.restore()


def test_verify_of_unaltered_store_finds_nothing(alterable: AlterableStore) -> None:
    assert not list(alterable.store.verify())
