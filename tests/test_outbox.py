"""Finished measurements on their way to a store: each arrives there once, whatever stops it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from rbptrack.base.errors import StoreAway
from rbptrack.commands import sync
from rbptrack.config.paths import partial
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking import outbox, writer
from rbptrack.tracking.claim import begin, find_after_others, repair
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.live import Heartbeat, working
from rbptrack.tracking.process import marks, where
from rbptrack.tracking.record import Record
from rbptrack.tracking.schema import WITHOUT, MeasurementTags, Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.writer import Writer
from tests.patience import until

FINGERPRINT = "ab" * 32
KS = range(1, 40)


@pytest.fixture
def here(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, and a second store, b.db."""
    monkeypatch.chdir(with_store)
    with sqlite3.connect("mlruns/mlflow.db") as source, sqlite3.connect("b.db") as target:
        source.backup(target)
    return with_store


@pytest.fixture
def a(here: Path) -> Store:
    return Store(TrackingConfig())


@pytest.fixture
def b(here: Path) -> Store:
    return Store(TrackingConfig(uri=f"sqlite:///{here / 'b.db'}"))


def a_record(fingerprint: str = FINGERPRINT, **tags: str) -> Record:
    about = MeasurementTags(fingerprint, "nano", "6k", "nano-6k", "wiki", "")
    made = about.tags() | {Tag.RANKS: WITHOUT} | tags  # some are delivered without files
    record = Record(about.title, made, {"model.dtype": "float32"}, {"ce": 1.0, "rbp_1": 0.5})
    record.curves = {"rbp_curve": {k: k / 40 for k in KS}}
    record.ended = time.time()
    return record


def send(connection: Store, record: Record, run_id: str = "") -> outbox.Sent:
    measured = partial() / record.fingerprint / "record"
    measured.mkdir(parents=True)
    (measured / "ranks.parquet").write_text("ranks")
    return outbox.send(connection, record, measured, run_id, made_from=measured.parent, tell=print)


def deliver() -> outbox.Delivered:
    return outbox.repair_and_deliver(TrackingConfig(), tell=print)


@contextmanager
def away(monkeypatch: pytest.MonkeyPatch, uri: str) -> Iterator[None]:
    """Nothing answers at an address."""
    open_ = Connection.open

    def opened(self: Connection) -> MlflowClient:
        if self.uri == uri:
            raise StoreAway(f"the tracking store {uri} cannot be reached")
        return open_(self)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "open", opened)
        yield


def runs(connection: Store) -> list[Run]:
    client = connection.open()
    return list(client.search_runs([connection.experiment_id], "tags.`rbptrack.kind` = 'measurement'"))


def check_delivered_once(connection: Store) -> None:
    (run,) = runs(connection)
    assert run.info.status == "FINISHED"
    history = connection.open().get_metric_history(run.info.run_id, "rbp_curve")
    assert [m.step for m in history] == list(KS)
    assert connection.reader.artifact(run.info.run_id, "ranks.parquet").read_text() == "ranks"
    assert not outbox.folder().exists()
    assert not partial().exists()


def test_what_release_0_1_left_for_a_store_with_a_password_is_found(here: Path) -> None:
    """Its spool names the store with `***` in the password's place."""
    for number, stars in enumerate(("me:***@host/runs", "host/runs?user=me&password=***")):
        record = a_record(str(number) * 64, **{Tag.STORE: f"postgresql://{stars}", Tag.EXPERIMENT: "rbptrack"})
        folder = outbox.folder() / "old" / f"{record.fingerprint}.{number}"
        folder.mkdir(parents=True)
        record.write(folder)
        address = stars.replace(":***@", "@").replace("&password=***", "")
        assert outbox.find(Store(TrackingConfig(uri=f"postgresql://{address}")), record.fingerprint)


