"""The store of measurements: one way in, which takes a lock and may be repeated, and one way out.

A run is made when there is something to log: finished, or failed with its reason. Before that a measurement is a folder
on disk, so that a store that is away loses nothing.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from rbptrack.analysis.runs import EVERYTHING, Filters, Runs
from rbptrack.analysis.source import SCORES
from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError, StoreAway, first_line
from rbptrack.base.files import sha256, sync_tree, write_whole
from rbptrack.config.paths import cells_folder, home
from rbptrack.config.patterns import fits
from rbptrack.tracking import view
from rbptrack.tracking.artifacts import Artifacts
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.models import Models
from rbptrack.tracking.names import COVERS_FILE, RECORD_FILE, SCORES_FILE, SEAL_FILE, STORE_FILE, Kind, Tag
from rbptrack.tracking.picture import draw_picture
from rbptrack.tracking.record import Record, seal_of
from rbptrack.tracking.rows import frame_of
from rbptrack.tracking.verify import faults_of
from rbptrack.tracking.writer import RunWriter, describe, shortened_text

_FINISHED = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'"
_ONE_BY_ONE = 20  # fingerprints that are asked for one by one; for more all measurements are read once
_DELIVERED = ".delivered"  # ending of a folder that is being removed


@dataclass(frozen=True)
class Fault:
    """What `verify` found wrong with a run."""

    run_id: str
    name: str
    text: str


@dataclass(frozen=True)
class Delivered:
    """What became of a folder that waited: the run's id, or why it still waits."""

    name: str
    run_id: str
    error: str = ""


