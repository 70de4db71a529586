"""Tests of the command `verify`, which looks for damaged measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from rbptrack.measurement.record import ReportRecord
from rbptrack.tracking import Store
from tests.conftest import RunCommand


def test_verify_of_an_undamaged_store_exits_with_0(run_in_store: RunCommand) -> None:
    code, _, err = run_in_store("verify")
    assert (code, err) == (0, "")


def test_verify_names_a_damaged_file(run_in_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damages a copy of the store: the measurement is exported, and imported into a store in another folder."""
    uri = f"--tracking-uri sqlite:///{tmp_path}/mlflow.db"
    bundle = tmp_path / "b.zip"
    assert run_in_store(f"export {bundle} --dataset code --model nano-6k")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert run_in_store(f"import {bundle} {uri}")[0] == 0
    (ranks,) = tmp_path.rglob("ranks.parquet")
    content = bytearray(ranks.read_bytes())
    content[len(content) // 2] ^= 4
    ranks.write_bytes(content)
    code, out, _ = run_in_store(f"verify {uri}")
    assert code == 1
    assert "ranks.parquet" in out
    code, out, _ = run_in_store(f"verify --repair {uri}")
    assert code == 1
    assert "next sweep" not in out
    assert bundle.name in out
    assert run_in_store(f"import {bundle} {uri}")[0] == 0
    assert run_in_store(f"verify {uri}")[0] == 0
    assert run_in_store(f"show nano-6k/code {uri}")[0] == 0


@pytest.fixture
def imported_store(run_command: RunCommand, tmp_path: Path) -> Store:
    """A store with one measurement, whose CE of 3.4 was imported from results.csv."""
    (tmp_path / "results.csv").write_text("model,dataset,ce,rbp_10\nmine-1m,wiki,3.4,0.7\n")
    assert run_command("import results.csv")[0] == 0
    return Store("sqlite:///mlflow.db")


@pytest.fixture
def damaged_store(imported_store: Store) -> Store:
    """The store with the imported measurement, after its CE was changed to 3.3."""
    run_id = str(imported_store.runs().frame["run_id"].iat[0])
    imported_store.connection.client.log_metric(run_id, "ce", 3.3)
    return imported_store


@pytest.mark.usefixtures("damaged_store")
@pytest.mark.parametrize("flag", ["", "--repair"])
def test_verify_names_the_file_to_import_again_if_an_imported_measurement_is_damaged(
    flag: str, run_command: RunCommand
) -> None:
    code, out, _ = run_command(f"verify {flag}")
    assert code == 1
    assert "next sweep" not in out
    assert "results.csv" in out


def test_import_replaces_a_damaged_measurement_after_repair(run_command: RunCommand, damaged_store: Store) -> None:
    assert run_command("verify --repair")[0] == 1
    assert run_command("import results.csv")[0] == 0
    assert run_command("verify")[0] == 0
    assert damaged_store.runs().frame["ce"].tolist() == [3.4]


@pytest.fixture
def saved_sweep(imported_store: Store) -> tuple[Store, str]:
    """Save the report of a sweep that covers a run which does not exist.

    Returns:
        the store, and the ID of the sweep's run.

    """
    record = ReportRecord(title="s", tags={"rbptrack.sweep": "first"}, covered_run_ids=["0" * 32])
    run_id = imported_store.save("sweep", record, {"report.html": "<p>"})
    return imported_store, run_id


@pytest.mark.usefixtures("saved_sweep")
def test_verify_repair_does_not_promise_that_a_sweep_measures_a_lost_run_again(run_command: RunCommand) -> None:
    code, out, _ = run_command("verify --repair")
    assert code == 1
    assert "next sweep" not in out


@pytest.mark.parametrize("flag", ["", "--repair"])
def test_verify_does_not_promise_that_a_sweep_repairs_a_report(
    flag: str, run_command: RunCommand, saved_sweep: tuple[Store, str]
) -> None:
    store, run_id = saved_sweep
    store.artifact(run_id, "report.html").write_text("<p>altered")
    code, out, _ = run_command(f"verify {flag}")
    assert code == 1
    assert "next sweep" not in out


def test_verify_ignores_a_report_after_repair_marked_it(
    run_command: RunCommand, saved_sweep: tuple[Store, str]
) -> None:
    store, run_id = saved_sweep
    store.artifact(run_id, "report.html").write_text("<p>altered")
    assert run_command("verify --repair")[0] == 1
    assert run_command("verify")[0] == 0
