"""Reading a store from its tables and by MLflow's client: the same questions, the same answers."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
from sqlalchemy import create_engine

from rbptrack.base.errors import RbptrackError
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.client import Client
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import CURVES, Kind, MeasurementTags, Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.tables import REVISIONS, Tables

Source = Tables | Client
SOURCES: dict[str, Callable[[str], Source]] = {"tables": Tables, "client": lambda uri: Client(MlflowClient(uri))}
KEPT = ("experiments", "runs", "params", "tags", "metrics", "latest_metrics", "inputs", "datasets")


@pytest.fixture(scope="module")
def many(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten families of two sizes; one measurement of `f3` was made again, as `g3`, one more runs, one was deleted."""
    database = tmp_path_factory.mktemp("many") / "mlflow.db"
    shutil.copy(empty_store, database)
    connection = Store(TrackingConfig(uri=f"sqlite:///{database}"))
    writer, client = connection.writer, connection.open()

    def begun(fingerprint: str, family: str, size: str) -> str:
        return writer.begin("a / b", MeasurementTags(fingerprint, family, size, f"{family}-{size}", "d", "").tags())

    for family in range(10):
        for size in ("1m", "2m"):
            writer.end(begun(f"{family}{size}", f"f{family}", size))
    again = begun("31m", "g3", "1m")
    curves = {name: {1: 0.25, 10: 0.5, 100: 0.75} for name in CURVES}
    writer.log(again, params={"model.dtype": "float32"}, metrics={"ce": 3.5}, curves=curves, at=1e9)
    client.log_metric(again, "not a number", float("nan"))
    client.log_inputs(again, [DatasetInput(Dataset("d", "1f", "local", "here", None, "{}"), [])])
    writer.end(again)
    begun("32m", "f3", "2m")
    writer.delete(begun("1m", "f0", "1m"))
    return connection.uri


