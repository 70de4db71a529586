"""Whole sweeps in this process: what is measured, found, failed, interrupted and delivered, and the exit codes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rbptrack import engine, sweep
from rbptrack.analysis.runs import Filters
from rbptrack.base.errors import BadInput, StoreAway, StoreRefuses
from rbptrack.config.paths import cells_folder, mlruns_folder
from rbptrack.console.log import logged
from rbptrack.sweep.backends import read_job
from rbptrack.sweep.measuring import Failed, Measured, deliver_finished, failure_file, measure_cell
from rbptrack.tracking import Outbox, Store
from tests.reporting.test_reading import data_of
from tests.sweep.conftest import SMALL, Configs


def failed_runs(store: Store) -> list[Any]:
    return list(store.measurements.search("attributes.status = 'FAILED'"))


def refuse(*_: object, **__: object) -> str:
    raise StoreAway("the store is gone")


def test_a_cell_is_measured_once(store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]) -> None:
    (config,) = configs()
    assert sweep.run([config], []) == 0
    row = store.runs().frame.iloc[0]
    assert row["model"] == "nano-6k"
    assert row["dataset"] == "pydocs"
    assert not list(cells_folder().glob("*/"))
    said = capsys.readouterr().out
    assert f"CE {row['ce']:.3f}" in said
    assert sweep.run([config], []) == 0
    assert len(store.runs().frame) == 1
    assert len(list(store.measurements.search(""))) == 1
    (again,) = configs("force=true")
    assert sweep.run([again], []) == 0
    assert len(list(store.measurements.search(""))) == 2
    assert store.runs().frame.iloc[0]["ce"] == row["ce"]


def test_the_terminal_shows_the_k_of_the_sweep(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=power_law", "k=1,5,50"), []) == 0
    said = capsys.readouterr().out
    assert all(f"RBP_5 {row['rbp_5']:.3f}" in said for row in store.runs())
    assert "analyze power_law ks=5,50" in said
    assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=power_law"), []) == 0
    assert "ks=" not in capsys.readouterr().out


def test_a_sweep_is_analysed_and_saved(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # analyzers in this process
    words = ["model=nano/6k,nano/15k,nano/38k", "analyzers=power_law", "sweep=mine"]
    assert sweep.run(configs(*words), words) == 0
    said = capsys.readouterr().out
    page = Path(next(line.split()[-1] for line in said.splitlines() if line.startswith("report")))
    assert "nano" in page.read_text()
    assert len(store.runs(Filters(sweep=["mine"])).frame) == 3
    (run,) = store.reports.search("tags.`rbptrack.kind` = 'sweep'")
    assert run.data.metrics["cells"] == run.data.metrics["cells_measured"] == 3
    assert 'href="read.html"' in page.read_text()
    (token_set,) = data_of(page.with_name("read.html").read_text())["sets"]
    assert [model["name"] for model in token_set["models"]] == ["nano-6k", "nano-15k", "nano-38k"]
    assert "model=nano/6k" in run.data.tags["mlflow.note.content"]
    monkeypatch.setattr(Store, "save", refuse)
    assert sweep.run(configs(*words), words) == 0
    assert "the report is not logged: the store is gone" in capsys.readouterr().err


def test_a_sweep_whose_measurements_keep_no_texts_has_a_report_without_them(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(Store, "token_texts", lambda self, run_id: {})
    words = ["model=nano/6k,nano/15k", "analyzers=power_law", "sweep=mine"]
    assert sweep.run(configs(*words), words) == 0
    said = capsys.readouterr().out
    assert "no reading page: nano on pydocs" in said
    page = Path(next(line.split()[-1] for line in said.splitlines() if line.startswith("report")))
    assert 'id="reading"' not in page.read_text()
    assert not page.with_name("read.html").exists()


def test_one_failed_cell_does_not_stop_the_others(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = engine.measure

    def measure(model: Any, *args: Any, **options: Any) -> Any:
        if model.non_embedding_params < 10_000:
            raise RuntimeError("CUDA error: the device is gone\nand more")
        return real(model, *args, **options)

    monkeypatch.setattr(engine, "measure", measure)
    with logged(mlruns_folder() / "rbptrack.log"):
        assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=[]"), []) == 1
    assert store.runs().frame["model"].tolist() == ["nano-15k"]
    (failed,) = failed_runs(store)
    assert failed.data.tags["rbptrack.failure"] == "RuntimeError: CUDA error: the device is gone"
    assert "the device is gone" in capsys.readouterr().err
    assert "Traceback" in (mlruns_folder() / "rbptrack.log").read_text()


def test_one_broken_model_does_not_stop_the_jobs_of_others(
    store: Store, configs: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text('{"model_type": "none"}')
    begun: list[list[str]] = []
    monkeypatch.setattr("rbptrack.sweep.backends.run_side_by_side", lambda commands, *_: begun.extend(commands))
    words = [*SMALL[1:], "model=nano/6k,./broken", "launch=gpus", "launch.gpus=0", "sweep='../../a,b'"]
    assert sweep.run(configs(*words), words) == 1
    (job,) = begun
    (cell,) = read_job(Path(job[-1]))
    assert cell.config.model.name == "nano-6k"
    assert cell.config.sweep == "../../a,b"
    assert not (tmp_path / "a,b").exists()  # its folder lies in mlruns/launch


def test_what_cannot_be_measured_as_asked_begins_nothing(store: Store, configs: Configs, tmp_path: Path) -> None:
    assert sweep.run(configs("dataset.seq_len=1000"), []) == 2
    assert sweep.run(configs("model=nano/6k,nano/15k", "dataset.split=nowhere"), []) == 2
    assert sweep.run(configs("model=nano/6k,nano/15k", "k=5000"), []) == 2
    assert not list(store.measurements.search("attributes.status = 'FINISHED'"))
    assert sweep.run(configs("dataset.seq_len=64,1000", "analyzers=[]"), []) == 1  # one could


def test_k_above_the_vocabulary_is_left_out_with_a_note(
    store: Store, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run(configs("k=10,5000"), []) == 0
    assert "5000" in capsys.readouterr().out
    assert "rbp_10" in store.runs().frame.columns


def interrupt(error: BaseException) -> Callable[..., Any]:
    def measure(*args: Any, **options: Any) -> Any:
        raise error

    return measure


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_after_an_interrupt_the_same_command_goes_on(
    error: BaseException, store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = configs("model=nano/6k,nano/15k", "analyzers=[]")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "measure", interrupt(error))
        with pytest.raises(type(error)):
            sweep.run(cells, [])
    assert not list(store.measurements.search(""))
    assert sweep.run(cells, []) == 0
    assert len(store.runs().frame) == 2


def test_a_job_leaves_its_folder_to_its_launcher(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config,) = configs("deliver=false")
    assert sweep.run([config], []) == 0
    assert not list(store.measurements.search(""))
    cell = sweep.resolve(config)
    assert (cell.folder / "record.json").exists()
    before = (cell.folder / "record.json").read_bytes()
    assert sweep.run([config], []) == 0  # requeued: what is finished is not measured again
    assert (cell.folder / "record.json").read_bytes() == before
    monkeypatch.setattr("rbptrack.sweep.backends.run_side_by_side", lambda *_: None)
    words = [*SMALL, "launch=gpus", "launch.gpus=0", "deliver=false"]
    assert sweep.run(configs(*words), words) == 0  # a job that uses several GPUs
    assert cell.folder.exists()
    outcome = deliver_finished(cell, store)
    assert isinstance(outcome, Measured)
    assert outcome.run_id == store.find(cell.fingerprint)
    assert not cell.folder.exists()
    assert deliver_finished(cell, store) is None


def test_a_job_says_why_its_cell_failed(store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = sweep.resolve(*configs())
    monkeypatch.setattr(engine, "measure", interrupt(RuntimeError("no luck")))
    assert isinstance(measure_cell(cell, store, deliver=False), Failed)
    assert not failed_runs(store)
    outcome = deliver_finished(cell, store)
    assert isinstance(outcome, Failed)
    assert "no luck" in outcome.message
    assert len(failed_runs(store)) == 1


def test_what_another_command_delivers_is_no_failure(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_side_by_side(*_: Any) -> None:
        measure_cell(cell, store, deliver=False)
        assert not Outbox(store).deliver_waiting()[0].error  # `rbptrack list`, meanwhile

    words = [*SMALL, "launch=gpus", "launch.gpus=0"]
    again = configs(*words, "force=true")
    cell = sweep.resolve(*again)
    monkeypatch.setattr("rbptrack.sweep.backends.run_side_by_side", run_side_by_side)
    cells_folder().mkdir(parents=True)
    failure_file(cell).write_text("of an earlier job")
    assert sweep.run(configs(*words), words) == 0
    assert sweep.run(again, words) == 0
    monkeypatch.setattr("rbptrack.sweep.backends.run_side_by_side", lambda *_: None)
    assert sweep.run(again, words) == 1  # the earlier run is not what was asked for


def test_a_store_that_is_away_does_not_stop_a_sweep(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*args: Any, **options: Any) -> Any:
        raise StoreAway("the tracking store does not answer")

    cells = configs("model=nano/6k,nano/15k")
    with monkeypatch.context() as patch:
        for name in ("find", "find_all", "find_delivered", "check_writable", "fail", "runs"):
            patch.setattr(Store, name, away)
        assert sweep.run(cells, []) == 1
    assert "does not answer" in capsys.readouterr().err
    assert len(list(cells_folder().glob("*/record.json"))) == 2
    monkeypatch.setattr(engine, "measure", interrupt(AssertionError("nothing is left to measure")))
    assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=[]"), []) == 0
    assert len(store.runs().frame) == 2


def test_a_store_that_refuses_in_mid_sweep_gets_the_measurements_later(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise StoreRefuses("the tracking server does not permit this")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "log", refuse)
        assert sweep.run(configs("model=nano/6k,nano/15k", "analyzers=[]"), []) == 1
    assert "sync delivers them" in capsys.readouterr().err
    assert len(Outbox(store).waiting()) == 2
    assert [delivered.error for delivered in Outbox(store).deliver_waiting()] == ["", ""]
    assert len(store.runs().frame) == 2


def test_nothing_is_measured_for_a_store_that_refuses(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise StoreRefuses("the tracking server does not permit this")

    monkeypatch.setattr(Store, "check_writable", refuse)
    monkeypatch.setattr(engine, "measure", interrupt(AssertionError("this would be measured for nothing")))
    with pytest.raises(StoreRefuses):
        sweep.run(configs(), [])


def test_two_processes_do_not_measure_a_cell_at_once(store: Store, configs: Configs) -> None:
    """The second waits for the first, and finds it measured."""
    cell = sweep.resolve(*configs())
    outcomes: list[sweep.Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(measure_cell(cell, Store()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Found", "Measured"]
    assert len(list(store.measurements.search(""))) == 1


def test_an_analyzer_that_does_not_exist_is_refused_first(store: Store, configs: Configs) -> None:
    with pytest.raises(BadInput, match="power_law"):
        sweep.run(configs("model=nano/6k,nano/15k", "analyzers=powerlaw"), [])
    with pytest.raises(BadInput, match="power_law"):
        sweep.run(configs("analyzers=powerlaw"), [])
    assert not list(store.measurements.search(""))
