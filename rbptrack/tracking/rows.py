"""The rows of `Runs.frame`, made of MLflow's runs."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from mlflow.entities import Run

from rbptrack.config import FilterConfig
from rbptrack.errors import BadInput


def row(run: Run) -> dict[str, Any]:
    """One row of `Runs.frame` from an MLflow run; what it lacks is missing."""
    params, metrics, tags = run.data.params, run.data.metrics, run.data.tags
    made: dict[str, Any] = {
        "run_id": run.info.run_id,
        "started": run.info.start_time,
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