@pytest.fixture(params=SOURCES)
def source(many: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Source:
    """One of the two; the client answers in small pages, as a server of thousands of runs does."""
    for name, number in {"_PAGE": 5, "_FEW": 10, "_NAMED": 2}.items():
        monkeypatch.setattr(f"rbptrack.tracking.client.{name}", number)
    return SOURCES[request.param](many)


def names(runs: list[LoggedRun]) -> list[str]:
    return sorted(f"{run.tags[Tag.FAMILY]}-{run.tags[Tag.SIZE]}" for run in runs)


def test_experiments(source: Source) -> None:
    experiment = source.experiment("rbptrack")
    assert experiment is not None
    assert (experiment.id, experiment.stage) == ("1", "active")
    assert experiment.artifacts.endswith("/artifacts/rbptrack")
    assert source.experiment("nope") is None


def test_runs_are_searched_by_tags_status_and_id(source: Source) -> None:
    assert names(source.search(["1"], {Tag.FINGERPRINT: "31m"})) == ["f3-1m", "g3-1m"]
    assert names(source.search(["1"], {Tag.FINGERPRINT: "32m"}, status="RUNNING")) == ["f3-2m"]
    assert names(source.search(["1"], {Tag.FAMILY: "f4", Tag.SIZE: "2m"})) == ["f4-2m"]
    assert len(source.search(["1"], {Tag.KIND: Kind.MEASUREMENT})) == 22
    assert len(source.search(["0"], {})) == 0
    (newest,) = source.search(["1"], {}, limit=1)
    assert names([newest]) == ["f3-2m"]
    assert source.search(["0", "1"], {}, run_id=newest.run_id) == [newest] == [source.run(newest.run_id)]
    assert source.search(["1"], {Tag.FAMILY: "it is"}) == []


def test_a_run_is_read_whole(source: Source) -> None:
    (again,) = source.search(["1"], {Tag.FAMILY: "g3"})
    (whole,) = source.whole([again.run_id])
    assert whole.params == {"model.dtype": "float32"}
    assert set(whole.metrics) == {"ce", *CURVES}
    assert whole.curves == {name: {1: 0.25, 10: 0.5, 100: 0.75} for name in CURVES}
    assert whole.dataset == {"name": "d", "digest": "1f", "source": "here", "profile": "{}"}
    assert whole.ended
    with pytest.raises((RbptrackError, Exception), match="0" * 32):
        source.run("0" * 32)


def test_both_read_the_same_of_every_run(many: str) -> None:
    tables, client = (make(many) for make in SOURCES.values())
    runs = tables.search(["1"], {})
    assert runs == client.search(["1"], {})
    for run in runs:
        assert tables.run(run.run_id) == client.run(run.run_id)
        assert tables.whole([run.run_id]) == client.whole([run.run_id])


FILTERS: list[tuple[dict[str, list[str]], int]] = [
    ({}, 21),
    ({"family": ["f1"]}, 2),
    ({"family": ["f?"], "size": ["2m"]}, 10),
    ({"family": ["f3"], "size": ["1m"]}, 2),
    ({"family": ["f1"], "dataset": ["x"]}, 21),
    ({"family": ["it's"]}, 21),
    ({"family": ["a\\b"]}, 21),
    ({"family": ["f_"]}, 21),
]


@pytest.mark.parametrize(("filters", "number"), FILTERS)
def test_only_what_may_pass_the_filters_is_read(source: Source, filters: dict[str, list[str]], number: int) -> None:
    """With the newer measurement of the same fingerprint, which decides; all where nothing passes, for the error."""
    runs = source.finished("1", FilterConfig(**filters), [], lambda run: run)
    assert len(runs) == number
    if filters == {"family": ["f3"], "size": ["1m"]}:
        assert names(runs) == ["f3-1m", "g3-1m"]


def test_several_patterns_are_read_from_tables_exactly(many: str) -> None:
    """MLflow's search cannot say them: a server is asked for all."""
    for patterns in (["f1", "f2*"], ["f[12]"]):
        chosen = FilterConfig(family=patterns)
        assert names(Tables(many).finished("1", chosen, [], lambda run: run)) == ["f1-1m", "f1-2m", "f2-1m", "f2-2m"]
        assert len(Client(MlflowClient(many)).finished("1", chosen, [], lambda run: run)) == 21
    few = Client(MlflowClient(many)).finished("1", FilterConfig(family=["f1"]), [], lambda run: run)
    assert len(few) == 21, "all fit into one answer"


def test_measurements_are_read_by_their_ids(source: Source) -> None:
    wanted = [run.run_id for run in source.search(["1"], {Tag.SIZE: "1m"}, status="FINISHED")][:5]
    runs = source.finished("1", FilterConfig(), [*wanted, "0" * 32], lambda run: run)
    assert sorted(run.run_id for run in runs) == sorted(wanted)


def test_the_tables_of_the_oldest_mlflow_are_read(many: str, tmp_path: Path) -> None:
    """As MLflow 3.15 makes them; a store of tables that are not known is left to MLflow, which says what is wrong."""
    old = f"sqlite:///{tmp_path / 'old.db'}"
    engine = create_engine(old)
    Base.metadata.create_all(engine)
    engine.dispose()
    command.upgrade(_get_alembic_config(old), REVISIONS[0])
    with closing(sqlite3.connect(tmp_path / "old.db")) as store, store:
        store.execute("attach ? as new", (many.removeprefix("sqlite:///"),))
        for table in KEPT:
            names = f"select name from pragma_table_info('{table}', ?)"
            known = f"{names} intersect {names}"
            columns = ", ".join(name for (name,) in store.execute(known, ("main", "new")))
            store.execute(f"delete from main.{table}")
            store.execute(f"insert into main.{table} ({columns}) select {columns} from new.{table}")
    assert Tables(old).are_known()
    assert Tables(old).search(["1"], {}) == Tables(many).search(["1"], {})
    run_ids = [run.run_id for run in Tables(many).search(["1"], {})]
    assert Tables(old).whole(run_ids) == Tables(many).whole(run_ids)
    with closing(sqlite3.connect(tmp_path / "old.db")) as store, store:
        store.execute("update alembic_version set version_num = 'ffffffffffff'")
    assert not Tables(old).are_known()


@pytest.mark.parametrize("words", [["list", "format=json"], ["show", "f5-1m"]])
def test_a_local_store_is_read_without_mlflow(many: str, words: list[str], tmp_path: Path) -> None:
    """Importing it takes three times as long as everything else that such a command does."""
    arguments = ["rbptrack", *words, f"tracking.uri={many}"]
    code = (
        f"import sys; sys.argv = {arguments}\nfrom rbptrack.__main__ import main\nmain()\n"
        "print('imported', {'mlflow', 'sqlalchemy', 'torch', 'matplotlib', 'scipy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.endswith("imported set()\n"), done.stdout + done.stderr
