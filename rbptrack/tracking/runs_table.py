"""From MLflow's runs to the rows of `Runs.frame`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from rbptrack.analysis.selection import names_of, none_passes
from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.config.patterns import passes
from rbptrack.config.schema import FILTERS, FilterConfig
from rbptrack.ranks import is_rbp_column, se_name
from rbptrack.tracking.params import VERSIONS, MeasurementParams
from rbptrack.tracking.record import Record
from rbptrack.tracking.rules import RESULTS, MeasurementRow, faults
from rbptrack.tracking.schema import (
    CURVES,
    NOT_OF_THE_RECORD,
    OF_THE_PROCESS,
    SEQUENCE_SUCCESS,
    WITHOUT,
    Metric,
    Tag,
)

DATASET_INPUT = ("name", "digest", "source", "profile")
"""What a record keeps of MLflow's dataset input."""


class Unusable(RbptrackError):
    """A run that claims to be a measurement holds what none can; its text says what."""


@dataclass(frozen=True)
class Experiment:
    """An experiment of MLflow."""

    id: str
    artifacts: str  # the address of its runs' artifacts
    stage: str  # `active` or `deleted`


@dataclass
class LoggedRun:
    """What a run of the store holds, as it was read."""

    run_id: str
    name: str
    started: int  # milliseconds since 1970
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # the last value of each that is a number, by name
    tags: dict[str, str] = field(default_factory=dict)
    ended: int | None = None  # milliseconds since 1970, if it has ended
    artifacts: str = ""  # the address of its artifacts
    curves: dict[str, dict[int, float]] = field(default_factory=dict)  # by step, where it was read whole
    dataset: dict[str, str] = field(default_factory=dict)  # of MLflow's dataset input, where it was read whole

    def record(self) -> Record:
        """Return the measurement of a run that was read whole, without what belongs to the store or to the process."""
        tags = {k: v for k, v in self.tags.items() if k.startswith(Tag.PREFIX) and k not in OF_THE_PROCESS}
        metrics = {k: v for k, v in self.metrics.items() if k not in CURVES and not k.startswith(NOT_OF_THE_RECORD)}
        started = (self.started or 0) / 1000
        ended = (self.ended or self.started or 0) / 1000
        return Record(self.name, tags, dict(self.params), metrics, self.curves, self.dataset, started, ended)


def row(run: LoggedRun) -> dict[str, Any]:
    """Make one row of `Runs.frame`, without what the run lacks; Unusable where it does not hold a measurement."""
    try:
        params = MeasurementParams.read(run.params)
        checked = MeasurementRow.of(columns_of(run, params)).columns()
    except ValidationError as error:
        raise Unusable("; ".join(f"{column}: {text}" for column, text in faults(error))) from error
    except (BadInput, AttributeError, TypeError) as error:  # the latter: no text where MLflow writes text
        raise Unusable(first_line(error)) from error
    tags = run.tags
    versions = {k.removeprefix(VERSIONS): v for k, v in sorted(run.params.items()) if k.startswith(VERSIONS)}
    return {
        "run_id": run.run_id,
        "started": run.started if isinstance(run.started, int) else 0,
        "fingerprint": tags.get(Tag.FINGERPRINT),
        "sweep": tags.get(Tag.SWEEP),
        "swept": tags.get(Tag.SWEPT, ""),
        "damaged": tags.get(Tag.DAMAGED, ""),
        "imported": tags.get(Tag.IMPORTED),
        "without_ranks": came_without_ranks(tags, params),
        "revision": params.revision,
        "commit": params.commit,
        "repo": params.repo,
        "dataset_repo": params.dataset_repo,
        "dataset_commit": params.dataset_commit,
        "ended": _iso(run.ended or run.started),
        "software": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "split_difference": split_difference(params),
        "candidates": params.candidates,
        "rank": params.rank,
        "documents_hash": params.texts_hash,
        "groups": tags.get(Tag.GROUPS),
        "reference": params.reference,
        "reference_commit": params.reference_commit,
        "reference_params": params.reference_params,
        **{name: run.metrics.get(name) for name in (Metric.KL, Metric.ACCEPTANCE, Metric.SAME_TOP)},
        se_name(Metric.CE): None,
        **{name: value for name, value in run.metrics.items() if name.startswith(SEQUENCE_SUCCESS)},
        **checked,
    }


def _iso(milliseconds: int) -> str:
    """Format a time since 1970 as ISO 8601; empty where a damaged store holds no time."""
    with suppress(TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    return ""


def split_difference(params: MeasurementParams) -> float | None:
    """Return how far the logits of a model split in half precision are from the whole model's; None if it was not
    split.

    Relative to the largest logit. Sums that are made in another order before they are rounded move some ranks.
    """
    with suppress(ValueError):
        if params.split_difference and params.dtype != "float32":
            return float(params.split_difference)
    return None


def came_without_ranks(tags: Mapping[str, str], params: MeasurementParams) -> bool:
    """Return whether an import had no ranks to begin with; before the tag said so, its kind did."""
    source = str(tags.get(Tag.IMPORTED))
    untagged = source.startswith("table") or (source.startswith("authors") and params.vocab_size is None)
    return tags.get(Tag.RANKS) == WITHOUT or untagged


def columns_of(run: LoggedRun | Record, params: MeasurementParams) -> dict[str, Any]:
    """Return the columns of a run that `rbptrack.tracking.rules` are about, as they are, unchecked."""
    metrics = run.metrics
    tags = run.tags
    return {
        "family": tags.get(Tag.FAMILY),
        "size": tags.get(Tag.SIZE),
        "model": tags.get(Tag.MODEL),
        "dataset": tags.get(Tag.DATASET),
        "dtype": "tf32" if params.tf32 else params.dtype,
        "sequence": params.sequence,
        "seq_len": params.seq_len,
        "context": params.context,
        "num_documents": params.num_documents,
        "vocab_size": params.vocab_size,
        "total_params": params.total_params,
        "training_tokens": params.training_tokens or None,
        "non_embedding_params": params.non_embedding_params,
        "num_tokens": metrics.get(Metric.NUM_TOKENS),
        **{name: metrics.get(name) for name in RESULTS},
        **{name: value for name, value in metrics.items() if is_rbp_column(name) or name == se_name(Metric.CE)},
    }


def newest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep one row per fingerprint: a measurement that was made again by force replaces the older one."""
    latest: dict[str, dict[str, Any]] = {}
    for candidate in sorted(rows, key=lambda r: r["started"]):
        latest[candidate["fingerprint"] or candidate["run_id"]] = candidate
    return list(latest.values())


def passing(rows: list[dict[str, Any]], chosen: FilterConfig, sweeps: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """Keep the rows that pass every filter.

    `sweeps`: run ids that each sweep asked for covers, whatever sweep they were measured in.

    Raises:
        BadInput: no row fits the filters; the message lists what the store has.

    """
    kept = rows
    for key in FILTERS:
        patterns = getattr(chosen, key)
        passed = [r for r in kept if passes([*names_of(r, key), *_covering(r, key, sweeps)], patterns)]
        if not passed and kept:
            raise none_passes(key, patterns, [r[key] or "(none)" for r in kept])
        kept = passed
    if not kept:
        raise BadInput("the tracking store holds no finished measurement yet: measure something first")
    return kept


def _covering(row: Mapping[str, Any], key: str, sweeps: Mapping[str, set[str]]) -> list[str]:
    """Return the sweeps that found a measurement already there, for the filter over sweeps."""
    return [name for name, run_ids in sweeps.items() if row["run_id"] in run_ids] if key == "sweep" else []
