"""Importers at work: which one takes a file, and what it yields, checked before anything is stored."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
from pydantic import ValidationError

from rbptrack.analysis.discovery import Plugins
from rbptrack.analysis.importing import Fault, ImportedMeasurement, ImportedScore, Importer, Peek
from rbptrack.analysis.source import SCORES
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.process import raise_if_stopped
from rbptrack.base.words import listed
from rbptrack.exchange.faults import Faults
from rbptrack.exchange.imported import KnownModels, laid, record_of
from rbptrack.ranks import CE, HEADLINE_KS, parse_rbp_name
from rbptrack.tracking.record import Record, k_metrics
from rbptrack.tracking.rules import MeasurementRow, ScoreRow, faults, is_result
from rbptrack.tracking.schema import Metric, Tag

_ROUNDED = 1e-3  # of a share that was written with few digits
_BATCHED = 0.02  # of CE: a mean over batches weighs tokens unevenly


@dataclass
class Intake:
    """What an importer yielded, all of it checked.

    Attributes:
        measurements: each with the folder of its artifacts.
        scores: a row per model, revision and task, with the columns of `SCORES`.

    """

    measurements: list[tuple[Record, Path]] = field(default_factory=list)
    scores: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(SCORES)))


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Turn what a plugin's code raises, `sys.exit(0)` and `os._exit` too, into an error in words; those in words, and
    Ctrl-C, pass. A standard output that it replaced or closed comes back, and a process that it forked ends here.
    """
    this_process = os.getpid()
    end_process = os._exit
    streams = sys.stdout, sys.stderr
    output = os.dup(1) if sys.stdout else None  # none: the program was started without one

    def refuse(status: int) -> NoReturn:
        if os.getpid() != this_process:
            end_process(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    except (RbptrackError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise_if_stopped()
        if os.environ.get("HYDRA_FULL_ERROR"):
            traceback.print_exception(error)
        raise RbptrackError(f"{what} failed: {type(error).__name__}: {error}") from error
    finally:
        if os.getpid() != this_process:
            end_process(1)
        os._exit = end_process
        sys.stdout, sys.stderr = streams
        if output is not None:
            if sys.stdout.closed:
                os.dup2(output, 1)
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for the rest of the program
            os.close(output)


def importer_of(path: Path, importers: Plugins[Importer], *, wanted: str = "") -> type[Importer]:
    """Return the importer that takes a file or folder.

    Args:
        path: what to import; it is there.
        importers: all of them.
        wanted: the name of the one to use; empty: the one that takes the file.

    Raises:
        BadInput: none takes it, or several do.

    """
    if wanted:
        return importers.select(wanted)
    peek = Peek(path)
    taking = []
    for name, cls in importers.load().items():
        try:
            with guarded(f"the importer {name}"):
                takes = cls().takes(peek)
        except RbptrackError as error:  # the others can still take the file
            importers.broken.append(str(error))
            continue
        if takes:
            taking.append(name)
    if not taking:
        text = f"{path}: no importer takes it. Importers: {', '.join(importers.names)}. To use one: use=NAME"
        raise BadInput("\n".join([text, *importers.broken]))
    if len(taking) > 1:
        raise BadInput(f"{path}: {listed(taking)} can import it. To choose: use={taking[0]}")
    return importers.select(taking[0])


def take_in(
    importer: Importer, path: Path, *, models: KnownModels, rules: type[MeasurementRow], folder: Path
) -> Intake:
    """Read a file by an importer, and check everything in it.

    Args:
        importer: with its options.
        path: the file or folder.
        models: give the family and size of models that a measurement does not name.
        rules: that each measurement must satisfy.
        folder: an empty folder, in which artifacts are laid.

    Raises:
        BadInput: the file is not what it should be; names the places.
        RbptrackError: the importer has a fault of its own.

    """
    intake = Intake()
    problems = Faults(path)
    scores: list[dict[str, Any]] = []
    with guarded(f"the importer {importer.name}"):
        for item in importer.read(path):
            if isinstance(item, ImportedMeasurement):
                if pair := _measurement(item, importer.name, path, models, rules, folder, problems):
                    intake.measurements.append(pair)
            elif isinstance(item, ImportedScore):
                scores += _score(item, problems)
            elif isinstance(item, Fault):
                problems.add(item.place, item.text)
            else:
                kinds = "ImportedMeasurement, ImportedScore or Fault"
                raise TypeError(f"read yields {kinds}; got {type(item).__name__}")
    problems.refuse()
    if not intake.measurements and not scores:
        raise BadInput(f"{path} holds nothing to import")
    if scores:
        intake.scores = _table(scores, problems)
        problems.refuse()
    return intake


def _measurement(
    item: ImportedMeasurement,
    name: str,
    path: Path,
    models: KnownModels,
    rules: type[MeasurementRow],
    folder: Path,
    problems: Faults,
) -> tuple[Record, Path] | None:
    """Return a measurement as a record with its artifacts; None, and a fault, where it cannot be one."""
    family, size = models.split(str(item.columns.get("model", "")))
    columns: dict[str, object] = {"family": family or None, "size": size}
    columns |= {column: value for column, value in item.columns.items() if value is not None}
    if item.ranks is not None and not any(c != Metric.NUM_TOKENS and is_result(c) for c in item.columns):
        ks = [k for k in HEADLINE_KS if k < item.ranks.vocab_size]
        columns |= k_metrics(item.ranks.histogram(), item.ranks.document_counts(ks))
    before = len(problems)
    try:
        row = rules.of(columns)
    except ValidationError as error:
        for column, text in faults(error):
            problems.add(item.places.get(column) or ", ".join(filter(None, [item.place, f"column {column}"])), text)
        return None
    if item.ranks is not None:
        for column, text in _contradictions(item, columns):
            problems.add(item.places.get(column) or item.place, text)
        row = row.model_copy(update={"num_tokens": len(item.ranks)})
    if len(problems) > before:
        return None
    kind = item.format or name
    ranked = item.ranks is not None
    record = record_of(row, kind=kind, source=path, repo=item.repo or None, more=item.metrics, ranked=ranked)
    if item.notes:
        record.tags[Tag.NOTES] = item.notes
    artifacts = laid(record, item.ranks, folder / record.fingerprint) if ranked else folder
    return record, artifacts


def _contradictions(item: ImportedMeasurement, columns: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield results that the ranks beside them do not give."""
    if item.ranks is None:
        return
    for column, value in columns.items():
        k = parse_rbp_name(column)
        if column != CE and k is None:
            continue
        by_ranks = item.ranks.ce if k is None else item.ranks.rbp(k)
        allowed = _BATCHED * item.ranks.ce if k is None else _ROUNDED
        if abs(float(str(value)) - by_ranks) > allowed:
            yield column, f"is {value}, but the ranks beside it give {by_ranks:.6g}; remove the one that is wrong"


def _score(item: ImportedScore, problems: Faults) -> list[dict[str, Any]]:
    """Return a score as a row, none where it cannot be one."""
    try:
        row = ScoreRow.of(model=item.model, task=item.task, score=item.score, revision=item.revision, n=item.n)
    except ValidationError as error:
        problems.extend(item.place, faults(error))
        return []
    return [{**row.model_dump(), "place": item.place}]


def _table(rows: list[dict[str, Any]], problems: Faults) -> pd.DataFrame:
    """Return scores as a table; a fault where a model has two different scores of a task."""
    frame = pd.DataFrame(rows, columns=[*SCORES, "place"]).astype({"score": "float64", "n": "Float64"})
    keys = ["model", "revision", "task"]
    several = frame.drop_duplicates([*keys, "score"])
    for (model, _, task), scores in several[several.duplicated(keys, keep=False)].groupby(keys, sort=True):
        first = scores.iloc[0]
        second = scores.iloc[1]
        text = f"{model} has two scores of {task}: {first['score']:g} in {first['place']} and {second['score']:g} in "
        problems.add("", f"{text}{second['place']}; leave one out")
    return frame.drop_duplicates(keys).drop(columns="place").reset_index(drop=True)
