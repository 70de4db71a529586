"""Damaged and altered files: a flipped bit or an edit of the store is noticed or harmless, and never another number."""

from __future__ import annotations

import itertools
import json
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
from rbptrack.engine.blocks import Blocks
from rbptrack.engine.measure import measure
from rbptrack.exchange import export_bundle, import_bundle
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources import cache
from rbptrack.sweep.cells import resolve
from rbptrack.sweep.load import Loader
from rbptrack.tracking import Outbox, Store
from tests.conftest import examples
from tests.system import small_stores
from tests.system.alterations import changes

READERS: dict[str, Callable[[Path], Any]] = {
    "ranks.parquet": lambda path: RankTable.read(path).table,
    "histogram.parquet": lambda path: values_of(RankHistogram.read(path)),
    "documents.parquet": read_table,
}  # analyzers read these files; of all others only the hash is read
WAITING = ("record.json", "store.json", "ranks.parquet")
NUMBER = itertools.count()


def new_name() -> str:
    """The name of an experiment that no other example has used."""
    return f"example{next(NUMBER)}"


def values_of(histogram: RankHistogram) -> dict[str, object]:
    return {name: np.asarray(value).tolist() for name, value in vars(histogram).items()}


@dataclass(frozen=True)
class Damaged:
    """A file, and a check that fails if what is read from it is wrong and nobody is told."""

    path: Path
    check: Callable[[], None]


def artifacts_of(store: Store) -> Iterator[Damaged]:
    """The files of a run: `verify` notices the damage, and readers refuse the file or read what was written."""
    (run,) = store.finished()
    for path in store.artifact(run.info.run_id, "record.json").parent.iterdir():
        if path.suffix == ".png":  # a picture that rbptrack never reads
            continue
        read = READERS.get(path.name)
        before = read(path) if read else None

        def check(path: Path = path, read: Callable[[Path], Any] | None = read, before: Any = before) -> None:
            assert list(store.verify())
            assert read is None or read(path) == before

        yield Damaged(path, check)


def bundle_of(store: Store, path: Path) -> Damaged:
    """A bundle: refused, or imported as it was."""
    export_bundle(store.runs(), path)
    expected = small_stores.measured(store)

    def check() -> None:
        into = Store(store.uri, new_name())
        import_bundle(path, into)
        assert small_stores.measured(into) == expected
        assert not list(into.verify())

    return Damaged(path, check)


def block(folder: Path) -> Damaged:
    """A block of an unfinished measurement: read as it was, or measured again."""
    (config,) = compose(["model=nano/6k", *small_stores.SMALL])
    model, corpus = Loader().load(resolve(config))
    measured = measure(model, corpus, ks=[10], engine=config.engine, folder=folder)
    (path,) = (folder / "blocks").glob("*.parquet")

    def check() -> None:
        blocks = Blocks(corpus, folder / "blocks")
        for _, table in blocks.tables() if blocks.saved else ():
            assert table.table.equals(measured.ranks.table)

    return Damaged(path, check)


def cached_documents() -> Damaged:
    """Documents in the user's cache: read as they were, or made anew."""
    table = pa.table({"id": ["a", "b"] * 50, "text": ["Some words.", "Others."] * 50})

    def read() -> pa.Table:
        return cache.cached_table("damage", table.schema, lambda: table)

    def check() -> None:
        assert read().equals(table)

    read()
    return Damaged(cache.folder() / "damage.parquet", check)


def waiting_measurement(folder: Path) -> Iterator[Damaged]:
    """A finished measurement that waits for its store: refused, or delivered as it was."""
    folder.mkdir()
    small_stores.ran(folder, "model=nano/6k", *small_stores.SMALL, "analyzers=[]", "deliver=false")
    (cell,) = (path for path in (folder / "mlruns/cells").iterdir() if path.is_dir())
    metrics = json.loads((cell / "record.json").read_text())["metrics"]

    def check() -> None:
        into = Store(f"sqlite:///{folder}/mlflow.db", new_name())
        Outbox(into).deliver(cell, keep=True)
        (logged,) = into.finished()
        found = {key: value for key, value in logged.data.metrics.items() if key != "rbp_curve"}
        assert found == metrics
        assert not list(into.verify())

    for name in WAITING:
        yield Damaged(cell / name, check)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Damaged]]:
    """A file of every kind, by name."""
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        store = small_stores.build(folder / "store", "nano/6k")
        files = {f"artifact {each.path.name}": each for each in artifacts_of(store)}
        files["bundle"] = bundle_of(store, folder / "bundle.zip")
        files["block"] = block(folder / "unfinished")
        files["cache"] = cached_documents()
        files |= {f"waiting {each.path.name}": each for each in waiting_measurement(folder / "waiting")}
        yield files


@examples(120)
@given(data=st.data())
def test_a_flipped_bit_is_never_another_number(damaged: dict[str, Damaged], data: st.DataObject) -> None:
    file = damaged[data.draw(st.sampled_from(sorted(damaged)), "file")]
    content = file.path.read_bytes()
    byte = data.draw(st.integers(0, len(content) - 1), "byte")
    bit = data.draw(st.integers(0, 7), "bit")
    flipped = bytearray(content)
    flipped[byte] ^= 1 << bit
    file.path.write_bytes(flipped)
    try:
        file.check()
    except RbptrackError:
        pass  # noticed
    finally:
        file.path.write_bytes(content)


@dataclass(frozen=True)
class Altered:
    """A store of two measurements, and the ways to alter the first of them."""

    store: Store
    run_id: str
    ways: dict[str, Callable[[], object]] = field(repr=False)
    restore: Callable[[], None]


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Altered]:
    folder = tmp_path_factory.mktemp("altered") / "store"
    store = small_stores.build(folder, "nano/6k", "nano/15k")
    run_id, other = (str(run.info.run_id) for run in store.finished())
    files, files_of_other = (store.artifact(run, "record.json").parent for run in (run_id, other))
    kept = folder / "kept"
    shutil.copytree(files, kept)
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, closing(sqlite3.connect(":memory:")) as before:
        database.backup(before)

        def restore() -> None:
            before.backup(database)
            shutil.rmtree(files)
            shutil.copytree(kept, files)

        yield Altered(store, run_id, dict(changes(database, run_id, files, files_of_other)), restore)


@examples(40)
@given(data=st.data())
def test_verify_notices_what_is_altered(altered: Altered, data: st.DataObject) -> None:
    change = altered.ways[data.draw(st.sampled_from(sorted(altered.ways)), "way")]
    change()
    try:
        assert {fault.run_id for fault in altered.store.verify()} == {altered.run_id}
    finally:
        altered.restore()


def test_verify_finds_nothing_where_nothing_is_altered(altered: Altered) -> None:
    assert not list(altered.store.verify())
