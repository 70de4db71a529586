"""What keeps a store fast when it holds many measurements."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine

from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking import Connection, MeasurementTags, Reader, Writer
from rbptrack.tracking.database import from_database
from rbptrack.tracking.filters import tags_like
from rbptrack.tracking.schema import Kind, Tag
from tools import made_stores


def test_a_measurement_is_found_by_an_index(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a store that was made before there was one; and MLflow's own migrations still pass."""
    monkeypatch.chdir(with_store)
    database = with_store / "mlruns/mlflow.db"

    def plan() -> str:
        with closing(sqlite3.connect(database)) as store:
            query = "explain query plan select run_uuid from tags where key = 'rbptrack.fingerprint' and value = 'x'"
            return " ".join(row[3] for row in store.execute(query))

    assert "rbptrack_tags" not in plan()
    connection = Connection(TrackingConfig())
    writer = Writer(connection)
    run = writer.begin("a / b", MeasurementTags("x", "a", "1m", "a-1m", "b", "").tags())
    writer.end(run)
    assert "rbptrack_tags (key=? AND value=?)" in plan()
    assert Reader(connection).find("x") == run
    assert Reader(connection).find("y") is None
    _upgrade_db(create_sqlalchemy_engine(connection.uri))
    assert "rbptrack_tags" in plan()
    assert Reader(Connection(TrackingConfig())).find("x") == run


