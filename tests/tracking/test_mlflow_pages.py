"""What MLflow's own pages and searches show: LoggedModels, a saved view, descriptions, colours."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus

from rbptrack.config.schema import Dtype
from rbptrack.tracking import Outbox, Record, Store
from tests.store_fixtures import WriteCell


@pytest.fixture
def client(store: Store) -> MlflowClient:
    """MLflow's own client of the store."""
    return MlflowClient(store.uri)


def experiment_of(client: MlflowClient) -> Any:
    return client.get_experiment_by_name("rbptrack")


def view_of(client: MlflowClient) -> tuple[dict[str, Any], dict[str, Any]]:
    """The saved view as MLflow keeps it in a tag: its name and dates, and the packed state of its page.

    The format is not documented. It is what MLflow writes where a user saves a view.
    """
    envelope = json.loads(experiment_of(client).tags["mlflow.sharedViewState.rbptrack"])
    packed = envelope["state"].removeprefix("deflate;")
    return envelope, json.loads(zlib.decompress(base64.b64decode(packed)))


def test_a_model_is_one_logged_model_to_which_its_measurements_point(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    first = Outbox(store).deliver(write_cell(1000, dataset="wiki"))
    Outbox(store).deliver(write_cell(1000, dataset="code"))
    Outbox(store).deliver(write_cell(2000, dataset="wiki"))
    experiment = experiment_of(client).experiment_id
    models = {model.name: model for model in client.search_logged_models([experiment])}
    assert set(models) == {"nano-1000", "nano-2000"}
    assert models["nano-1000"].source_run_id == first
    assert models["nano-1000"].tags["rbptrack.commit"] == "org/nano@1000"
    assert {metric.dataset_name for metric in models["nano-1000"].metrics} == {"wiki", "code"}
    wiki = client.get_run(first).data.metrics["ce"]
    found = client.search_logged_models(
        [experiment], filter_string=f"metrics.ce <= {wiki}", datasets=[{"dataset_name": "wiki"}]
    )
    assert {model.name for model in found} == {"nano-1000", "nano-2000"}
    assert client.get_run(first).inputs.model_inputs[0].model_id == models["nano-1000"].model_id


@pytest.mark.parametrize("step", ["log_model_artifacts", "finalize_logged_model"])
def test_a_logged_model_whose_creation_was_cut_short_is_completed_by_the_next_delivery(
    step: str, store: Store, client: MlflowClient, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder = write_cell()
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(folder)
    run_id = Outbox(store).deliver(folder)
    (model,) = client.search_logged_models([experiment_of(client).experiment_id])
    assert model.status == LoggedModelStatus.READY
    assert [file.path for file in client.list_logged_model_artifacts(model.model_id)] == ["MLmodel"]
    assert client.get_run(run_id).inputs.model_inputs[0].model_id == model.model_id


@pytest.mark.parametrize("other", [{"dtype": Dtype.bfloat16}, {"tokenizer": "org/other"}, {"revision": "step1.5"}])
def test_other_weights_precision_or_tokenizer_are_another_model(
    other: dict[str, Any], store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(1000, **other))
    assert len(client.search_logged_models([experiment_of(client).experiment_id])) == 2


def test_the_view_is_in_the_menu_with_a_table_and_charts(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell())
    store.save_view()
    envelope, state = view_of(client)
    assert envelope["name"]
    assert {"metrics.`ce`", "metrics.`rbp_10`"} <= set(state["selectedColumns"])
    charts = [c for c in state["compareRunCharts"] if c["type"] == "SCATTER"]
    axes = [(c["xaxis"]["dataAccessKey"], c["yaxis"]["dataAccessKey"]) for c in charts]
    assert ("log10_non_embedding_params", "ce") in axes
    assert ("log10_non_embedding_params", "rbp_10") in axes
    removed = {c["metricKey"] for c in state["compareRunCharts"] if c["deleted"]}
    assert "tokens_per_second" in removed  # else MLflow adds a chart of its own
    assert store.view_page().endswith("viewStateShareKey=rbptrack")


def test_the_view_leaves_out_cells_that_failed(store: Store, client: MlflowClient, write_cell: WriteCell) -> None:
    finished = Outbox(store).deliver(write_cell())
    failed = store.fail(Record.read(write_cell(2000)), "out of memory")
    store.save_view()
    _, state = view_of(client)
    experiment = experiment_of(client).experiment_id
    assert {run.info.run_id for run in client.search_runs([experiment])} == {finished, failed}
    shown = client.search_runs([experiment], filter_string=state["searchFilter"])
    assert [run.info.run_id for run in shown] == [finished]


def test_datasets_have_a_colour_each_which_they_keep(store: Store, client: MlflowClient, write_cell: WriteCell) -> None:
    def colours() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for run in client.search_runs([experiment_of(client).experiment_id]):
            found.setdefault(run.data.tags["rbptrack.dataset"], set()).add(run.data.tags["mlflow.runColor"])
        return found

    for s in (1000, 2000):
        for dataset in ("wiki", "code"):
            Outbox(store).deliver(write_cell(s, dataset=dataset))
    store.save_view()
    before = colours()
    assert [len(found) for found in before.values()] == [1, 1]
    assert before["wiki"] != before["code"]
    Outbox(store).deliver(write_cell(3000, dataset="wiki"))
    Outbox(store).deliver(write_cell(1000, dataset="books"))
    store.save_view()
    after = colours()
    assert {name: after[name] for name in before} == before
    assert len({colour for found in after.values() for colour in found}) == 3


def test_a_measurement_is_described_for_those_who_meet_it(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    run_id = Outbox(store).deliver(write_cell(1000, repo="org/nano"))
    text = client.get_run(run_id).data.tags["mlflow.note.content"]
    assert "**nano-1000** on **wiki**" in text
    assert "600 scored tokens" in text
    assert "https://huggingface.co/org/nano/tree/1000" in text
