"""Killed sweeps: a sample of what `tests/campaigns/kills.py` does, and that its judge sees what may go wrong."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from rbptrack.base.files import clear_temporary
from tests.campaigns.whole_store import Cell, cells, faults
from tests.conftest import Program, Start
from tests.patience import PATIENCE, until

SMALL = ("-m", "model=nano/6k,nano/15k,nano/38k", "dataset=pydocs", "dataset.documents=12", "engine.part_tokens=300",
         "tracking.every=0.3", "analyzers=power_law")  # fmt: skip
Swept = tuple[Path, dict[str, list[Cell]]]


@pytest.fixture(scope="module")
def undisturbed(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """A folder in which the sweep has run, and its cells."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = program(*SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, cells(folder)


def test_one_of_two_sweeps_on_a_store_is_killed(
    undisturbed: Swept, program: Program, start: Start, with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one, and the same command afterwards, leave what one undisturbed sweep leaves."""
    (temporary := with_store / "tmp").mkdir()
    both = [start(*SMALL, cwd=with_store, TMPDIR=str(temporary)) for _ in range(2)]
    until(lambda: any("  measured " in each.said[0] or each.poll() is not None for each in both), "measurement")
    other, victim = sorted(both, key=lambda each: "  measured " in each.said[0])  # whichever measured the first cell
    victim.send_signal(signal.SIGKILL)
    assert other.wait(PATIENCE) == 0, other.said
    ended = victim.wait(PATIENCE)
    assert ended in (-signal.SIGKILL, 0), victim.said  # a busy machine may be late with the signal
    done = program(*SMALL, cwd=with_store)
    assert "0 measured, 3 skipped as already measured" in done.stdout, done.stderr
    monkeypatch.setattr("tempfile.tempdir", str(temporary))  # the last command had another
    clear_temporary()
    assert faults(with_store, undisturbed[1], temporary=temporary, sweeps=2 + (ended == 0)) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("update runs set status = 'RUNNING' where name = 'nano-6k / pydocs'", "nano-6k / pydocs: 0 finished runs"),
        ("insert into metrics select key, value, timestamp + 1, run_uuid, step, is_nan from metrics"
         " where key = 'rbp_curve' and step = 7", "metrics differ or are doubled: rbp_curve"),
        ("delete from metrics where key = 'rbp_10'", "nano-15k / pydocs: metrics differ or are doubled: rbp_10"),
        ("update runs set status = 'KILLED' where name like 'sweep %'", "0 finished sweeps of 1"),
        ("artifacts/**/histogram.parquet", "nano-38k / pydocs: histogram.parquet differs"),
        ("partial/x", "left behind: partial/<fingerprint>"),
        ("artifacts/tmpabc", "left behind: artifacts/tmpabc"),
        ("../tmp/tmpabc", "left behind in TMPDIR: tmp*"),
    ],
)  # fmt: skip
def test_the_judge_sees(damage: str, said: str, undisturbed: Swept, tmp_path: Path) -> None:
    shutil.copytree(undisturbed[0] / "mlruns", tmp_path / "mlruns")
    (tmp_path / "tmp").mkdir()
    database, new = tmp_path / "mlruns/mlflow.db", tmp_path / "mlruns" / damage
    if " " in damage:
        with sqlite3.connect(database) as connection:
            connection.execute(damage)
    elif "*" in damage:
        _point_artifacts_at(tmp_path, undisturbed[0])
        for path in (tmp_path / "mlruns").glob(damage):
            path.write_bytes(b"other")
    else:
        new.parent.mkdir(exist_ok=True)
        new.touch()
    wrong = faults(tmp_path, undisturbed[1], temporary=tmp_path / "tmp", sweeps=1)
    assert any(said in line for line in wrong), wrong


def _point_artifacts_at(folder: Path, before: Path) -> None:
    with sqlite3.connect(folder / "mlruns/mlflow.db") as connection:
        connection.execute("update runs set artifact_uri = replace(artifact_uri, ?, ?)", (str(before), str(folder)))