class Store(Artifacts):
    """One experiment of measurements, and that of its reports.

    Nothing is contacted before it is asked for something. Every method raises StoreAway where the store does not answer
    and BadInput where it refuses.

    Args:
        uri: the address; empty: MLFLOW_TRACKING_URI, else MLflow's own default in this folder, sqlite:///mlflow.db.
        experiment: the experiment's name.

    """

    def __init__(self, uri: str = "", experiment: str = "rbptrack") -> None:
        super().__init__(Connection(uri, experiment))
        self._writer = RunWriter(self.connection)

    @property
    def uri(self) -> str:
        """The address, absolute."""
        return self.connection.uri

    @property
    def shown(self) -> str:
        """The address without a password."""
        return self.connection.shown

    @property
    def experiment(self) -> str:
        """The name of the experiment of measurements."""
        return self.connection.experiment

    def run_page(self, run_id: str, *, reports: bool = False) -> str:
        """The address of a run's page; empty where the store is no server."""
        if not self.uri.startswith("http"):
            return ""
        experiment = self.connection.find_experiment(reports=reports)
        return f"{self.shown.rstrip('/')}/#/experiments/{experiment}/runs/{run_id}?workflowType=machine_learning"

    # Measurements, in

    def find(self, fingerprint: str) -> str | None:
        """The newest finished run of a fingerprint."""
        run = self._newest(fingerprint)
        return run.info.run_id if run else None

    def find_same(self, record: Record) -> str | None:
        """The newest finished run of a record's fingerprint, unless the record corrects it.

        The fingerprint of imported numbers says what they are of and not what they are: a newer import with others
        takes the place of the older one, as the newest run of a fingerprint counts.
        """
        run = self._newest(record.fingerprint)
        if run is None:
            return None
        if "imported" in record.identity and int(record.began * 1000) > run.info.start_time:
            numbers = {name: value for name, value in run.data.metrics.items() if name not in record.curves}
            if (numbers, run.data.params) != (record.metrics, record.params):
                return None
        run_id: str = run.info.run_id
        return run_id

    def find_all(self, fingerprints: Collection[str]) -> dict[str, str]:
        """The newest finished run of each fingerprint that has one."""
        if len(fingerprints) <= _ONE_BY_ONE:
            found = {fingerprint: self.find(fingerprint) for fingerprint in fingerprints}
            return {fingerprint: run_id for fingerprint, run_id in found.items() if run_id}
        runs: dict[str, str] = {}
        for run in self.connection.search(_FINISHED):  # newest first
            fingerprint = run.data.tags.get(Tag.FINGERPRINT, "")
            if fingerprint in fingerprints:
                runs.setdefault(fingerprint, run.info.run_id)
        return runs

    def address_to(self, folder: Path) -> None:
        """Write into a cell's folder to which store it goes; the next command delivers it there."""
        write_whole(folder / STORE_FILE, json.dumps(self._address))

    def keep_waiting(self, folder: Path) -> None:
        """Copy a finished folder that could not be delivered to those that wait for this store."""
        waiting = cells_folder() / folder.name
        waiting.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(waiting.with_name(f"{waiting.name}.lock")):
            if (waiting / RECORD_FILE).exists():
                return
            shutil.copytree(folder, waiting, ignore=shutil.ignore_patterns(RECORD_FILE), dirs_exist_ok=True)
            self.address_to(waiting)
            sync_tree(waiting)
            write_whole(waiting / RECORD_FILE, (folder / RECORD_FILE).read_bytes())  # last: now it is complete

    def deliver(self, folder: Path, *, keep: bool = False) -> str:
        """Log a finished measurement, whole, and remove its folder; once, however often it is called.

        Where the fingerprint has a finished run already and was not measured again by force, that run is returned. A
        folder that waits for another store goes on waiting for it.

        Args:
            folder: holds record.json and the files that it names.
            keep: leave the folder as it is.

        Raises:
            MissingArtifact: the folder is damaged.

        """
        address = _address_of(folder)
        if not keep and folder.exists() and address is None:
            self.address_to(folder)
        keep = keep or address not in (None, self._address)
        pictures = draw_picture(folder)
        with self.connection.alone():
            if not folder.exists() and (run_id := self.find(folder.name)):  # another process was faster
                return run_id
            record, seal = _checked_record(folder)
            run_id = self._find_delivered(record, seal) or self._log_measurement(folder, record, seal, pictures)
            if not keep:
                _remove(folder)
        return run_id

    def waiting(self) -> list[Path]:
        """The folders of finished measurements that this store has not got yet."""
        return [folder for folder in sorted(cells_folder().glob("*")) if _address_of(folder) == self._address]

    def waiting_elsewhere(self) -> dict[tuple[str, str], int]:
        """How many finished measurements of this folder wait for other stores, by address and experiment."""
        addresses = [address for folder in sorted(cells_folder().glob("*")) if (address := _address_of(folder))]
        others = [address for address in addresses if address != self._address]
        return Counter((address.get("uri", ""), address.get("experiment", "")) for address in others)

    def deliver_waiting(self) -> list[Delivered]:
        """Deliver every folder that waits for this store and that no other process is at work on."""
        for leftover in cells_folder().glob(f"*{_DELIVERED}"):
            shutil.rmtree(leftover, ignore_errors=True)
        results = []
        away = ""  # that the store does not answer: the other folders need not wait for it again
        for folder in self.waiting():
            with suppress(Timeout, FileNotFoundError), FileLock(folder.with_name(f"{folder.name}.lock"), timeout=0):
                name = folder.name[:12]
                run_id = ""
                problem = away
                try:
                    name = Record.read(folder).name
                    if not away:
                        run_id = self.deliver(folder)
                except StoreAway as error:
                    problem = away = first_line(error)
                except (RbptrackError, ValueError, TypeError, KeyError, AttributeError) as error:
                    problem = first_line(error)
                results.append(Delivered(name, run_id, problem))
        return results

    def fail(self, record: Record, why: str) -> str:
        """Log that a measurement failed, and why."""
        with self.connection.alone():
            tags = record.tags | {Tag.FAILURE: why}
            run_id: str = self._writer.create(record.name, tags, record.began).run_id
            self._writer.log(run_id, params=record.params)
            self._writer.end(run_id, "FAILED", record.ended or time.time())
        return run_id

    def mark_damaged(self, run_id: str, why: str) -> None:
        """Let a finished measurement no longer count as measured."""
        with self.connection.explained():
            self.connection.client.set_tag(run_id, Tag.DAMAGED, shortened_text(why))
            self.connection.client.update_run(run_id, status="FAILED")

    # Sweeps, analyses and scores, in

    def save(
        self,
        kind: str,
        name: str,
        *,
        sweep: str = "",
        description: str = "",
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        tags: Mapping[str, str] | None = None,
        covers: Sequence[str] = (),
        began: float = 0.0,
    ) -> str:
        """Save a sweep or an analysis as a run of its own in the experiment of reports.

        Args:
            kind: a value of `Kind`.
            name: the run's name.
            sweep: the sweep that it belongs to.
            description: Markdown on the run's page.
            metrics: finite numbers.
            files: artifacts, by name.
            tags: further ones.
            covers: run ids of the measurements that it is about; a sweep's filter finds these, whoever measured them.
            began: seconds since 1970; 0: now.

        """
        began = began or time.time()
        contents = dict(files or {})
        if covers:
            contents[COVERS_FILE] = json.dumps(list(covers))
        own = {
            Tag.KIND: kind,
            Tag.SWEEP: sweep,
            Tag.NOTE: description,
            Tag.COVERS: str(len(covers)) if covers else "",
        }
        with self.connection.alone(), tempfile.TemporaryDirectory() as temporary:
            self._writer.delete_unfinished(reports=True)
            run = self._writer.create(name, own | dict(tags or {}), began, reports=True)
            run_id: str = run.run_id
            paths = []
            for file, content in contents.items():
                path = Path(temporary, file)
                path.write_bytes(content.encode() if isinstance(content, str) else content)
                paths.append(path)
            self._writer.add_files(run, paths)
            self._writer.log(run_id, metrics=metrics)
            self._writer.end(run_id, "FINISHED", time.time())
        self.locations[run_id] = run.artifact_uri
        return run_id

    def save_scores(self, table: pd.DataFrame, name: str) -> bool:
        """Keep scores of tasks, with the columns of `SCORES`.

        Returns False, and keeps nothing, if each of them is already the score that counts. Scores that an import of
        other values has replaced since count again.
        """
        content = table[list(SCORES)].to_csv(index=False)
        given = _read_scores(io.StringIO(content)).astype(str)
        if len(given.merge(self.scores().astype(str))) == len(given):
            return False
        seal = seal_of(content.encode())
        self.save(Kind.SCORES, f"scores {name}", files={SCORES_FILE: content}, tags={Tag.SEAL: seal})
        return True

    def save_view(self) -> None:
        """Save our view of the measurements in the Views menu of MLflow's page, and give datasets their colours."""
        experiment = self.connection.make_experiment()
        client = self.connection.client
        runs = list(self.connection.search(_FINISHED))
        with self.connection.alone(), self.connection.explained():
            for run_id, colour in view.missing_colours(runs).items():
                client.set_tag(run_id, view.COLOUR, colour)
            tags = client.get_experiment(experiment).tags
            value = view.tag_value({name for run in runs for name in run.data.metrics}, tags.get(view.TAG, ""))
            if value != tags.get(view.TAG):
                client.set_experiment_tag(experiment, view.TAG, value)

    def view_page(self) -> str:
        """The part of an address, below a server's, that opens our view of the measurements."""
        return view.link(self.connection.make_experiment())

    # Out

    def runs(self, filters: Filters = EVERYTHING, *, run_ids: Sequence[str] | None = None) -> Runs:
        """Finished measurements, of each fingerprint the newest: those that pass, or those with these run IDs.

        Raises:
            BadInput: nothing was measured yet, or nothing passes.

        """
        frame = frame_of(self.finished())
        if run_ids is not None:
            frame = frame[frame["run_id"].isin(list(run_ids))]
            if not len(frame):
                raise BadInput(f"{self.shown} has none of the {len(run_ids)} runs that were asked for")
        elif filters.sweep and len(frame):
            frame = self._of_sweeps(frame, filters.sweep)
        if not len(frame):
            raise self._empty()
        ordered = frame.sort_values(["family", "non_embedding_params", "dataset"], kind="stable", na_position="last")
        return Runs(ordered, self).select(replace(filters, sweep=()))

    def finished(self) -> Iterator[Any]:
        """Finished measurements as MLflow's runs, of each fingerprint the newest; newest first."""
        seen = set()
        for run in self.connection.search(_FINISHED):
            fingerprint = run.data.tags.get(Tag.FINGERPRINT) or run.info.run_id
            if fingerprint not in seen:
                seen.add(fingerprint)
                self.locations[run.info.run_id] = run.info.artifact_uri
                yield run

    def sealed_record(self, run_id: str) -> Record:
        """The record of a measurement; MissingArtifact where it or one of its files is not what was sealed."""
        with self.connection.explained():
            run = self.connection.client.get_run(run_id)
        text = self.artifact(run_id, RECORD_FILE).read_bytes()
        damaged = [RECORD_FILE]
        if seal_of(text) == run.data.tags.get(Tag.SEAL):
            record = Record.parse(text)
            damaged = [name for name, digest in record.files.items() if sha256(self.artifact(run_id, name)) != digest]
        if damaged:
            names = ", ".join(damaged)
            raise MissingArtifact(f"{run.info.run_name}: not what was sealed: {names}. rbptrack verify says more")
        return record

    def scores(self) -> pd.DataFrame:
        """The scores of tasks that were imported; of one model's scores in one task the newest."""
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SCORES}'"
        tables = [
            _read_scores(self.artifact(run.info.run_id, SCORES_FILE))
            for run in self.connection.search(condition, reports=True)
        ]
        if not tables:
            return pd.DataFrame(columns=list(SCORES))
        return pd.concat(tables, ignore_index=True).drop_duplicates(["model", "revision", "task"])

    def verify(self, *, repair: bool = False) -> Iterator[Fault]:
        """Compare every finished measurement with its sealed record, and its numbers with its ranks.

        Args:
            repair: mark damaged ones, so that the next sweep measures them again.

        """
        if not self.connection.exists or self.connection.find_experiment() is None:
            raise self._empty()
        for run in list(self.connection.search(_FINISHED)):
            faults = [Fault(run.info.run_id, run.info.run_name or "", text) for text in faults_of(self, run)]
            yield from faults
            if faults and repair:
                self.mark_damaged(run.info.run_id, "; ".join(fault.text for fault in faults))

    # Steps

    @property
    def _address(self) -> dict[str, str]:
        """The store as a folder names it; a SQLite file beside `mlruns` without its path, as they move together."""
        uri = self.shown.rstrip("/")
        database = self.connection.database
        if database and database.parent == home().parent:
            uri = f"sqlite:///{database.name}"
        return {"uri": uri, "experiment": self.experiment}

    def _newest(self, fingerprint: str) -> Any:
        condition = f"{_FINISHED} and tags.`{Tag.FINGERPRINT}` = '{fingerprint}'"
        return next(iter(self.connection.search(condition, most=1)), None)

    def _of_sweeps(self, frame: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
        """The measurements that these sweeps made, or found measured; BadInput where there is none."""
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SWEEP}'"
        covered: set[str] = set()
        for run in self.connection.search(condition, reports=True):
            if Tag.COVERS in run.data.tags and fits([run.data.tags.get(Tag.SWEEP, "")], patterns):
                covered |= set(json.loads(self.artifact(run.info.run_id, COVERS_FILE).read_text()))
        made = frame["sweep"].map(lambda name: fits([str(name)], patterns))
        chosen = frame[made | frame["run_id"].isin(covered)]
        if not len(chosen):
            names = ", ".join(sorted({str(name) for name in frame["sweep"].dropna()})[-10:]) or "none"
            raise BadInput(f"no measurement has sweep={','.join(patterns)}. The store has {names}")
        return chosen

    def _empty(self) -> BadInput:
        if not self.connection.exists:
            return BadInput(f"there is no tracking store {self.shown} yet: measure something first")
        if self.connection.find_experiment() is None:
            names = ", ".join(self.connection.experiment_names()) or "none"
            return BadInput(
                f"the tracking store {self.shown} has no experiment {self.experiment}. Experiments: {names}"
            )
        return BadInput(f"the experiment {self.experiment} of {self.shown} holds no finished measurement")

    def _find_delivered(self, record: Record, seal: str) -> str | None:
        """The finished run of a record, or of another measurement of the same where that suffices."""
        if not record.tags.get(Tag.FORCED):
            return self.find_same(record)
        condition = f"{_FINISHED} and tags.`{Tag.SEAL}` = '{seal}'"
        return next((run.info.run_id for run in self.connection.search(condition, most=1)), None)

    def _log_measurement(self, folder: Path, record: Record, seal: str, pictures: Sequence[Path]) -> str:
        self._writer.delete_unfinished(f" and tags.`{Tag.FINGERPRINT}` = '{record.fingerprint}'")
        run = self._writer.create(record.name, record.tags | {Tag.SEAL: seal, Tag.NOTE: describe(record)}, record.began)
        run_id: str = run.run_id
        try:
            model_id = Models(self.connection).find_or_create(record, run_id)
            self._writer.log_record(run_id, record, model_id)
            self._writer.log_inputs(run_id, record, model_id)
            files = [folder / name for name in (*sorted(record.files), RECORD_FILE)]
            self._writer.add_files(run, [*files, *pictures])
            self._writer.end(run_id, "FINISHED", record.ended)
        except BaseException:
            with suppress(RbptrackError):  # if it cannot be removed now, the next delivery does it
                self._writer.delete(run_id)
            raise
        return run_id


