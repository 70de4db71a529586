"""Measurements as a folder for the hub: a dataset with its card, and `.eval_results` for the models' repositories."""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rbptrack.analysis.display import as_csv
from rbptrack.base import __version__
from rbptrack.base.files import sync, sync_tree
from rbptrack.base.names import file_name
from rbptrack.base.words import counted, for_markdown
from rbptrack.exchange import eval_results
from rbptrack.exchange.imported import AnyImportedRow
from rbptrack.ranks import rbp_ks, rbp_name
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import Record

DATA = "measurements.csv"
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_MAIN = ("", "main")


def write(reader: Reader, runs: pd.DataFrame, out: Path) -> int:
    """Write the folder, whole or not at all; returns for how many measurements `.eval_results` were written.

    `README.md` is a dataset card, `measurements.csv` what `import` reads, and `models/<org>/<name>/.eval_results/` has
    RBP_k of every model of the hub, at its main revision, on a dataset of the hub.

    Args:
        reader: of the store where they are.
        runs: `Runs.frame` of the measurements.
        out: the folder, which does not exist yet.

    """
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        folder = Path(name) / "folder"
        written = 0
        folder.mkdir()
        numbers = [c for c in runs.columns if c.startswith("rbp_") or c.endswith("_se")]
        taken = [c for c in AnyImportedRow.model_fields if c in runs.columns] + numbers
        (folder / DATA).write_text(as_csv(runs[taken]), encoding="utf-8")
        ks = rbp_ks(runs.columns)
        records = reader.records(list(runs["run_id"]))
        for row in runs.to_dict("records"):
            written += _write_results(folder / "models", row, records.get(row["run_id"]), ks)
        (folder / "README.md").write_text(_card(runs, ks, written), encoding="utf-8")
        sync_tree(folder)
        folder.rename(out)
        sync([out.parent])
    return written


def _write_results(models: Path, row: dict[Any, Any], record: Record | None, ks: list[int]) -> bool:
    """Write one measurement's file; False where model or dataset is not the hub's, or another one has its place."""
    if record is None:
        return False
    params = MeasurementParams.read(record.params)
    repo, dataset = params.repo or "", params.dataset_repo or ""
    if not _ID.fullmatch(repo) or not _ID.fullmatch(dataset) or (params.revision or "") not in _MAIN:
        return False
    name = file_name(f"rbptrack-{row['dataset']}")
    if (models / repo / eval_results.FOLDER / f"{name}.yaml").exists():
        return False
    shares = {rbp_name(k): float(row[rbp_name(k)]) for k in ks if not pd.isna(row[rbp_name(k)])}
    notes = [f"share of tokens that the model ranks among its first k (rbptrack {__version__})"]
    notes += [f"{label} {value}" for label, value in (("dtype", params.dtype), ("tokens", row["num_tokens"])) if value]
    commit = (params.dataset_commit or "").rpartition("@")[2]
    date = datetime.fromtimestamp(record.ended or record.started, UTC).isoformat(timespec="seconds")
    eval_results.write(models / repo, name, shares, dataset=dataset, revision=commit, date=date, notes=notes)
    return True


def _card(runs: pd.DataFrame, ks: list[int], written: int) -> str:
    """Return the dataset card: front matter in YAML, then what a reader must know."""
    families, datasets = (sorted(runs[name].dropna().unique()) for name in ("family", "dataset"))
    some = ", ".join(map(str, ks))
    title = f"Ranks of {', '.join(families)} on {', '.join(datasets)}"
    front = {
        "pretty_name": title,
        "tags": ["rbptrack", "relative-based-probability", "scaling-laws", "evaluation"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}],
    }
    results = f"`models/` holds `.eval_results` of {counted(written, 'measurement')}, for pull requests to the models."
    none = "No model and dataset of these are both the hub's, so there is nothing for models' repositories."
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---

# {for_markdown(title)}

{counted(len(runs), "measurement")} of language models, a row each in `{DATA}`: cross-entropy (`ce`, nats per token) and
RBP_k (`rbp_<k>`, the share of tokens that the model ranks among its first k; arXiv 2510.20387), k = {some},
with standard errors over documents (`<metric>_se`), S (`non_embedding_params`) and how the texts were read.

{results if written else none}

Made by rbptrack {__version__}. `rbptrack import {DATA}` reads it into a store. Choose a licence before you upload it.
"""
