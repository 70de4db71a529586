"""Check a store: its database, and every finished measurement with its files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import sqlalchemy as sa
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rbptrack.base import parquet
from rbptrack.base.addresses import DATABASES, scheme
from rbptrack.base.errors import BadInput, RbptrackError, StoreAway, first_line
from rbptrack.config.keys import flattened
from rbptrack.config.schema import FilterConfig
from rbptrack.ranks import parse_rbp_name, rbp_name
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.file_faults import file_faults
from rbptrack.tracking.local import reading
from rbptrack.tracking.params import MeasurementParams, compared
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import HISTOGRAM, RANKS, Record
from rbptrack.tracking.runs_table import LoggedRun, Unusable, row, split_difference
from rbptrack.tracking.schema import Metric, Tag
from rbptrack.tracking.uri import opened

if TYPE_CHECKING:
    from rbptrack.tracking.writer import Writer

CONFIG = "config.yaml"
_IMAGES = "images/"  # the figure once more, for MLflow's grid
_AT_ONCE = 200  # measurements whose records are read together
_OF_NUMBERS = ("model.", "dataset.", "k.", "candidates", "rank")  # params that a config's file holds too
_CUT = 500  # characters of a param that MLflow may have cut

Identify = Callable[[Mapping[str, str]], Iterator[str] | None]
"""The fingerprints that params may have; None where they do not suffice."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    text: str
    name: str = ""  # of the measurement; empty for the store itself
    run_id: str = ""


@dataclass
class Verified:
    """Which measurements were checked, and their faults."""

    measurements: int = 0  # how many were looked at
    unidentified: int = 0  # those whose params do not suffice to make their fingerprint again
    split: int = 0  # of models that were split in half precision, which moved some of their ranks
    faults: list[Fault] = field(default_factory=list)
    cured: list[str] = field(default_factory=list)  # run ids marked as damaged before; every file is whole now

    @property
    def damaged(self) -> dict[str, str]:
        """Run ids of damaged measurements, and the first fault of each."""
        return {fault.run_id: fault.text for fault in reversed(self.faults) if fault.run_id}


def verify(
    reader: Reader,
    chosen: FilterConfig,
    *,
    read_data: bool,
    identify: Identify = lambda params: None,
    since: float = 0.0,
) -> Verified:
    """Look at finished measurements.

    With `read_data`, every file is read, and its numbers are computed again. `since`: seconds since 1970; only what
    began to be measured after, or ended after.

    Raises:
        BadInput: none passes the filters.
        StoreAway: the store does not answer.

    """
    done = Verified()
    runs = [run for run in reader.finished(chosen) if not since or _ended(reader, run) >= since]
    for at in range(0, len(runs), _AT_ONCE):
        some = runs[at : at + _AT_ONCE]
        records = reader.records([run.run_id for run in some])
        rows: dict[str, list[str]] = {}
        if records:
            rows = reader.metric_faults([run.run_id for run in some])
        for run in some:
            done.measurements += 1
            with suppress(BadInput):  # else `_measurement` names the fault
                done.split += split_difference(MeasurementParams.read(run.params)) is not None
            texts = [*_measurement(reader, run, records.get(run.run_id), read_data), *rows.get(run.run_id, [])]
            made = None if Tag.FINGERPRINT not in run.tags else identify(run.params)
            done.unidentified += made is None
            if made is not None and run.tags[Tag.FINGERPRINT] not in made:
                texts.append("its fingerprint is not the one that its params give")
            done.faults += [Fault(text, run.name, run.run_id) for text in dict.fromkeys(texts)]
            if read_data and not texts and Tag.DAMAGED in run.tags:
                done.cured.append(run.run_id)
    return done


def mark(writer: Writer, done: Verified) -> None:
    """Keep the first fault of each damaged measurement as its tag, which `list` shows; remove that of cured ones.

    Raises:
        BadInput: the store cannot be written.
        StoreAway: the store does not answer.

    """
    for run_id, why in done.damaged.items():
        writer.log(run_id, tags={Tag.DAMAGED: why[:_CUT]})
    for run_id in done.cured:
        client = writer.connection.open()
        with writer.connection.explained():
            client.delete_tag(run_id, Tag.DAMAGED)


def _ended(reader: Reader, run: LoggedRun) -> float:
    return (run.ended or run.started) / 1000


