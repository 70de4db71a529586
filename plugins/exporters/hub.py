"""Export measurements as a folder for the Hugging Face Hub, with a dataset card, a table and `.eval_results`."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rbptrack.analysis import IMPORTABLE_COLUMNS, Exporter, Runs, counted, csv_text, file_part, markdown_text
from rbptrack.ranks import is_rbp_column, rbp_ks, rbp_name

DATA = "measurements.csv"
PROGRAM = f"rbptrack {version('rbptrack')}"
MEANING = f"share of tokens that the model ranks among its first k ({PROGRAM})"
CARD = """---
{front}---

# Ranks of {families} on {datasets}

{measurements} of language models, one per row of `{data}`: cross-entropy (`ce`, nats per token),
RBP_k (`rbp_<k>`, the share of tokens that the model ranks among its first k; arXiv 2510.20387), k = {ks},
with standard errors over documents (`<metric>_se`), S (`non_embedding_params`) and the settings of the measurement.

{results}

Made by {program}. `rbptrack import {data}` imports the table. Choose a licence before you upload this folder.
"""
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


class Hub(Exporter):
    """A folder to upload to the Hugging Face Hub: a dataset card, a table, and `.eval_results` of models on the Hub.

    - `README.md` is the card.
    - `measurements.csv` is a table that `rbptrack import` reads.
    - `models/<org>/<name>/.eval_results/` holds RBP_k. It is written if the model and the dataset are on the Hub and
      the model was measured at its main revision.
    """

    def export(self, runs: Runs, out: Path) -> str:
        frame = runs.frame
        metrics = [name for name in frame.columns if is_rbp_column(name)]
        table = frame[["model", *IMPORTABLE_COLUMNS, *metrics]].dropna(axis="columns", how="all")
        (out / DATA).write_text(csv_text(table), encoding="utf-8")
        ks = rbp_ks(frame.columns)
        entries_by_path = _eval_results(frame, ks)
        for path, entries in entries_by_path.items():
            file = out / "models" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True), encoding="utf-8")
        (out / "README.md").write_text(_card(frame, ks, len(entries_by_path)), encoding="utf-8")
        return f"{counted(len(frame), 'measurement')}: README.md, {DATA}, .eval_results of {len(entries_by_path)}"


def _eval_results(frame: pd.DataFrame, ks: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of each file in `.eval_results`, by its path, in the format of the Hub's documentation.

    A measurement is left out if its model or dataset is not on the Hub, or if the model was measured at another
    revision than main. If several measurements have the same path, the first is used.
    """
    entries_by_path: dict[str, list[dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        cells = {column: "" if pd.isna(value) else value for column, value in row.items()}
        repo = str(cells["repo"])
        dataset = str(cells["dataset_repo"])
        path = f"{repo}/.eval_results/rbptrack-{file_part(str(cells['dataset']))}.yaml"
        on_the_hub = _ID.fullmatch(repo) and _ID.fullmatch(dataset) and not cells["checkpoint"]
        if not on_the_hub or path in entries_by_path:
            continue
        revision = str(cells["dataset_commit"]).rpartition("@")[2]
        remarks = {"notes": f"{MEANING}; dtype {cells['dtype']}; tokens {cells['num_tokens']}"}
        if cells["started"] != "":
            remarks["date"] = str(cells["started"])[:10]
        entries = []
        for metric in map(rbp_name, ks):
            if cells[metric] != "":
                task = {"id": dataset, "revision": revision, "task_id": metric}
                entries.append({"dataset": task, "value": float(cells[metric]), **remarks})
        if entries:
            entries_by_path[path] = entries
    return entries_by_path


def _card(frame: pd.DataFrame, ks: list[int], eval_results: int) -> str:
    """Return the text of the dataset card, with front matter in YAML.

    eval_results: the number of files in `.eval_results`.
    """
    families = ", ".join(sorted(frame["family"].dropna().unique()))
    datasets = ", ".join(sorted(frame["dataset"].dropna().unique()))
    front = {
        "pretty_name": f"Ranks of {families} on {datasets}",
        "tags": ["rbptrack", "relative-based-probability", "scaling-laws", "evaluation"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}],
    }
    results = "There is no `.eval_results`, because no measurement has both its model and its dataset on the Hub."
    if eval_results:
        results = (
            f"`models/` holds `.eval_results` of {counted(eval_results, 'measurement')}, for pull requests to the "
            "models' repositories."
        )
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        families=markdown_text(families),
        datasets=markdown_text(datasets),
        measurements=counted(len(frame), "measurement"),
        data=DATA,
        ks=", ".join(map(str, ks)),
        results=results,
        program=PROGRAM,
    )
