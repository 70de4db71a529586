"""Writing to a store: beginning and ending runs, and logging into them."""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pandas as pd
from PIL import Image

from rbptrack.base.errors import BadInput
from rbptrack.base.files import sync_tree
from rbptrack.base.secrets import refuse_known
from rbptrack.tracking import writing
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.context import source_tags
from rbptrack.tracking.frame import LoggedRun, Sink
from rbptrack.tracking.process import marks
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import FIGURE, RANKS, Record, artifacts, color, describe, for_charts
from rbptrack.tracking.schema import Tag, scores_tags
from rbptrack.tracking.scores import SCORES_FILE, write_scores
from rbptrack.tracking.view import TAG as VIEW_TAG
from rbptrack.tracking.view import Shown, preset

_IMAGES = "mlflow.loggedImages"  # MLflow's tag of a run that its UI shows images of
_SMALL = 256  # pixels of such an image beside itself, at most


class Writer:
    """Writes to one experiment.

    Every method raises StoreAway where the store does not answer, and BadInput where it refuses.

    Args:
        connection: to the store.

    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def begin(self, name: str, tags: Mapping[str, str], *, started: float | None = None) -> str:
        """Create a run and return its id; it stays RUNNING until `end`."""
        refuse_known({"the run's name": name, **tags})
        if self.connection.read_only:
            self.connection.check_writable()  # raises: the copy that is read is not the store
        sink, at = self._writing(), int((started or time.time()) * 1000)
        experiment, every = self.connection.experiment_id, source_tags() | marks() | dict(tags)
        with self.connection.explained():
            return sink.begin(experiment, name, every, started=at)

    def resume(self, run_id: str, *, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Make an unfinished run this process's own and RUNNING again; False if there is no such run here."""
        run = self._unfinished(run_id)
        if run is not None:
            times = int(run.tags.get(Tag.RESUMED, "0")) + 1
            self.log(run_id, tags=marks() | {Tag.RESUMED: str(times)} | dict(tags))
            self._reopen(run)
        return run is not None

    def holds(self, run_id: str, *, claim: str = "") -> bool:
        """Whether a run is this process's own and RUNNING, and its claim is as said."""
        run = self._unfinished(run_id)
        wanted = {Tag.PROCESS: marks()[Tag.PROCESS]} | ({Tag.CLAIM: claim} if claim else {})
        return run is not None and run.status == "RUNNING" and wanted.items() <= run.tags.items()

    def _unfinished(self, run_id: str) -> LoggedRun | None:
        """A run of this experiment that has not FINISHED and was not deleted, if there is one of this id."""
        for run in Reader(self.connection).search(run_id=run_id):
            damaged = Tag.DAMAGED in run.tags  # what it holds would stay beside what is logged now
            return run if run.status != "FINISHED" and not damaged else None
        return None

    def _writing(self) -> Sink:
        """What writes, with this process's mark that it does so left beside a local store."""
        sink = self.connection.sink
        if self.connection.database is not None:
            writing.begin(self.connection.database)
        return sink

    def mark_damaged(self, run_id: str, why: str) -> None:
        """Let a finished measurement no longer count as measured: FAILED, and why; nothing else of it changes."""
        self.log(run_id, tags={Tag.DAMAGED: why[:500]})
        self._set_status(run_id, "FAILED")

    def _reopen(self, run: LoggedRun) -> None:
        self._writing()
        if run.status != "RUNNING":
            self._set_status(run.run_id, "RUNNING")

    def end(self, run_id: str, status: str = "FINISHED") -> None:
        """Close a run: FINISHED, FAILED or KILLED."""
        self._set_status(run_id, status, ended=int(time.time() * 1000))

    def _set_status(self, run_id: str, status: str, *, ended: int | None = None) -> None:
        sink = self.connection.sink
        with self.connection.explained():
            sink.set_status(run_id, status, ended=ended)

    def withdraw(self, run_id: str) -> None:
        """Delete an unfinished run that another made superfluous; nothing if there is none of this id here."""
        if self._unfinished(run_id) is not None:
            self.delete(run_id)

    def take_back(self, record: Record) -> bool:
        """Delete the runs of a record that this process made, finished or not; whether none of another is left."""
        mine, none_left = marks()[Tag.PROCESS], True
        for run in Reader(self.connection).search({Tag.RECORD: record.tags[Tag.RECORD]}):
            if run.tags.get(Tag.PROCESS) == mine:
                self.delete(run.run_id)
            else:  # of another import of the same measurement, at the same time or before
                none_left = False
        return none_left

    def delete(self, run_id: str) -> None:
        """Delete a run, whatever its state; MLflow keeps it among the deleted until `mlflow gc`."""
        sink = self.connection.sink
        with self.connection.explained():
            sink.delete(run_id)

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        curves: Mapping[str, Mapping[int, float]] | None = None,
        tags: Mapping[str, str] | None = None,
        at: float | None = None,
        step: int = 0,
    ) -> None:
        """Log params, metrics, curves by step, and tags.

        Only finite numbers are logged; MLflow would turn an infinity into 1.8e308. Numbers logged again with the same
        time change nothing. A param keeps its first value, as MLflow demands: where a continued measurement has
        another (of the engine, or of the device), it is logged as tag `rbptrack.later/<param>`.

        Args:
            run_id: of a run that has begun.
            params: by name.
            metrics: by name, all at one step.
            curves: step -> number, by name.
            tags: by name.
            at: seconds since 1970; now, if not given.
            step: of the metrics.

        """
        refuse_known({**(params or {}), **(tags or {})})
        now = int((at or time.time()) * 1000)
        points = [(k, float(v), now, step) for k, v in (metrics or {}).items() if math.isfinite(v)]
        for key, curve in (curves or {}).items():
            points += [(key, float(v), now, k) for k, v in curve.items() if math.isfinite(v)]
        known = Reader(self.connection).run(run_id).params if params else {}
        texts = {k: str(v) for k, v in (params or {}).items()}
        later = {f"{Tag.LATER}{k}": text for k, text in texts.items() if known.get(k, text) != text}
        new = {k: text for k, text in texts.items() if k not in known}
        sink = self.connection.sink
        with self.connection.explained():
            sink.log(run_id, points=points, params=new, tags={**(tags or {}), **later})

    def log_folder(self, run_id: str, folder: Path) -> None:
        """Log every file under a folder as an artifact of the run, with its relative path."""
        sink = self.connection.sink
        with self.connection.explained(), self._on_disk(run_id) as place:
            sink.add_files(run_id, folder, place)

    @contextmanager
    def _on_disk(self, run_id: str) -> Iterator[Path]:
        """Have the disk hold what is put into a run's artifacts; yields their folder, which a server has elsewhere."""
        place = Path(Reader(self.connection).artifact_uri(run_id))
        made = [each.parent for each in place.parents[1:] if not each.exists()]
        yield place
        if place.is_absolute() and place.is_dir():
            sync_tree(place, above=[*place.parents[:2], *made])  # the run's and the experiment's, for their names

    def deliver(self, record: Record, folder: Path, run_id: str = "") -> str:
        """Log a finished measurement, complete, into the run that it began or a new one; returns the run's id.

        May be called again after a failure at any point: what is there already stays as it is, and a record that was
        delivered is not delivered twice.

        Args:
            record: of the measurement.
            folder: holds its artifacts.
            run_id: the run that the measurement began; empty if it began none.

        """
        reader = Reader(self.connection)
        same = {Tag.RECORD: record.tags[Tag.RECORD]}
        for delivered in reader.search(same, status="FINISHED"):
            if not (folder / RANKS).exists() or reader.has_ranks(delivered):
                return delivered.run_id
        begun = [run_id] if run_id else [run.run_id for run in reader.search(same)]
        found = next(filter(None, map(self._unfinished, begun)), None)
        if found is not None:
            self._reopen(found)
        run_id = found.run_id if found else self.begin(record.name, record.tags, started=record.started)
        tags = record.tags | color(record) | {Tag.NOTE: describe(record)}
        metrics = record.metrics | for_charts(record.metrics, record.tags[Tag.DATASET])
        self.log(run_id, params=record.params, metrics=metrics, curves=record.curves, tags=tags, at=record.ended)
        sink = self.connection.sink
        with self.connection.explained():
            if record.dataset:
                sink.add_dataset(run_id, record.dataset)
            with self._on_disk(run_id) as place:
                for path in artifacts(folder):
                    name = path.relative_to(folder).as_posix()
                    if not _linked(path, place / name):
                        sink.add_file(run_id, path, name, place)
        if (folder / FIGURE).exists() and not (found and _IMAGES in found.tags):
            self._log_image(run_id, folder / FIGURE)
        self.end(run_id)
        return run_id

    def _log_image(self, run_id: str, figure: Path) -> None:
        """Log a picture once more, whole and small, under the names by which the UI's image grid finds it."""
        with tempfile.TemporaryDirectory() as folder, Image.open(figure) as image:
            name = f"images/{figure.stem}+step+0+timestamp+{time.time() * 1000:.0f}+{uuid.uuid4()}"
            (Path(folder) / name).parent.mkdir()
            shutil.copyfile(figure, Path(folder, f"{name}.png"))
            image.thumbnail((_SMALL, _SMALL))
            image.save(Path(folder, f"{name}+compressed.webp"))
            self.log_folder(run_id, Path(folder))
        self.log(run_id, tags={_IMAGES: "True"})

    def keep_scores(self, table: pd.DataFrame, name: str) -> bool:
        """Keep scores of tasks as a run of their own; False where the very same are kept already."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / SCORES_FILE
            write_scores(table, path)
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            if Reader(self.connection).search({Tag.RECORD: content}, status="FINISHED", limit=1):
                return False
            run_id = self.begin(f"scores {name}", scores_tags(content))
            self.log_folder(run_id, Path(folder))
            self.end(run_id)
        return True

    def save_view(self, shown: Shown) -> str:
        """Keep the preset view of some runs in the experiment.

        Returns:
            The key that opens it; empty where writing is not allowed.

        """
        client, (key, value) = self.connection.open(), preset(shown)
        experiment_id = self.connection.experiment_id
        try:
            with self.connection.explained():
                if f"{VIEW_TAG}{key}" not in client.get_experiment(experiment_id).tags:
                    client.set_experiment_tag(experiment_id, f"{VIEW_TAG}{key}", value)
        except BadInput:  # a reader without the right to write sees the plain page
            return ""
        return key


def _linked(path: Path, artifact: Path) -> bool:
    """Give a file, which is on the disk, a second name as a local store's artifact; False where it must be copied."""
    if not artifact.is_absolute():
        return False
    try:
        artifact.parent.mkdir(parents=True, exist_ok=True)
        artifact.unlink(missing_ok=True)
        artifact.hardlink_to(path)
    except OSError:  # another file system, or one without links; what else is wrong, MLflow's copying says
        return False
    return True
