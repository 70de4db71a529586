"""`export to=hub`: a folder for the Hugging Face hub, with a dataset card, a table, and `.eval_results` for models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import yaml

from rbptrack.analysis import Runs
from rbptrack.analysis.display import as_csv
from rbptrack.analysis.exporting import Exporter, __version__, file_name
from rbptrack.base.words import counted, for_markdown
from rbptrack.ranks import rbp_ks, rbp_name

DATA = "measurements.csv"
_COLUMNS = (
    "dataset", "model", "family", "size", "non_embedding_params", "total_params", "training_tokens", "vocab_size",
    "seq_len", "context", "num_documents", "num_tokens", "dtype", "sequence", "ce", "ce_rank", "ce_rest",
    "bits_per_byte", "tie_rate",
)  # fmt: skip
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(kw_only=True)
class Hub(Exporter):
    """A folder to upload to the Hugging Face hub: a dataset card, a table, and `.eval_results` of models on the hub.

    `README.md` is the card, `measurements.csv` a table that `import` reads, and `models/<org>/<name>/.eval_results/`
    holds RBP_k of each model of the hub, at its main revision, on a dataset of the hub.
    """

    name: ClassVar[str] = "hub"
    makes_folder: ClassVar[bool] = True

    def export(self, runs: Runs, out: Path) -> str:
        """Write the folder; returns a line about its contents."""
        frame = runs.frame
        numbers = [column for column in frame.columns if column.startswith("rbp_") or column.endswith("_se")]
        taken = [column for column in _COLUMNS if column in frame.columns] + numbers
        (out / DATA).write_text(as_csv(frame[taken]), encoding="utf-8")
        ks = rbp_ks(frame.columns)
        written = sum(_write_results(out / "models", row, ks) for row in frame.to_dict("records"))
        (out / "README.md").write_text(_card(frame, ks, written), encoding="utf-8")
        return f"{counted(len(frame), 'measurement')} (README.md, {DATA}; .eval_results of {written})"


def _write_results(models: Path, row: dict[Any, Any], ks: list[int]) -> bool:
    """Write one measurement's `.eval_results`, in the format of the hub's docs/hub/eval-results.

    Returns:
        False where model or dataset is not the hub's, or another measurement has its place.

    """
    cells = {column: "" if pd.isna(value) else value for column, value in row.items()}
    repo = cells["repo"]
    dataset = cells["dataset_repo"]
    if not _ID.fullmatch(repo) or not _ID.fullmatch(dataset) or cells["revision"] not in ("", "main"):
        return False
    path = models / repo / ".eval_results" / f"{file_name('rbptrack-' + cells['dataset'])}.yaml"
    if path.exists():
        return False
    notes = [f"share of tokens that the model ranks among its first k (rbptrack {__version__})"]
    notes += [f"{label} {cells[column]}" for label, column in (("dtype", "dtype"), ("tokens", "num_tokens"))]
    about = {"id": dataset, "revision": cells["dataset_commit"].rpartition("@")[2]}
    entries = [
        {
            "dataset": about | {"task_id": rbp_name(k)},
            "value": float(row[rbp_name(k)]),
            "date": cells["ended"],
            "notes": "; ".join(notes),
        }
        for k in ks
        if cells[rbp_name(k)] != ""
    ]
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return True


def _card(frame: pd.DataFrame, ks: list[int], written: int) -> str:
    """Return the dataset card: front matter in YAML, then what a reader must know."""
    families, datasets = (sorted(frame[name].dropna().unique()) for name in ("family", "dataset"))
    title = f"Ranks of {', '.join(families)} on {', '.join(datasets)}"
    some = ", ".join(map(str, ks))
    front = {
        "pretty_name": title,
        "tags": ["rbptrack", "relative-based-probability", "scaling-laws", "evaluation"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}],
    }
    results = "No model and dataset of these are both on the hub, so models' repositories get nothing."
    if written:
        files = f"`.eval_results` of {counted(written, 'measurement')}"
        results = f"`models/` holds {files}, for pull requests to the models."
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---

# {for_markdown(title)}

{counted(len(frame), "measurement")} of language models, one per row of `{DATA}`: cross-entropy (`ce`, nats per token),
RBP_k (`rbp_<k>`, the share of tokens that the model ranks among its first k; arXiv 2510.20387), k = {some},
with standard errors over documents (`<metric>_se`), S (`non_embedding_params`) and how the texts were read.

{results}

Made by rbptrack {__version__}. `rbptrack import {DATA}` reads it into a store. Choose a licence before you upload it.
"""