def _measurement(reader: Reader, run: LoggedRun, record: Record | None, read_data: bool) -> Iterator[str]:
    lacking = [tag for tag in (Tag.FINGERPRINT, Tag.RECORD, Tag.MODEL) if not run.tags.get(tag)]
    yield from (f"it lacks its tag {tag}" for tag in lacking)
    try:
        without = bool(row(run)["without_ranks"])
    except Unusable as error:
        yield f"it holds no measurement: {error}"
        return
    if not without:
        yield from _missing_numbers(run)
    sizes = reader.sizes(run.run_id)
    if sizes is None:
        yield f"its files cannot be listed at {reader.artifact_uri(run.run_id)}"
        return
    wanted = () if without else (RANKS, HISTOGRAM)
    yield from (f"{name} is missing" for name in wanted if name not in sizes)
    yield from (f"{name} is empty" for name, size in sizes.items() if not size)
    if read_data and all(sizes.get(name) for name in wanted):
        try:
            yield from _contents(reader, run, record or reader.record(run.run_id))
        except StoreAway:
            raise
        except (RbptrackError, OSError) as error:
            yield f"its files cannot be read: {first_line(error)}"


def _missing_numbers(run: LoggedRun) -> Iterator[str]:
    wanted = [Metric.CE, Metric.NUM_TOKENS]
    size = MeasurementParams.read(run.params).vocab_size or 0
    ks = run.params.get("k.values", "").strip("[]").split(",")
    wanted += [rbp_name(int(k)) for k in ks if k.strip().isdecimal() and 1 <= int(k) <= size]
    yield from (f"it lacks its metric {name}" for name in wanted if name not in run.metrics)
    if not any(map(parse_rbp_name, run.metrics)):
        yield "it lacks every rbp_<k>"


def _contents(reader: Reader, run: LoggedRun, record: Record) -> Iterator[str]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file in (name for name in reader.artifact_names(run.run_id) if not name.startswith(_IMAGES)):
            path = reader.artifact(run.run_id, file)
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            try:
                (folder / file).symlink_to(path)
            except OSError:  # a system without links
                copyfile(path, folder / file)
        for file, text in file_faults(record, folder, bounded=False):
            yield f"{file}: {text}" if file else text
        for path in sorted(folder.glob("*.parquet")):
            if path.name not in (RANKS, HISTOGRAM):
                try:
                    parquet.read(path)
                except RbptrackError as error:
                    yield f"{path.name}: {first_line(error).replace(name, '')}"
        if (folder / CONFIG).exists():
            yield from _config(folder / CONFIG, run)


def _config(path: Path, run: LoggedRun) -> Iterator[str]:
    """Yield params that are not what the measurement's own config says."""
    try:
        options = flattened(OmegaConf.to_container(OmegaConf.load(path)))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        yield f"{CONFIG} is damaged: {first_line(error)}"
        return
    wanted = compared(options)
    for key, text in options.items():
        logged = run.params.get(key)
        if logged is None and key not in wanted:  # left out by design
            continue
        if key.startswith(_OF_NUMBERS) and f"{Tag.LATER}{key}" not in run.tags and len(text) < _CUT and logged != text:
            yield f"its param {key} is {logged!r}, and {text!r} in its {CONFIG}"


def database_faults(connection: Connection) -> Iterator[str]:
    """Yield the faults that the database reports of itself; none for a server, which alone reads its own."""
    if connection.database is not None:
        yield from _sqlite(connection.tables or connection.database)
    elif scheme(connection.uri) == "postgresql":
        yield from _postgresql(connection.uri)


def unlooked(connection: Connection) -> str:
    """Say what `database_faults` cannot check; empty if it checks everything."""
    if scheme(connection.uri) not in DATABASES:
        return "the server's own database is not looked at: its keeper can"
    if scheme(connection.uri) == "postgresql" and not _has_amcheck(connection.uri):
        return "PostgreSQL's indexes are not looked at: create extension amcheck lets them be"
    return ""


def _sqlite(database: Path) -> Iterator[str]:
    try:
        with closing(reading(database)) as checked:
            reports = [str(line) for (line,) in checked.execute("pragma integrity_check(20)")]
            yield from (line for text in reports for line in text.splitlines() if line != "ok")
            for table, number, parent, _ in checked.execute("pragma foreign_key_check").fetchmany(20):
                yield f"row {number} of the table {table} names none of {parent}"
    except sqlite3.DatabaseError as error:
        yield f"it cannot be read: {error}"


def _postgresql(uri: str) -> Iterator[str]:
    if not _has_amcheck(uri):
        return
    indexes = (
        "select c.oid, c.relname from pg_index i join pg_class c on c.oid = i.indexrelid "
        "join pg_am a on a.oid = c.relam where a.amname = 'btree' and c.relnamespace = current_schema()::regnamespace"
    )
    with opened(uri, isolation_level="AUTOCOMMIT") as connection:
        for number, name in connection.execute(sa.text(indexes)).all():
            try:
                connection.execute(sa.text("select bt_index_check(index => :i, heapallindexed => true)"), {"i": number})
            except sa.exc.SQLAlchemyError as error:
                yield f"index {name}: {first_line(error)}"


def _has_amcheck(uri: str) -> bool:
    with suppress(sa.exc.SQLAlchemyError), opened(uri) as connection:
        return connection.execute(sa.text("select 1 from pg_extension where extname = 'amcheck'")).scalar() == 1
    return False
