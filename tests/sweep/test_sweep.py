"""Tests of `sweep.run` in this process: cells that are measured, skipped, failed or interrupted, and the exit code.

The exit code is 0 if all cells are measured, 1 if a cell failed, and 2 if nothing could be measured as requested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rbptrack import engine, sweep
from rbptrack.analysis.filters import Filters
from rbptrack.base.errors import BadInput, StoreAway, StoreRefuses
from rbptrack.config.paths import cells_folder, mlruns_folder
from rbptrack.console.log import log_to_file
from rbptrack.sweep.jobs import read_job
from rbptrack.sweep.measuring import failure_file, measure_cell
from rbptrack.tracking import Outbox, Store
from tests.reporting.reading_pages import page_data
from tests.sweep.conftest import SMALL, Configs, raising


def report_path(output: str) -> Path:
    """Return the path of the report page from the output of a sweep."""
    (line,) = [line for line in output.splitlines() if line.startswith("report")]
    return Path(line.split()[-1])


@pytest.fixture
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make analyzers run in this process. With several cores, they would run in processes that take long to start."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


def test_run_logs_a_measurement_and_prints_its_ce(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run(configs(), []) == 0
    row = store.runs().frame.iloc[0]
    assert row["model"] == "nano-6k"
    assert row["dataset"] == "pydocs"
    assert f"CE {row['ce']:.3f}" in capsys.readouterr().out
    assert not list(cells_folder().glob("*/"))


def test_run_skips_a_cell_that_is_measured(store: Store, configs: Configs) -> None:
    assert sweep.run(configs(), []) == 0
    assert sweep.run(configs(), []) == 0
    assert len(store.runs().frame) == 1
    assert len(list(store.measurements.search(""))) == 1


def test_run_gives_an_existing_measurement_the_labels_of_the_command_line(store: Store, configs: Configs) -> None:
    words = ["model.family=mine", "model.seed=3", "dataset.name=manual"]
    assert sweep.run(configs(), []) == 0
    before = store.runs().frame.iloc[0]
    assert sweep.run(configs(*words), words) == 0
    after = store.runs().frame.iloc[0]
    assert (after["family"], after["seed"], after["dataset"], after["size"]) == ("mine", 3, "manual", "6k")
    assert all(after[name] == before[name] for name in ("run_id", "fingerprint", "ce"))
    assert not list(store.verify())


def test_run_keeps_labels_that_the_command_line_does_not_set(store: Store, configs: Configs) -> None:
    assert sweep.run(configs(), []) == 0
    store.relabel(store.runs(), {"family": "mine", "size": "7k"})
    assert sweep.run(configs("model.size=8k"), ["model=nano/6k", "model.size=8k"]) == 0
    row = store.runs().frame.iloc[0]
    assert (row["family"], row["size"]) == ("mine", "8k")


def test_run_with_force_measures_again_and_gives_the_same_ce(store: Store, configs: Configs) -> None:
    assert sweep.run(configs(), []) == 0
    first_ce = store.runs().frame.iloc[0]["ce"]
    assert sweep.run(configs("force=true"), []) == 0
    assert len(list(store.measurements.search(""))) == 2
    assert store.runs().frame.iloc[0]["ce"] == first_ce


@pytest.mark.usefixtures("_one_core")
def test_run_with_own_k_prints_rbp_at_one_of_these_k(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=power_law", "k=1,5,50"), []) == 0
    output = capsys.readouterr().out
    assert all(f"RBP_5 {row['rbp_5']:.3f}" in output for row in store.runs())


@pytest.mark.usefixtures("_one_core")
def test_run_with_the_default_k_suggests_no_analysis_at_other_k(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=power_law"), []) == 0
    output = capsys.readouterr().out
    assert "ks=" not in output


@pytest.mark.usefixtures("_one_core")
def test_run_saves_the_sweep_with_a_report_and_a_reading_page(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["model=nano/6k,nano/15k,nano/38k", "analyzers=power_law", "sweep=mine"]
    assert sweep.run(configs(*words), words) == 0
    assert len(store.runs(Filters(sweep=["mine"])).frame) == 3
    (run,) = store.reports.search("tags.`rbptrack.kind` = 'sweep'")
    assert (run.data.params["cells"], run.data.params["cells_measured"], run.data.params["k"]) == (
        "3",
        "3",
        "1,3,10,30,100,300,1000,3000",
    )
    assert (run.data.params["families"], run.data.params["datasets"]) == ("nano", "pydocs")
    assert 0 < len(run.data.metrics) <= 40
    assert any(name.startswith("alpha/") for name in run.data.metrics)
    assert "model=nano/6k" in run.data.tags["mlflow.note.content"]
    page = report_path(capsys.readouterr().out)
    assert "nano" in page.read_text()
    assert 'href="read.html"' in page.read_text()
    (token_set,) = page_data(page.with_name("read.html").read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k", "nano-38k"]


@pytest.mark.usefixtures("_one_core")
def test_run_warns_if_the_report_cannot_be_logged(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "save", raising(StoreAway("the store is gone")))
    words = ["model=nano/6k,nano/15k,nano/38k", "analyzers=power_law", "sweep=mine"]
    assert sweep.run(configs(*words), words) == 0
    assert "the report is not logged: the store is gone" in capsys.readouterr().err


@pytest.mark.usefixtures("_one_core")
def test_run_writes_no_reading_page_if_measurements_keep_no_texts(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "token_texts", lambda self, run_id: {})
    words = ["model=nano/6k,nano/15k", "analyzers=power_law", "sweep=mine"]
    assert sweep.run(configs(*words), words) == 0
    output = capsys.readouterr().out
    assert "no reading page: nano on pydocs" in output
    page = report_path(output)
    assert 'id="reading"' not in page.read_text()
    assert not page.with_name("read.html").exists()


def test_run_goes_on_after_a_failed_cell_and_says_why_it_failed(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = engine.Transformers

    def fail_for_the_small_model(model: Any, *args: Any) -> engine.Engine:
        if model.non_embedding_params < 10_000:
            raise RuntimeError("CUDA error: the device is gone\nand more")
        return transformers(model, *args)

    monkeypatch.setattr(engine, "Transformers", fail_for_the_small_model)
    with log_to_file(mlruns_folder() / "rbptrack.log"):
        assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=[]"), []) == 1
    assert store.runs().frame["model"].tolist() == ["nano-15k"]
    (failed,) = store.measurements.search("attributes.status = 'FAILED'")
    assert failed.data.tags["rbptrack.failure"] == "RuntimeError: CUDA error: the device is gone"
    assert "the device is gone" in capsys.readouterr().err
    assert "Traceback" in (mlruns_folder() / "rbptrack.log").read_text()


def test_run_on_gpus_starts_jobs_of_sound_models_if_another_model_is_broken(
    store: Store, configs: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text('{"model_type": "none"}')
    started: list[list[str]] = []
    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", lambda commands, *_: started.extend(commands))
    words = [*SMALL[1:], "model=nano/6k,./broken", "launch=gpus", "launch.gpus=0"]
    assert sweep.run(configs(*words), words) == 1
    (command,) = started
    (cell,) = read_job(Path(command[-1]))
    assert cell.config.model.name == "nano-6k"


def test_run_on_gpus_keeps_job_files_in_mlruns_whatever_the_name_of_the_sweep(
    store: Store, configs: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", lambda commands, *_: started.extend(commands))
    words = [*SMALL, "launch=gpus", "launch.gpus=0", "sweep='../../a,b'"]
    sweep.run(configs(*words), words)
    (command,) = started
    (cell,) = read_job(Path(command[-1]))
    assert cell.config.sweep == "../../a,b"
    assert not (tmp_path / "a,b").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["dataset.seq_len=1000"],
        ["model=nano/6k,nano/15k", "dataset.split=nowhere"],
        ["model=nano/6k,nano/15k", "k=5000"],
    ],
)
def test_run_measures_nothing_and_returns_2_if_no_cell_is_possible(
    words: list[str], store: Store, configs: Configs
) -> None:
    assert sweep.run(configs(*words), []) == 2
    assert not list(store.measurements.search("attributes.status = 'FINISHED'"))


def test_run_returns_1_if_only_some_cells_are_possible(store: Store, configs: Configs) -> None:
    assert sweep.run(configs("dataset.seq_len=64,1000", "analyzers=[]"), []) == 1
    assert len(store.runs().frame) == 1


def test_run_leaves_out_k_above_the_vocabulary_with_a_note(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run(configs("k=10,5000"), []) == 0
    assert "5000" in capsys.readouterr().out
    assert "rbp_10" in store.runs().frame.columns


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_run_after_an_interrupt_measures_all_cells(
    error: BaseException, store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = configs("model=nano/6k,nano/15k", "analyzers=[]")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "measure", raising(error))
        with pytest.raises(type(error)):
            sweep.run(cells, [])
    assert not list(store.measurements.search(""))
    assert sweep.run(cells, []) == 0
    assert len(store.runs().frame) == 2


def test_run_without_delivery_leaves_the_measurement_on_disk(store: Store, configs: Configs) -> None:
    (config,) = configs("deliver=false")
    assert sweep.run([config], []) == 0
    assert (sweep.resolve(config).folder / "record.json").exists()
    assert not list(store.measurements.search(""))


def test_run_without_delivery_again_does_not_measure_again(store: Store, configs: Configs) -> None:
    """SLURM runs a job again if it puts the job back into its queue."""
    (config,) = configs("deliver=false")
    record = sweep.resolve(config).folder / "record.json"
    assert sweep.run([config], []) == 0
    before = record.read_bytes()
    assert sweep.run([config], []) == 0
    assert record.read_bytes() == before


def test_run_on_gpus_without_delivery_leaves_the_measurement_of_a_job_on_disk(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config,) = configs("deliver=false")
    assert sweep.run([config], []) == 0
    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", lambda *_: None)
    words = [*SMALL, "launch=gpus", "launch.gpus=0", "deliver=false"]
    assert sweep.run(configs(*words), words) == 0
    assert sweep.resolve(config).folder.exists()


@pytest.mark.parametrize("force", [False, True])
def test_run_on_gpus_finds_the_measurement_that_another_command_delivered(
    force: bool, store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "launch=gpus", "launch.gpus=0", f"force={str(force).lower()}"]
    cell = sweep.resolve(*configs(*words))

    def measure_and_deliver_elsewhere(*_: Any) -> None:
        """Measure the cell as a job does, and deliver it as `rbptrack list` does in the meantime."""
        measure_cell(cell, store, deliver=False)
        (delivered,) = Outbox(store).deliver_waiting()
        assert not delivered.error

    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", measure_and_deliver_elsewhere)
    assert sweep.run(configs(*words), words) == 0


def test_run_on_gpus_ignores_the_failure_of_an_earlier_job(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "launch=gpus", "launch.gpus=0"]
    cell = sweep.resolve(*configs(*words))
    failure_file(cell).parent.mkdir(parents=True)
    failure_file(cell).write_text("of an earlier job")
    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", lambda *_: measure_cell(cell, store, deliver=False))
    assert sweep.run(configs(*words), words) == 0


def test_run_on_gpus_with_force_fails_if_the_job_leaves_no_new_measurement(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "launch=gpus", "launch.gpus=0", "force=true"]
    assert sweep.run(configs(), []) == 0
    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", lambda *_: None)
    assert sweep.run(configs(*words), words) == 1


def test_run_with_a_store_that_is_away_keeps_measurements_for_the_next_run(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        for method in ("find", "find_all", "log", "check_writable", "log_failure", "runs"):
            patch.setattr(Store, method, raising(StoreAway("the tracking store does not answer")))
        assert sweep.run(configs("model=nano/6k,nano/15k"), []) == 1
    assert "does not answer" in capsys.readouterr().err
    assert len(list(cells_folder().glob("*/record.json"))) == 2
    monkeypatch.setattr(engine, "measure", raising(AssertionError("nothing is left to measure")))
    assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=[]"), []) == 0
    assert len(store.runs().frame) == 2


def test_run_with_a_store_that_refuses_deliveries_keeps_measurements_for_sync(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Store, "log", raising(StoreRefuses("the tracking server does not permit this")))
        assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=[]"), []) == 1
    assert "sync delivers them" in capsys.readouterr().err
    assert len(Outbox(store).waiting_folders()) == 2
    assert [delivered.error for delivered in Outbox(store).deliver_waiting()] == ["", ""]
    assert len(store.runs().frame) == 2


def test_run_measures_nothing_for_a_store_that_cannot_be_written(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = StoreRefuses("the tracking server does not permit this")
    monkeypatch.setattr(Store, "check_writable", raising(refusal))
    monkeypatch.setattr(engine, "measure", raising(AssertionError("this must not be measured")))
    with pytest.raises(StoreRefuses):
        sweep.run(configs(), [])


@pytest.mark.parametrize("words", [["model=nano/6k,nano/15k", "analyzers=powerlaw"], ["analyzers=powerlaw"]])
def test_run_refuses_an_unknown_analyzer_before_it_measures(words: list[str], store: Store, configs: Configs) -> None:
    with pytest.raises(BadInput, match="power_law"):
        sweep.run(configs(*words), [])
    assert not list(store.measurements.search(""))