def _checked_record(folder: Path) -> tuple[Record, str]:
    """The record of a folder and its seal; MissingArtifact where it or one of its files is damaged."""
    try:
        text = (folder / RECORD_FILE).read_bytes()
        record = Record.parse(text)
        damaged = [name for name, digest in record.files.items() if sha256(folder / name) != digest]
        if (folder / SEAL_FILE).read_text() != seal_of(text):
            damaged.append(RECORD_FILE)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MissingArtifact(f"{folder} is damaged ({first_line(error)}): remove it, and measure again") from error
    if damaged:
        raise MissingArtifact(f"{folder} is damaged ({', '.join(damaged)}): remove it, and measure again")
    return record, seal_of(text)


def _read_scores(file: Path | io.StringIO) -> pd.DataFrame:
    return pd.read_csv(file, dtype={"model": str, "revision": str, "task": str}, keep_default_na=False)


def _address_of(folder: Path) -> dict[str, str] | None:
    """To which store a folder goes, if it is finished."""
    if not (folder / RECORD_FILE).exists() or folder.name.endswith(_DELIVERED):
        return None
    with suppress(OSError, ValueError):
        address = json.loads((folder / STORE_FILE).read_text())
        return address if isinstance(address, dict) else None
    return None


def _remove(folder: Path) -> None:
    """Remove a delivered folder. It is renamed first: half removed, it must not look as if it waited."""
    gone = folder.with_name(folder.name + _DELIVERED)
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
