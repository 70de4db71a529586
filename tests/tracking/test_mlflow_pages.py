"""Tests of what MLflow's own page shows of a store: LoggedModels, the saved view, descriptions and colours."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus

from rbptrack.config.schema import Dtype
from rbptrack.measurement.record import read_measurement
from rbptrack.tracking import Outbox, Store
from tests.store_fixtures import WriteCell
from tests.tracking.interrupts import interrupt


@pytest.fixture
def client(store: Store) -> MlflowClient:
    """MLflow's own client of the store."""
    return MlflowClient(store.uri)


def measurement_experiment(client: MlflowClient) -> Any:
    """Return MLflow's entity of the experiment of measurements."""
    return client.get_experiment_by_name("rbptrack")


def saved_view(client: MlflowClient) -> tuple[str, dict[str, Any]]:
    """Return the name of the saved view, and the state of MLflow's page in this view.

    MLflow keeps a view in a tag of the experiment. The format is not documented. This function reads what MLflow's page
    writes when a user saves a view.
    """
    view = json.loads(measurement_experiment(client).tags["mlflow.sharedViewState.rbptrack"])
    compressed = base64.b64decode(view["state"].removeprefix("deflate;"))
    return view["name"], json.loads(zlib.decompress(compressed))


def test_deliver_makes_one_logged_model_for_all_datasets_of_a_model(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    first = Outbox(store).deliver(write_cell(1000, dataset="wiki"))
    Outbox(store).deliver(write_cell(1000, dataset="code"))
    Outbox(store).deliver(write_cell(2000, dataset="wiki"))
    logged = client.search_logged_models([measurement_experiment(client).experiment_id])
    models = {model.name: model for model in logged}
    assert set(models) == {"nano-1000", "nano-2000"}
    assert models["nano-1000"].source_run_id == first
    assert models["nano-1000"].params["commit"] == "org/nano@1000-0"
    assert {metric.dataset_name for metric in models["nano-1000"].metrics} == {"wiki", "code"}
    assert client.get_run(first).inputs.model_inputs[0].model_id == models["nano-1000"].model_id


def test_relabelled_model_keeps_its_logged_model_and_changes_its_tags(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell(1000, dataset="wiki", checkpoint="step1"))
    store.relabel(store.runs(), {"family": "renamed", "checkpoint": "", "training_tokens": 2e9})
    Outbox(Store()).deliver(write_cell(1000, dataset="code", checkpoint="step1"))
    (model,) = client.search_logged_models([measurement_experiment(client).experiment_id])
    assert {metric.dataset_name for metric in model.metrics} == {"wiki", "code"}
    labels = {name: value for name, value in model.tags.items() if name.startswith("rbptrack.")}
    del labels["rbptrack.logged_model"]
    assert labels == {
        "rbptrack.family": "renamed",
        "rbptrack.size": "1000",
        "rbptrack.training_tokens": "2000000000.0",
    }


def test_logged_models_are_found_by_their_ce_on_a_dataset(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    smaller = Outbox(store).deliver(write_cell(1000, dataset="wiki"))
    Outbox(store).deliver(write_cell(1000, dataset="code"))
    Outbox(store).deliver(write_cell(2000, dataset="wiki"))
    ce = client.get_run(smaller).data.metrics["ce"]
    models = client.search_logged_models(
        [measurement_experiment(client).experiment_id],
        filter_string=f"metrics.ce <= {ce}",
        datasets=[{"dataset_name": "wiki"}],
    )
    assert {model.name for model in models} == {"nano-1000", "nano-2000"}


def test_deliver_completes_a_logged_model_whose_creation_was_interrupted(
    store: Store, client: MlflowClient, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cell()
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "finalize_logged_model", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(folder)
    run_id = Outbox(store).deliver(folder)
    (model,) = client.search_logged_models([measurement_experiment(client).experiment_id])
    assert model.status == LoggedModelStatus.READY
    assert client.get_run(run_id).inputs.model_inputs[0].model_id == model.model_id


@pytest.mark.parametrize("options", [{"dtype": Dtype.bfloat16}, {"seed": 2}])
def test_deliver_makes_another_logged_model_for_another_precision_or_other_weights(
    options: dict[str, Any], store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(1000, **options))
    assert len(client.search_logged_models([measurement_experiment(client).experiment_id])) == 2


def test_save_view_saves_a_table_and_charts_of_ce_and_rbp_10(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell())
    store.save_view()
    name, state = saved_view(client)
    assert name
    assert {"metrics.`ce`", "metrics.`rbp_10`"} <= set(state["selectedColumns"])
    scatter_charts = [chart for chart in state["compareRunCharts"] if chart["type"] == "SCATTER"]
    axes = [(chart["xaxis"]["dataAccessKey"], chart["yaxis"]["dataAccessKey"]) for chart in scatter_charts]
    assert ("log10_non_embedding_params", "ce") in axes
    assert ("log10_non_embedding_params", "rbp_10") in axes


def test_save_view_marks_charts_of_other_metrics_as_deleted(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    """MLflow adds a chart for each metric that the view does not mention."""
    Outbox(store).deliver(write_cell())
    store.save_view()
    _, state = saved_view(client)
    deleted = {chart["metricKey"] for chart in state["compareRunCharts"] if chart["deleted"]}
    assert "tokens_per_second" in deleted


@pytest.mark.parametrize("damaged", ["{", "", "[]", "3"])
def test_deliver_and_save_view_replace_tags_that_are_damaged(
    damaged: str, store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    Outbox(store).deliver(write_cell())
    store.save_view()
    experiment = measurement_experiment(client)
    for name in experiment.tags:
        if "olour" in name or "View" in name:
            client.set_experiment_tag(experiment.experiment_id, name, damaged)
    opened_again = Store(store.uri)
    Outbox(opened_again).deliver(write_cell(2000))
    opened_again.save_view()
    assert saved_view(client)[1]["compareRunCharts"]


def test_view_page_opens_the_saved_view(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    assert store.save_view().endswith("viewStateShareKey=rbptrack")


def test_save_view_leaves_out_failed_runs(store: Store, client: MlflowClient, write_cell: WriteCell) -> None:
    finished = Outbox(store).deliver(write_cell())
    measurement = read_measurement(write_cell(2000)).measurement
    failed = store.log_failure(measurement.title, dict(measurement), "out of memory")
    store.save_view()
    _, state = saved_view(client)
    experiment = measurement_experiment(client).experiment_id
    assert {run.info.run_id for run in client.search_runs([experiment])} == {finished, failed}
    shown = client.search_runs([experiment], filter_string=state["searchFilter"])
    assert [run.info.run_id for run in shown] == [finished]


def colours_by_dataset(client: MlflowClient) -> dict[str, set[str]]:
    """Return the colours that the runs of each dataset have on MLflow's page."""
    colours: dict[str, set[str]] = {}
    for run in client.search_runs([measurement_experiment(client).experiment_id]):
        dataset = run.data.tags["rbptrack.dataset"]
        colours.setdefault(dataset, set()).add(run.data.tags["mlflow.runColor"])
    return colours


def test_deliver_gives_each_dataset_one_colour_which_it_keeps(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    for parameters in (1000, 2000):
        for dataset in ("wiki", "code"):
            Outbox(store).deliver(write_cell(parameters, dataset=dataset))
    before = colours_by_dataset(client)
    assert [len(colours) for colours in before.values()] == [1, 1]
    assert before["wiki"] != before["code"]
    Outbox(store).deliver(write_cell(3000, dataset="wiki"))
    Outbox(store).deliver(write_cell(1000, dataset="books"))
    after = colours_by_dataset(client)
    assert after["wiki"] == before["wiki"]
    assert after["code"] == before["code"]
    assert len(set.union(*after.values())) == 3


def test_deliver_describes_a_measurement_with_model_dataset_tokens_and_link(
    store: Store, client: MlflowClient, write_cell: WriteCell
) -> None:
    run_id = Outbox(store).deliver(write_cell(1000, repo="org/nano"))
    text = client.get_run(run_id).data.tags["mlflow.note.content"]
    assert "**nano-1000** on **wiki**" in text
    assert "600 scored tokens" in text
    assert "https://huggingface.co/org/nano/tree/1000" in text


def test_colours_of_many_datasets_fit_into_a_tag(store: Store, client: MlflowClient, write_cell: WriteCell) -> None:
    store.check_writable(f"{number} {'x' * 190}" for number in range(200))
    Outbox(store).deliver(write_cell(dataset="wiki"))
    assert set(colours_by_dataset(client)) == {"wiki"}
