"""MLflow's Models tab: a LoggedModel for each model and revision, to which the metrics of its measurements point."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mlflow.entities import LoggedModel

from rbptrack.commands import sync
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.logged_models import LoggedModels
from rbptrack.tracking.record import Record
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from tests.test_frozen_store import unpacked  # noqa: F401 - a fixture
from tests.test_program import Swept, client, runs

DATABASE = "mlruns/mlflow.db"


def counted_rows(*tables: str) -> list[int]:
    with closing(sqlite3.connect(DATABASE)) as database:
        return [database.execute(f"select count(*) from {table}").fetchone()[0] for table in tables]


def test_models_are_searched_by_their_results_on_a_dataset(swept: Swept) -> None:
    folder, _ = swept
    asked = client(folder)
    experiment = runs(folder, "measurement")[0].info.experiment_id
    ce = {r.info.run_name: r.data.metrics["ce"] for r in runs(folder, "measurement")}
    limit = ce["nano-15k / pydocs"]
    found: list[LoggedModel] = asked.search_logged_models(
        [experiment],
        filter_string=f"metrics.ce < {limit}",
        datasets=[{"dataset_name": "pydocs"}],
        order_by=[{"field_name": "metrics.ce", "dataset_name": "pydocs"}],
    )
    assert [model.name for model in found] == ["nano-115k", "nano-38k"]
    assert len(asked.search_logged_models([experiment])) == 4, "one for both datasets"
    best = found[0]
    numbers = {(metric.dataset_name, metric.key): metric for metric in best.metrics}
    assert {dataset for dataset, _ in numbers} == {"pydocs", "stdlib"}
    assert numbers["stdlib", "ce"].value == ce["nano-115k / stdlib"]
    assert best.params["model.non_embedding_params"] == "115192"
    run = asked.get_run(numbers["stdlib", "rbp_10"].run_id)
    assert run.inputs.model_inputs[0].model_id == best.model_id
    assert numbers["stdlib", "rbp_10"].dataset_digest == run.inputs.dataset_inputs[0].dataset.digest


def test_sync_links_the_measurements_of_a_store_of_before(
    unpacked: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(shutil.copytree(unpacked, tmp_path / "moved"))
    shutil.rmtree("mlruns/spool")
    before = counted_rows("metrics", "latest_metrics", "params")
    sync.main([])
    measured = Store(TrackingConfig()).reader.runs(FilterConfig()).frame
    assert f"{len(measured)} measurements linked to their models" in capsys.readouterr().out
    assert counted_rows("metrics", "latest_metrics", "params") == before
    store = Store(TrackingConfig())
    models = store.open().search_logged_models([store.experiment_id])
    assert len(models) == measured["model"].nunique()
    kept = {(metric.run_id, metric.value) for model in models for metric in model.metrics if metric.key == "ce"}
    assert kept == set(zip(measured["run_id"], measured["ce"], strict=True))
    sync.main([])
    assert "linked" not in capsys.readouterr().out


def test_checkpoints_and_precisions_are_models_of_their_own(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlruns").mkdir()
    shutil.copy2(empty_store, DATABASE)
    logged = LoggedModels(Store(TrackingConfig()))

    def model_id(name: str = "pythia-1.4b", *, dataset: str = "wiki", **params: str) -> str:
        named = {key.replace("_", "."): value for key, value in params.items()}
        pointer = logged.of(Record("", {Tag.MODEL: name, Tag.DATASET: dataset}, named))
        assert pointer
        return pointer.model_id

    plain = model_id(model_revision="main", model_commit="p@1")
    assert model_id(dataset="code", model_revision="main", model_commit="p@1") == plain
    others = [
        model_id(model_revision="main", model_commit="p@2"),
        model_id("pythia-1.4b@step1", model_revision="step1", model_commit="p@3"),
        model_id(model_commit="p@1", model_dtype="bfloat16"),
    ]
    assert len({plain, *others}) == 4
    assert (
        LoggedModels(Store(TrackingConfig()))
        .of(Record("", {Tag.MODEL: "pythia-1.4b", Tag.DATASET: "wiki"}, {"model.commit": "p@1"}))
        .model_id
        == plain
    ), "another process finds it"  # type: ignore[union-attr]
    store = Store(TrackingConfig())
    names = {model.name for model in store.open().search_logged_models([store.experiment_id])}
    assert names == {"pythia-1_4b", "pythia-1_4b@step1", "pythia-1_4b bfloat16"}


@pytest.fixture
def old_server() -> Iterator[str]:
    """A server that knows an experiment and has no models, as those before MLflow 3."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            experiment = {"experiment_id": "1", "name": "rbptrack", "lifecycle_stage": "active"}
            known = "experiments/get" in self.path or self.path == "/health"
            body = json.dumps({"experiment": experiment}) if known else "<h1>Not Found</h1>"
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_too_old_for_models_is_used_without(old_server: str) -> None:
    store = Store(TrackingConfig(uri=old_server))
    assert LoggedModels(store).of(Record("", {Tag.MODEL: "a-1", Tag.DATASET: "d"}, {})) is None
    assert store.reader.without_model() == []
