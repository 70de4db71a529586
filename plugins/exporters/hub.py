"""Export measurements as a folder for the Hugging Face Hub, with a dataset card and a table."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import yaml

from rbptrack.analysis import IMPORTABLE_COLUMNS, Exporter, Runs, counted, csv_text, markdown_text
from rbptrack.ranks import is_rbp_column, rbp_ks

DATA = "measurements.csv"
PROGRAM = f"rbptrack {version('rbptrack')}"
CARD = """---
{front}---

# Ranks of {families} on {datasets}

{measurements} of language models, one per row of `{data}`: cross-entropy (`ce`, nats per token),
{rbp}with standard errors over documents (`<metric>_se`), S (`non_embedding_params`) and the
settings of the measurement.

Made by {program}. `rbptrack import {data}` imports the table. Choose a licence before you upload this folder.
"""
RBP = """\
RBP_k (`rbp_<k>`, the share of tokens that the model ranks among its first k; arXiv 2510.20387), k = {ks},
"""


class Hub(Exporter):
    """A folder to upload to the Hugging Face Hub: the card README.md, and a table that `rbptrack import` reads."""

    def export(self, runs: Runs, out: Path) -> str:
        frame = runs.frame
        metrics = [name for name in frame.columns if is_rbp_column(name)]
        table = frame[["model", *IMPORTABLE_COLUMNS, *metrics]].dropna(axis="columns", how="all")
        (out / DATA).write_text(csv_text(table), encoding="utf-8")
        (out / "README.md").write_text(_card(frame, rbp_ks(table.columns)), encoding="utf-8")
        return f"{counted(len(frame), 'measurement')}: README.md, {DATA}"


def _card(frame: pd.DataFrame, ks: Sequence[int]) -> str:
    """Return the text of the dataset card, with front matter in YAML. `ks` are the k of RBP_k in the table."""
    families = ", ".join(sorted(frame["family"].dropna().unique()))
    datasets = ", ".join(sorted(frame["dataset"].dropna().unique()))
    front = {
        "pretty_name": f"Ranks of {families} on {datasets}",
        "tags": ["rbptrack", "relative-based-probability", "scaling-laws", "evaluation"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": DATA}]}],
    }
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        families=markdown_text(families),
        datasets=markdown_text(datasets),
        measurements=counted(len(frame), "measurement"),
        data=DATA,
        rbp=RBP.format(ks=", ".join(map(str, ks))) if ks else "",
        program=PROGRAM,
    )
