"""One bit flipped at a time in every kind of file: noticed, or harmless; never read as another number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rbptrack.base.errors import RbptrackError
from rbptrack.base.parquet import read_table
from rbptrack.config.compose import compose
from rbptrack.engine.blocks import Blocks
from rbptrack.exchange import export_bundle, import_bundle
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources.cache import cached
from rbptrack.sources.cache import folder as cache_folder
from rbptrack.sweep.cells import resolve
from rbptrack.sweep.load import Loader
from rbptrack.tracking import Outbox, Store
from reliability import store as stores
from reliability.trial import Trial

READERS: dict[str, Callable[[Path], Any]] = {
    "ranks.parquet": lambda path: RankTable.read(path).to_pandas(),
    "histogram.parquet": lambda path: RankHistogram.read(path).__dict__,
    "documents.parquet": lambda path: read_table(path).to_pydict(),
}  # of others `verify` alone reads the hash
WAITING = ("record.json", "store.json", "ranks.parquet")


def run(folder: Path, *, count: int, seed: int = 0) -> Iterator[Trial]:
    """Flip `count` bits, shared out among the kinds of files; makes stores in `folder`."""
    store = stores.build(folder / "store", "nano/6k")
    rng = np.random.default_rng(seed)
    (measured,) = store.finished()
    artifacts = store.artifact(measured.info.run_id, "record.json").parent
    names = sorted(path.name for path in artifacts.iterdir() if path.suffix != ".png")  # rbptrack reads no picture
    share = count // (len(names) + 3 + len(WAITING))
    for name in names:
        yield from _of_store(store, artifacts / name, share, rng)
    yield from _of_bundle(store, folder, share, rng)
    yield from _of_blocks(folder / "blocks", share, rng)
    yield from _of_cache(share, rng)
    yield from _of_waiting(folder / "waiting", share, rng)


def _flipped(path: Path, count: int, rng: np.random.Generator) -> Iterator[str]:
    """Flip bits of a file, one at a time, and put it back."""
    content = path.read_bytes()
    for place in rng.integers(0, len(content), count).tolist():
        bit = int(rng.integers(8))
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        yield f"{path.name}: bit {bit} of byte {place} of {len(content)}"
    path.write_bytes(content)


def _judged(what: str, same: Callable[[], bool], *, noticed: bool = False) -> Trial:
    """`noticed` where reading raises an error for people, `harmless` where it gives the same; else `another` number."""
    try:
        outcome = "harmless" if same() else "another"
    except RbptrackError as error:
        return Trial(what, "noticed", str(error))
    except Exception as error:
        return Trial(what, "traceback", repr(error))
    return Trial(what, "noticed" if outcome == "harmless" and noticed else outcome, "")


def _of_store(store: Store, path: Path, count: int, rng: np.random.Generator) -> Iterator[Trial]:
    """An artifact: what `verify` says, and what analyzers read."""
    read = READERS.get(path.name)
    before = repr(read(path)) if read else ""
    arrays = _arrays(read(path)) if read else {}
    for what in _flipped(path, count, rng):
        noticed = bool(list(store.verify()))
        if read is None:
            yield Trial(what, "noticed" if noticed else "another", "")
        else:
            yield _judged(what, lambda: _equal(arrays, _arrays(read(path))), noticed=noticed)
    assert not read or repr(read(path)) == before


def _of_bundle(store: Store, folder: Path, count: int, rng: np.random.Generator) -> Iterator[Trial]:
    path = folder / "bundle.zip"
    export_bundle(store.runs(), path)
    expected = stores.numbers(store)
    for number, what in enumerate(_flipped(path, count, rng)):
        other = Store(store.uri, f"other{number}")

        def same(into: Store = other) -> bool:
            import_bundle(path, into)
            return stores.numbers(into) == expected and not list(into.verify())

        yield _judged(f"bundle: {what}", same)


def _of_blocks(folder: Path, count: int, rng: np.random.Generator) -> Iterator[Trial]:
    """A block of an unfinished measurement: measured again, or the same."""
    (config,) = compose(["model=nano/6k", *stores.SMALL])
    model, corpus = Loader().load(resolve(config))
    from rbptrack.engine.measure import measure

    measured = measure(model, corpus, ks=[10], engine=config.engine, folder=folder)
    (path,) = (folder / "blocks").glob("*.parquet")
    kept = path.read_bytes()
    for what in _flipped(path, count, rng):
        damaged = path.read_bytes()
        blocks = Blocks(corpus, folder / "blocks")
        if not blocks.saved:
            yield Trial(f"block {what}", "noticed", "")
        else:
            table = next(iter(blocks.tables()))[1]
            same = table.table.equals(measured.ranks.table)
            yield Trial(f"block {what}", "harmless" if same else "another", "")
        path.write_bytes(damaged)
    path.write_bytes(kept)


def _of_cache(count: int, rng: np.random.Generator) -> Iterator[Trial]:
    """Documents as the user's cache keeps them: the same, or made anew."""
    table = pa.table({"id": ["a", "b"] * 50, "text": ["Some words.", "Others."] * 50})
    cached("bits", table.schema, lambda: table)
    path = cache_folder() / "bits.parquet"
    for what in _flipped(path, count, rng):
        yield _judged(f"cached {what}", lambda: cached("bits", table.schema, lambda: table).equals(table))


def _of_waiting(folder: Path, count: int, rng: np.random.Generator) -> Iterator[Trial]:
    """A finished measurement that waits for its store: delivered as it was, refused, or left where it is."""
    folder.mkdir()
    code, said = stores.ran(folder, "model=nano/6k", *stores.SMALL, "deliver=false")
    assert code == 0, said
    (cell,) = (path for path in (folder / "mlruns/cells").iterdir() if path.is_dir())
    metrics = json.loads((cell / "record.json").read_text())["metrics"]
    for name in WAITING:
        for number, what in enumerate(_flipped(cell / name, count, rng)):
            store = Store(f"sqlite:///{folder}/mlflow.db", f"{name.partition('.')[0]}{number}")

            def same(into: Store = store) -> bool:
                Outbox(into).deliver(cell, keep=True)
                (logged,) = into.finished()
                found = {key: value for key, value in logged.data.metrics.items() if key != "rbp_curve"}
                return found == metrics and not list(into.verify())

            yield _judged(f"waiting {what}", same)
    shutil.rmtree(cell)


def _arrays(read: Any) -> dict[str, Any]:
    data = read if isinstance(read, dict) else {name: read[name] for name in read}
    return {str(name): np.asarray(column) for name, column in data.items()}


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
