"""The rows of `Runs.frame`, made of MLflow's runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlflow.entities import Run

from rbptrack.config.schema import FilterConfig
from rbptrack.errors import BadInput


@dataclass
class LoggedRun:
    """What a run of the store holds, as it was read.

    Attributes:
        run_id: MLflow's id.
        name: the run's name.
        started: milliseconds since 1970.
        params: by name.
        metrics: the last value of each, by name.
        tags: by name.

    """

    run_id: str
    name: str
    started: int
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> LoggedRun:
        """From MLflow's own object."""
        info, data = run.info, run.data
        return cls(info.run_id, str(info.run_name), info.start_time, data.params, data.metrics, data.tags)


def from_database(database: Path, experiment_id: str) -> list[LoggedRun]:
    """Every finished measurement of a local store, from its tables: MLflow's own search takes ten times as long.

    Raises:
        sqlite3.Error: the tables are not as MLflow 3 has them.

    """
    with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
        chosen = (
            "select r.run_uuid from runs r join tags k on k.run_uuid = r.run_uuid and k.key = 'rbptrack.kind' "
            "where k.value = 'measurement' and r.status = 'FINISHED' and r.lifecycle_stage = 'active' "
            "and r.experiment_id = ?"
        )
        begun = f"select run_uuid, name, start_time from runs where run_uuid in ({chosen})"  # noqa: S608
        found = {i: LoggedRun(i, name, started) for i, name, started in connection.execute(begun, (experiment_id,))}
        for table, known in (("params", "params"), ("tags", "tags"), ("latest_metrics", "metrics")):
            real = "and is_nan = 0" if table == "latest_metrics" else ""
            query = f"select run_uuid, key, value from {table} where run_uuid in ({chosen}) {real}"  # noqa: S608
            for run_id, key, value in connection.execute(query, (experiment_id,)):
                if run_id in found:  # one that ended in between is not there yet
                    getattr(found[run_id], known)[key] = value
    return list(found.values())


def row(run: LoggedRun) -> dict[str, Any]:
    """One row of `Runs.frame`; what a run lacks is missing."""
    params, metrics, tags = run.params, run.metrics, run.tags
    made: dict[str, Any] = {
        "run_id": run.run_id,
        "started": run.started,
        **{k: tags.get(f"rbptrack.{k}") for k in ("family", "size", "model", "dataset", "fingerprint", "sweep")},
        "revision": params.get("model.revision"),
        "commit": params.get("model.commit"),
        "software": ", ".join(f"{k[9:]} {v}" for k, v in sorted(params.items()) if k.startswith("versions.")),
        "dtype": "tf32" if params.get("model.tf32") == "True" else params.get("model.dtype"),
        "sequence": params.get("dataset.sequence"),
        "candidates": params.get("candidates"),
        "rank": params.get("rank"),
        "documents_hash": params.get("dataset.texts_hash"),
        **{k: _number(params.get(v)) for k, v in _INTEGERS.items()},
        **{k: metrics.get(k) for k in ("ce", "ce_se", "bits_per_byte", "tie_rate")},
    }
    made["num_tokens"] = None if "num_tokens" not in metrics else int(metrics["num_tokens"])
    made |= {k: v for k, v in metrics.items() if k.startswith("rbp_") and k[4:].removesuffix("_se").isdigit()}
    return made


_INTEGERS = {
    "seq_len": "dataset.seq_len",
    "context": "dataset.context",
    "total_params": "model.total_params",
    "vocab_size": "model.vocab_size",
    "non_embedding_params": "model.non_embedding_params",
    "num_documents": "dataset.num_documents",
}


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def newest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per fingerprint: a measurement that was forced again replaces the older one."""
    latest: dict[str, dict[str, Any]] = {}
    for each in sorted(rows, key=lambda r: r["started"]):
        latest[each["fingerprint"] or each["run_id"]] = each
    return list(latest.values())


def passing(rows: list[dict[str, Any]], chosen: FilterConfig, sweeps: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """The rows that pass every filter; BadInput, with what there is, where none does.

    Args:
        rows: of `row`.
        chosen: the filters.
        sweeps: run ids that each sweep asked for covers, whatever sweep they were measured in.

    """
    kept = rows
    for key in ("family", "size", "dataset", "sweep"):
        patterns = getattr(chosen, key)
        if not patterns:
            continue
        covered = set().union(*sweeps.values()) if key == "sweep" and sweeps else set()
        passed = [r for r in kept if any(fnmatchcase(r[key] or "", p) for p in patterns) or r["run_id"] in covered]
        if not passed and kept:
            there = sorted({r[key] or "(none)" for r in kept})
            raise BadInput(f"no measurement passes {key}={','.join(patterns)}; there is: {', '.join(there)}")
        kept = passed
    if not kept:
        raise BadInput("the tracking store holds no finished measurement yet: measure something first")
    return kept
