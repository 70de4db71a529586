"""Cells and sweeps that something goes wrong around: a store that is silent for a moment, a signal in the analyses."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rbptrack import __main__
from rbptrack.base import process
from rbptrack.base.errors import StoreAway
from rbptrack.commands import measure
from rbptrack.config.schema import SweepConfig, TrackingConfig
from rbptrack.sweep import analyses
from rbptrack.sweep.outcome import Outcome
from rbptrack.tracking import outbox
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.store import Store
from tests.cells import run


@pytest.fixture
def here(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(with_store)
    return with_store


def statuses(kind: str) -> list[str]:
    connection = Store(TrackingConfig())
    client = connection.open()
    of_kind = client.search_runs([connection.experiment_id], f"tags.`rbptrack.kind` = '{kind}'")
    return [r.info.status for r in of_kind]


def silent(times: int) -> Callable[[Reader, str], str | None]:
    """`Reader.find` of a store that does not answer the first times."""
    find, left = Reader.find, [times]

    def answered(self: Reader, fingerprint: str) -> str | None:
        if left[0]:
            left[0] -= 1
            raise StoreAway("the store cannot be reached")
        return find(self, fingerprint)

    return answered


def test_a_store_that_is_silent_for_a_moment_hides_no_measurement(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run()
    assert first.status == "measured"
    monkeypatch.setattr(Reader, "find", silent(1))
    monkeypatch.setattr("rbptrack.engine.measure.measure", lambda *a, **b: pytest.fail("measured twice"))
    again = run()
    assert (again.status, again.run_id) == ("skipped", first.run_id)
    assert statuses("measurement") == ["FINISHED"]
    assert not (here / "mlruns/partial").exists() or not list((here / "mlruns/partial").iterdir())


def test_what_was_measured_though_it_was_there_is_not_delivered(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was away from the check until the delivery."""
    first = run()
    monkeypatch.setattr(Reader, "find", silent(2))
    again = run()
    assert (again.status, again.run_id, again.waits) == ("measured", first.run_id, "")
    assert statuses("measurement") == ["FINISHED"]
    assert not outbox.folder().exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143), SystemExit(129)], ids=repr)
def test_a_signal_during_the_analyses_ends_the_sweep_s_run(
    stop: BaseException, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        assert statuses("sweep") == ["RUNNING"]
        raise stop

    monkeypatch.setattr(analyses, "analyze_all", stopped)
    monkeypatch.setattr(Reader, "runs", lambda *a, **b: SimpleNamespace())
    outcome = Outcome("nano-6k / wiki", "nano-6k", "wiki", "measured", "0" * 32)
    with pytest.raises(type(stop)):
        analyses.analyze_sweep(SweepConfig(), "mine", [outcome], analyzers=[], overrides=[], began=time.time())
    assert statuses("sweep") == ["KILLED"]
    out = capsys.readouterr().out
    assert "interrupted; 1 measurement saved. To finish:" in out
    assert "python -m rbptrack report sweep=mine" in out


DROPPED = """
import gc, os, signal, sys, time, weakref
from rbptrack.base.process import install_signals, stop_code

class Held: pass

install_signals()
held = Held()
callback = weakref.ref(held, lambda gone: os.kill(os.getpid(), signal.{name}))
del held  # Python drops what the callback raises
try:
    time.sleep(600)
except BaseException as stop:
    print(type(stop).__name__, stop_code())
"""


@pytest.mark.parametrize(("name", "said"), [("SIGTERM", "SystemExit 143"), ("SIGINT", "KeyboardInterrupt 130")])
def test_a_signal_that_comes_in_a_callback_still_stops_the_program(name: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED.format(name=name)], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (said, "")


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Raises what became of a SIGTERM that came while a library tidied up."""

    def fail(*arguments: object, **options: object) -> None:
        monkeypatch.setattr(process, "_received", 143)
        raise AttributeError("'NoneType' object has no attribute '_invalidate_flags_cache'")

    return fail


def test_an_interrupt_that_became_an_error_ends_the_command(
    turned: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rbptrack.commands.list_.main", turned)
    monkeypatch.setattr(sys, "argv", ["rbptrack", "list"])
    assert __main__.main() == 143
    assert capsys.readouterr().err.startswith("interrupted: ")


def test_an_interrupt_that_became_an_error_is_no_failed_cell(
    turned: Callable[..., None], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "send", turned)
    with pytest.raises(SystemExit):
        run()
    assert statuses("measurement") == ["KILLED"]


def test_whether_a_cell_is_measured_is_asked_once_a_sweep_before_it_is_measured_and_before_it_is_delivered(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[str]()

    def counted(name: str) -> None:
        whole = getattr(Reader, name)

        def counting(reader: Reader, fingerprints: Any) -> Any:
            asked[name] += 1
            return whole(reader, fingerprints)

        monkeypatch.setattr(Reader, name, counting)

    counted("find")
    counted("find_all")
    words = [
        "-m",
        "model=nano/6k,nano/15k",
        "dataset=pydocs",
        "dataset.documents=2",
        "analyzers=[]",
        "engine.threads=1",
    ]
    assert measure.main(words) == 0
    assert asked == {"find_all": 1, "find": 4}
    asked.clear()
    assert measure.main(words) == 0
    assert asked == {"find_all": 1}