def test_a_store_that_cannot_be_written_is_read_without_the_index(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(with_store)
    writer = Writer(Connection(TrackingConfig()))
    writer.end(writer.begin("a / b", MeasurementTags("x", "a", "1m", "a-1m", "b", "").tags()))
    database = with_store / "mlruns/mlflow.db"
    with closing(sqlite3.connect(database)) as store, store:
        store.execute("drop index rbptrack_tags")
    monkeypatch.setattr("rbptrack.tracking.local.sqlite3.connect", _read_only)
    assert Reader(Connection(TrackingConfig())).find("x")


_CONNECT = sqlite3.connect


def _read_only(database: str | Path, **options: bool) -> sqlite3.Connection:
    """As where the file's permissions forbid writing (tests may run as root, whom nothing forbids)."""
    return _CONNECT(database if options else f"file:{database}?mode=ro", uri=True)


@pytest.fixture
def many(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Ten families of two sizes; one measurement of `f3` was made again, as `g3`."""
    monkeypatch.chdir(with_store)
    connection = Connection(TrackingConfig())
    writer = Writer(connection)
    for family in range(10):
        for size in ("1m", "2m"):
            tags = MeasurementTags(f"{family}{size}", f"f{family}", size, f"f{family}-{size}", "d", "").tags()
            writer.end(writer.begin("a / b", tags))
    writer.end(writer.begin("a / b", MeasurementTags("31m", "g3", "1m", "g3-1m", "d", "").tags()))
    return connection


def test_only_what_may_pass_the_filters_is_read(many: Connection) -> None:
    def read(*run_ids: str, **filters: list[str]) -> list[str]:
        found = from_database(
            many.uri, many.experiment_id, lambda run: run, chosen=FilterConfig(**filters), run_ids=run_ids
        )
        assert all(run.tags[Tag.KIND] == Kind.MEASUREMENT for run in found)  # each is read whole
        return sorted(f"{run.tags[Tag.FAMILY]}-{run.tags[Tag.SIZE]}" for run in found)

    assert len(read()) == 21
    assert read(family=["f1", "f2*"]) == ["f1-1m", "f1-2m", "f2-1m", "f2-2m"]
    assert read(family=["f?"], size=["2m"]) == [f"f{n}-2m" for n in range(10)]
    assert read(family=["f3"]) == ["f3-1m", "f3-2m", "g3-1m"], "the newer one of the same fingerprint decides"
    assert len(read(family=["f1"], dataset=["x"])) == 21, "what there is, for the error"
    (one, *_) = from_database(many.uri, many.experiment_id, lambda run: run, chosen=FilterConfig(family=["f7"]))
    assert read(one.run_id) == [f"{one.tags[Tag.FAMILY]}-{one.tags[Tag.SIZE]}"]


@pytest.mark.parametrize(
    ("filters", "most_read"),
    [
        ({}, 21),
        ({"family": ["f1"]}, 2),
        ({"family": ["f?"], "size": ["2m"]}, 10),
        ({"family": ["f3"], "size": ["1m"]}, 2),
        ({"family": ["f1", "f2"]}, 21),
        ({"family": ["f[12]"]}, 21),
        ({"family": ["f1"], "dataset": ["x"]}, 21),
    ],
)
def test_a_server_is_asked_for_what_may_pass(
    many: Connection, monkeypatch: pytest.MonkeyPatch, filters: dict[str, list[str]], most_read: int
) -> None:
    """MLflow's search gives what may pass the filters, and the newer one of the same fingerprint."""
    monkeypatch.setattr("rbptrack.tracking.reader.DATABASES", ())  # as if a server stood between
    monkeypatch.setattr("rbptrack.tracking.reader._PAGE", 5)
    monkeypatch.setattr("rbptrack.tracking.reader._FEW", 10)
    chosen = FilterConfig(**filters)
    exactly = {run.run_id: run for run in from_database(many.uri, many.experiment_id, lambda run: run, chosen=chosen)}
    found = {run.run_id: run for run in Reader(many)._searched(chosen, ())}
    assert exactly.items() <= found.items()
    assert len(found) == most_read


def test_a_server_is_asked_for_runs_by_their_ids(many: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbptrack.tracking.reader.DATABASES", ())
    monkeypatch.setattr("rbptrack.tracking.reader._NAMED", 2)
    wanted = [
        run.run_id
        for run in from_database(many.uri, many.experiment_id, lambda run: run, chosen=FilterConfig(size=["1m"]))
    ][:5]
    assert sorted(run.run_id for run in Reader(many)._searched(FilterConfig(), [*wanted, "0" * 32])) == sorted(wanted)


def test_no_answer_is_so_large_that_a_busy_server_seems_away(many: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand runs took a server of 10,000 measurements more than the ten seconds that a call may take."""
    asked, ask = list[int](), MlflowClient.search_runs

    def search_runs(client: MlflowClient, *words: Any, max_results: int, **options: Any) -> Any:
        asked.append(max_results)
        return ask(client, *words, max_results=max_results, **options)

    monkeypatch.setattr(MlflowClient, "search_runs", search_runs)
    monkeypatch.setattr("rbptrack.tracking.reader.DATABASES", ())
    assert len(Reader(many)._searched(FilterConfig(family=["f1"]), ())) == 21
    assert Reader(many).search("attributes.status = 'FINISHED'")
    assert max(asked) <= 200


@pytest.mark.parametrize(
    ("pattern", "condition"),
    [
        ("gpt*", "tags.`rbptrack.family` LIKE 'gpt%'"),
        ("f?_1.5", "tags.`rbptrack.family` LIKE 'f__1.5'"),
        ("it's", ""),
        ("a\\b", ""),
        ("[ab]", ""),
        ("", ""),
    ],
)
def test_patterns_in_the_words_of_sql(pattern: str, condition: str) -> None:
    assert tags_like(FilterConfig(family=[pattern])) == condition


def test_made_measurements_are_measurements(untouched: Path, tmp_path: Path) -> None:
    """The stores by which growth is measured: whole families, read as any others, and made once."""
    folder = made_stores.on_sqlite(untouched, tmp_path / "made", 60)
    connection = Connection(TrackingConfig(uri=f"sqlite:///{folder / made_stores.DATABASE}"))
    runs = Reader(connection).runs(FilterConfig(dataset=["d0"]))
    assert runs.frame.groupby("family")["size"].nunique().to_dict() == {"f00000": 10, "f00001": 10}
    assert (runs.frame.groupby("family")["rbp_1"].nunique() == 8).all()  # as many as were really measured
    assert runs.histogram(str(runs.frame["run_id"][0])).num_tokens > 0
    assert len(Reader(connection).runs(FilterConfig())) == 60
    assert made_stores.on_sqlite(tmp_path / "nothing", folder, 60) == folder
