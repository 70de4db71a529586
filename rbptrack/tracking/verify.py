"""Whether a run still says what was measured: against its sealed record, each file's hash, and its ranks."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import MissingArtifact, RbptrackError, StoreAway, first_line
from rbptrack.base.files import sha256
from rbptrack.ranks import RankHistogram, parse_rbp_name
from rbptrack.tracking.names import RANKS_FILE, RECORD_FILE, Metric, Tag
from rbptrack.tracking.record import Record, histogram_of, seal_of

if TYPE_CHECKING:
    from mlflow.entities import Run

    from rbptrack.tracking.artifacts import Artifacts

CLOSE = 1e-9
"""How far a number may be from the one that its ranks give: sums in another order."""


def faults_of(store: Artifacts, run: Run) -> Iterator[str]:
    """Every way in which a finished measurement differs from its record; StoreAway where the store does not answer."""
    run_id = run.info.run_id
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            text = store.download(run_id, RECORD_FILE, folder).read_bytes()
            if seal_of(text) != run.data.tags.get(Tag.SEAL):
                yield f"{RECORD_FILE} is not what was sealed"
                return
            record = Record.parse(text)
        except StoreAway:
            raise
        except (RbptrackError, OSError, ValueError, TypeError, KeyError) as error:
            yield f"{RECORD_FILE} cannot be read: {first_line(error)}"
            return
        yield from _differences("param", record.params, run.data.params)
        yield from _differences("metric", record.metrics, _own_single_metrics(run.data.metrics, record.curves))
        yield from _differences("tag", record.tags, {name: run.data.tags.get(name) for name in record.tags})
        yield from _altered_curves(store, run_id, record)
        for file in record.files:
            yield from _faults_of_file(store, run_id, file, record, folder)


def numbers_that_disagree(record: Record, ranks: Path) -> Iterator[str]:
    """CE and RBP_k of a record that its rank table does not give."""
    histogram = histogram_of(ranks)
    if record.metrics.get(Metric.NUM_TOKENS) != histogram.num_tokens:
        yield f"num_tokens is {record.metrics.get(Metric.NUM_TOKENS)}, and {histogram.num_tokens} by its ranks"
        return
    steps = dict(record.curves.get(Metric.RBP_CURVE, []))
    stored = [(name, value, _value_by_ranks(histogram, name)) for name, value in record.metrics.items()]
    stored += [(f"RBP_{k}", value, histogram.rbp(k)) for k, value in steps.items() if k <= histogram.vocab_size]
    for name, value, by_ranks in stored:
        if by_ranks is not None and not math.isclose(value, by_ranks, rel_tol=CLOSE, abs_tol=CLOSE):
            yield f"{name} is {value}, and {by_ranks} by its ranks"


def _value_by_ranks(histogram: RankHistogram, name: str) -> float | None:
    """CE or rbp_<k>; NaN for a k that cannot be; None of another metric."""
    if name == Metric.CE:
        return histogram.ce
    k = parse_rbp_name(name)
    if k is None:
        return None
    return histogram.rbp(k) if k <= histogram.vocab_size else math.nan


def _differences(what: str, sealed: dict[str, Any], stored: dict[str, Any]) -> Iterator[str]:
    for name in sorted(sealed.keys() | stored.keys()):
        if name not in stored or stored[name] is None:
            yield f"the {what} {name} is missing; it was {sealed[name]}"
        elif name not in sealed:
            yield f"the {what} {name} = {stored[name]} was added"
        elif stored[name] != sealed[name]:
            yield f"the {what} {name} is {stored[name]}, and was {sealed[name]}"


def _own_single_metrics(metrics: dict[str, float], curves: dict[str, Any]) -> dict[str, float]:
    """The metrics that are no curves; MLflow's own of the machine are none of ours."""
    return {name: value for name, value in metrics.items() if name not in curves and not name.startswith("system/")}


def _altered_curves(store: Artifacts, run_id: str, record: Record) -> Iterator[str]:
    for name, curve in record.curves.items():
        with store.connection.explained():
            history = store.connection.client.get_metric_history(run_id, name)
        if sorted((point.step, point.value) for point in history) != sorted(curve):
            yield f"the curve {name} was altered"


def _faults_of_file(store: Artifacts, run_id: str, file: str, record: Record, folder: Path) -> Iterator[str]:
    """Compare an artifact, which is fetched into the folder, with its record."""
    try:
        path = store.download(run_id, file, folder)
    except MissingArtifact:
        yield f"{file} is missing"
        return
    if sha256(path) != record.files[file]:
        yield f"{file} is damaged"
    elif file == RANKS_FILE:
        yield from numbers_that_disagree(record, path)
    path.unlink()