def test_what_waits_for_one_store_is_not_another_s(a: Store, b: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with away(monkeypatch, a.uri):
        assert "cannot be reached" in send(a, a_record()).waits
        assert outbox.find(a, FINGERPRINT)
        assert outbox.find(b, FINGERPRINT) is None
        assert send(b, a_record()) == outbox.Sent(runs(b)[0].info.run_id, "")
        forced = a_record(**{Tag.FORCED: "yes"})
        assert send(a, forced).waits
        assert len(outbox.waiting()) == 2
    assert list(deliver().runs) == [FINGERPRINT]
    assert [run.info.status for run in runs(a)] == ["FINISHED"] * 2  # a forced one replaces nothing
    check_delivered_once(b)


def test_sync_says_what_waits_while_the_store_is_away(
    a: Store, monkeypatch: pytest.MonkeyPatch, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with away(monkeypatch, a.uri):
        assert sync.main([]) == 1
        assert "cannot be reached\nnothing waits to be delivered to it" in capsys.readouterr().out
        send(a, a_record())
        assert sync.main([]) == 1
        out = capsys.readouterr().out
        assert "nano-6k / wiki waits in " in out
        assert "0 delivered, 1 waiting" in out
        for fingerprint in ("cd" * 32, "ef" * 32):
            send(a, a_record(fingerprint))
        capsys.readouterr()
        assert sync.main([]) == 1
        away_, waiting, counted = capsys.readouterr().out.splitlines()
        (folder,) = outbox.folder().iterdir()
        assert waiting == f"3 measurements wait in {folder}: {away_}"
        assert counted == "0 delivered, 3 waiting"
    assert sync.main([]) == 0
    assert "3 delivered, 0 waiting" in capsys.readouterr().out
    assert len(runs(a)) == 3
    assert not outbox.folder().exists()


def test_two_that_were_measured_while_the_store_was_away_are_one(
    a: Store, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with away(monkeypatch, a.uri):
        send(a, a_record())
        send(a, a_record())
        assert len(outbox.waiting()) == 2
    deliver()
    out = capsys.readouterr().out
    assert out.count("delivered nano-6k / wiki to ") == out.count("nano-6k / wiki is already finished in ") == 1
    check_delivered_once(a)


@pytest.mark.parametrize("stopped", ["log_artifacts", "describe"])
def test_a_delivery_that_was_stopped_is_completed(
    stopped: str, a: Store, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into the run that the measurement began; its curves are not logged twice."""
    record = a_record()
    run_id = begin(a, record, partial() / FINGERPRINT)
    assert run_id == runs(a)[0].info.run_id

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer, stopped, interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(a, record, run_id)
    assert "interrupted: nano-6k / wiki is measured, complete, and kept in" in capsys.readouterr().out
    assert not list(partial().iterdir())
    assert deliver().runs == {FINGERPRINT: run_id}
    check_delivered_once(a)
    assert deliver() == outbox.Delivered()


def test_a_run_that_a_lost_answer_began_twice_is_deleted(a: Store, here: Path) -> None:
    record = a_record()
    lost = a.writer.begin(record.name, record.tags)
    run_id = begin(a, record, partial() / FINGERPRINT)
    assert run_id != lost
    send(a, record, run_id)
    check_delivered_once(a)


def test_a_run_that_another_host_took_for_dead_gives_way_to_what_it_measured(a: Store, here: Path) -> None:
    record = a_record()
    run_id = begin(a, record, partial() / FINGERPRINT)
    a.writer.end(run_id, "KILLED")
    other = a.writer.deliver(a_record(), here)
    assert send(a, record, run_id).run_id == other
    assert [run.info.run_id for run in runs(a)] == [other]


@pytest.mark.parametrize("own_is_smaller", [True, False])
def test_of_two_that_end_together_the_smaller_run_id_is_read_and_the_other_is_its_duplicate(
    own_is_smaller: bool, a: Store, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They began in the same moment, and each asked for the last time before the other had finished."""
    record, theirs = a_record(), a_record()
    own = begin(a, record, partial() / FINGERPRINT)
    while ((other := a.writer.begin(theirs.name, theirs.tags)) > own) != own_is_smaller:
        a.writer.withdraw(other)
    deliver_ = Writer.deliver

    def meanwhile(self: Writer, *arguments: Any) -> str:
        deliver_(self, theirs, here, other)
        return deliver_(self, *arguments)

    monkeypatch.setattr(Writer, "deliver", meanwhile)
    kept, duplicate = sorted([own, other])
    assert send(a, record, own).run_id == a.reader.find(FINGERPRINT) == kept
    assert a.reader.run(duplicate).tags[Tag.DUPLICATE] == kept
    assert [run.info.status for run in runs(a) if run.info.run_id == kept] == ["FINISHED"]
    assert a.reader.runs(FilterConfig()).frame["run_id"].tolist() == [kept]
    line = f"nano-6k / wiki was measured twice: run {kept} is read, run {duplicate} is marked as its duplicate"
    assert line in capsys.readouterr().out


def test_a_process_that_was_killed_before_it_marked_a_duplicate_does_so_when_it_is_started_again(
    a: Store, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = a_record()

    def killed(*arguments: object, **options: object) -> str:
        a.writer.deliver(a_record(), here)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "keep_one", killed)
        with pytest.raises(SystemExit):
            send(a, record, begin(a, record, partial() / FINGERPRINT))
    both = sorted(run.info.run_id for run in runs(a))
    deliver()
    assert sorted(run.info.run_id for run in runs(a)) == both  # none is deleted
    assert a.reader.find(FINGERPRINT) == both[0]
    assert a.reader.run(both[1]).tags[Tag.DUPLICATE] == both[0]


def test_what_was_made_again_by_force_is_no_duplicate(a: Store, here: Path) -> None:
    first = send(a, a_record()).run_id
    forced = send(a, a_record(**{Tag.FORCED: "yes"})).run_id
    assert [run.info.status for run in runs(a)] == ["FINISHED"] * 2
    assert a.reader.find(FINGERPRINT) == forced != first


def test_a_living_run_is_waited_for_and_what_it_finishes_is_taken(
    a: Store, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = a.writer.begin("nano-6k / wiki", a_record().tags)
    told: list[str] = []
    waited: list[float] = []

    def finishes(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            a.writer.end(other)

    monkeypatch.setattr("rbptrack.tracking.claim.time.sleep", finishes)
    folder = partial() / FINGERPRINT
    assert find_after_others(a.reader, FINGERPRINT, folder, tell=told.append) == other
    assert len(waited) == 2
    assert told == [f"nano-6k / wiki: waiting for {where(marks())}, which is already measuring it"]


def test_a_run_that_is_silent_for_long_is_not_waited_for(a: Store, here: Path) -> None:
    """Its process lives, but lost the run on its way. Nor is the run that the folder's own measurement began."""
    tags = a_record().tags | marks() | {Tag.HEARTBEAT: f"{time.time() - 310:.0f}"}
    a.writer.begin("lost", tags)
    folder = partial() / FINGERPRINT
    begin(a, a_record(), folder)
    assert find_after_others(a.reader, FINGERPRINT, folder, tell=lambda line: pytest.fail(line)) is None


def test_a_run_whose_id_a_killed_process_could_not_note_is_continued(
    a: Store, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between making the run and writing its id beside the measurement: no second run, none left KILLED."""
    begin_ = Writer.begin

    def killed(self: Writer, *arguments: Any, **options: Any) -> str:
        run_id = begin_(self, *arguments, **options)
        self.connection.open().set_tag(run_id, Tag.PROCESS, "{}")  # of a process that is gone
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "begin", killed)
        with pytest.raises(SystemExit):
            begin(a, a_record(), partial() / FINGERPRINT)
    assert len(repair(a)) == 1
    record = a_record()
    run_id = begin(a, record, partial() / FINGERPRINT)
    assert [run.info.run_id for run in runs(a)] == [run_id]
    assert send(a, record, run_id).run_id == run_id
    check_delivered_once(a)


def test_a_run_of_ones_own_beats_and_ends_as_its_block_does(a: Store, here: Path) -> None:
    ended = {}
    for error in (None, ValueError("x"), KeyboardInterrupt()):
        with suppress(ValueError, KeyboardInterrupt), working(a.writer, "report", {Tag.KIND: "analysis"}) as run_id:
            assert a.reader.search(run_id=run_id, status="RUNNING")
            assert any(thread.name == "rbptrack-live" for thread in threading.enumerate())
            ended[run_id] = error
            if error:
                raise error
    status = {run.info.run_id: run.info.status for run in a.open().search_runs([a.experiment_id])}
    assert [status[run_id] for run_id in ended] == ["FINISHED", "FAILED", "KILLED"]


def test_a_copied_folder_delivers_to_its_own_store(a: Store, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with away(monkeypatch, a.uri):
        send(a, a_record())
    copy = Path(shutil.copytree(here / "mlruns", here / "copy/mlruns"))
    monkeypatch.chdir(copy.parent)
    assert list(deliver().runs) == [FINGERPRINT]
    assert not runs(a)
    check_delivered_once(Store(TrackingConfig()))


def test_what_dead_processes_left_is_cleared(a: Store, here: Path) -> None:
    """Parts of what is finished, half-removed records, locks; the parts of what is not finished stay."""
    send(a, a_record())
    for place in (partial() / FINGERPRINT, partial() / ("cd" * 32), outbox.folder() / "0123456789abcdef/half"):
        place.mkdir(parents=True)
        (place / "part.parquet").touch()
        place.with_name(f"{place.name}.lock").touch()
    (partial() / f"{'ef' * 32}.lock").touch()
    deliver()
    assert [path.name for path in partial().iterdir() if path.is_dir()] == ["cd" * 32]
    assert not (partial() / f"{'ef' * 32}.lock").exists()
    assert not outbox.folder().exists()


def test_a_damaged_record_is_named_and_stops_nothing(
    a: Store, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with away(monkeypatch, a.uri):
        send(a, a_record("cd" * 32))
        send(a, a_record())
    (damaged,) = here.glob(f"mlruns/spool/*/{'cd' * 32}.*/record.json")
    damaged.write_text(damaged.read_text()[:99])
    done = deliver()
    assert (list(done.runs), done.left) == ([FINGERPRINT], 1)
    assert "record.json is damaged" in capsys.readouterr().out


def test_a_heartbeat_survives_a_store_that_is_away_for_a_moment(a: Store, here: Path) -> None:
    began = time.time()
    run_id = a.writer.begin("sweep x", {Tag.KIND: "sweep", Tag.HEARTBEAT: "0"})
    with Heartbeat(a.writer, run_id, every=0.05) as beating:
        log, failures = beating._writer.log, iter([StoreAway("gone"), OSError("gone"), ValueError("garbage")])

        def hiccup(*arguments: object, **options: object) -> None:
            for failure in failures:
                raise failure
            log(*arguments, **options)  # type: ignore[arg-type]

        beating._writer.log = hiccup  # type: ignore[assignment]
        until(lambda: a.reader.run(run_id).tags[Tag.HEARTBEAT] != "0", "heartbeat")
    assert float(a.reader.run(run_id).tags[Tag.HEARTBEAT]) > began - 1


def test_a_living_run_of_another_host_is_left_alone(a: Store, here: Path) -> None:
    """Until it has been silent for 300 s; so is one of the experiment of analyses."""
    owner = json.dumps(json.loads(marks()[Tag.PROCESS]) | {"host": "elsewhere"})
    for name, silent in (("young", 150), ("old", 310)):
        tags = {Tag.KIND: "sweep", Tag.PROCESS: owner, Tag.HEARTBEAT: f"{time.time() - silent:.0f}"}
        a.writer.begin(name, tags)
        Writer(a.analyses()).begin(f"{name} analysis", tags)
    assert sorted(repair(a)) == ["old", "old analysis"]


def test_a_record_that_another_delivers_while_it_is_looked_for_is_not_there(
    a: Store, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many jobs deliver while other commands begin."""
    folder = outbox._folder_of(a) / f"{FINGERPRINT}.1"
    gone = here / "gone" / folder.name / "record.json"
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [*glob(self, pattern), gone])
    assert outbox.waiting() == []
    assert outbox.find(a, FINGERPRINT) is None
