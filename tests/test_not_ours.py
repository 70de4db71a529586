"""What is not ours is never replaced, waited for or swollen up: devices, FIFOs, links, other databases, YAML bombs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow.exceptions import MlflowException

from rbptrack.analysis.display import as_csv
from rbptrack.analysis.plugin_code import import_path
from rbptrack.base.errors import BadInput, StoreAway
from rbptrack.base.words import from_spreadsheet
from rbptrack.commands import import_, report
from rbptrack.config.schema import TrackingConfig
from rbptrack.config.yaml_files import check_yaml
from rbptrack.tracking.explained import explained
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from tests.imported import rows_of


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table addresses (name text)")


THINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a FIFO": (os.mkfifo, "is a FIFO, no tracking store"),
    "an empty file": (Path.touch, "is an empty file, no tracking store: remove it, or restore it"),
    "another's database": (foreign, "is no tracking store: it holds no table of MLflow's"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "is a link to nowhere, which is not there"),
    "a text": (
        lambda path: path.write_text("no database, but long enough to be looked at " * 30),
        "not a readable database",
    ),
    "a folder": (Path.mkdir, "is a folder, no tracking store"),
}


@pytest.mark.parametrize("thing", THINGS)
def test_what_stands_at_a_stores_address_stays(thing: str, tmp_path: Path) -> None:
    make, expected = THINGS[thing]
    place = tmp_path / "some.db"
    make(place)
    before = os.lstat(place)
    with pytest.raises(BadInput, match=expected):
        Store(TrackingConfig(uri=f"sqlite:///{place}")).open()
    assert os.lstat(place)[:2] == before[:2]  # kind and number
    assert [path.name for path in tmp_path.iterdir()] == ["some.db"]


def test_an_mlruns_that_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlruns").touch()
    with pytest.raises(BadInput, match="mlruns is a file, not a folder"):
        Store(TrackingConfig()).open()
    (tmp_path / "mlruns").unlink()
    (tmp_path / "mlruns").symlink_to("elsewhere")
    with pytest.raises(BadInput, match="mlruns is a link to elsewhere, which is not there: make it, or remove"):
        Store(TrackingConfig()).open()


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("table.csv", "page.html", "plugin.py"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(BadInput, match=r"table\.csv is a FIFO, not a file or folder"):
        import_.main(["table.csv"])
    with pytest.raises(BadInput, match=r"table\.csv is a FIFO, not a file"):
        import_.main([".", "use=authors", "sizes=table.csv"])
    with pytest.raises(BadInput, match=r"page\.html is a FIFO, which is not replaced by a file"):
        report.main(["out=page.html"])
    with pytest.raises(ImportError, match="is a FIFO"):
        import_path(tmp_path / "plugin.py")


BOMBS = {
    "aliases of aliases": "\n".join(
        ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    ),
    "brackets": "path: " + "[" * 3000 + "]" * 3000,
    "itself": "path: &a [*a]",
    "length": "path: " + "x" * (1 << 21),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_yaml_bomb_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(BOMBS[kind])
    with pytest.raises(
        BadInput, match=r"bomb\.yaml (holds more than|is nested too deeply, or holds itself|has .* bytes)"
    ):
        check_yaml(tmp_path / "bomb.yaml")


def test_a_table_that_unpacks_to_more_than_it_may_is_refused(tmp_path: Path) -> None:
    """Before it is unpacked: by what it would take, by its proportion, and one long text in every row."""
    rows = 90_000
    plain = {"model": ["m"] * rows, "dataset": ["d"] * rows, "ce": [1.0] * rows}
    for name, column, dictionary, expected in (
        ("large", ["x" * 3_000] * rows, False, "would unpack to 2..,"),
        ("packed", ["x" * 500] * rows, False, "would unpack to .* times its size"),
        ("long", ["x" * 9_000] * rows, True, "column family: a cell has at most 8,000 characters"),
    ):
        table = pa.table(plain | {"family": column})
        pq.write_table(table, tmp_path / f"{name}.parquet", compression="zstd", use_dictionary=dictionary)
        with pytest.raises(BadInput, match=expected):
            rows_of(tmp_path / f"{name}.parquet")


def test_a_formula_in_a_csv_is_a_text(tmp_path: Path) -> None:
    """Escaped where it is written, and itself again where it is imported; a number stays a number."""
    texts = ["=cmd|x", "+a", "-b", "@c", "'=d", "''-e", "-0.5", "plain", "'quoted"]
    escaped = as_csv(pd.DataFrame({"model": texts, "ce": -1.5})).splitlines()[1:]
    assert [line.partition(",")[0] for line in escaped[:4]] == ["'=cmd|x", "'+a", "'-b", "'@c"]
    assert escaped[6] == "-0.5,-1.5"
    assert [from_spreadsheet(line.partition(",")[0]) for line in escaped] == texts
    frame = pd.DataFrame({"model": texts, "dataset": "@d", "family": "=f", "ce": 1.5})
    (tmp_path / "results.csv").write_text(as_csv(frame))
    records = rows_of(tmp_path / "results.csv")
    assert {(record.tags[Tag.FAMILY], record.tags[Tag.DATASET]) for record in records} == {("=f", "@d")}


def test_an_answer_that_is_cut_off_means_away() -> None:
    """As of a server that is stopped; another program's page means that the address is wrong."""
    said = (
        "API request to endpoint was successful but the response body was not in a valid JSON format. Response body: "
    )
    for body, kind in (('\'{"experiment": {"na\'', StoreAway), ("'<html>'", BadInput)):
        with pytest.raises(kind), explained("http://server"):
            raise MlflowException(said + body)
