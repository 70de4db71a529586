"""What bootstraps resample: documents, taken as independent, or the sources that they come from (`dataset.group`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.contract import Report
from rbptrack.analysis.display import INTERVAL
from rbptrack.analysis.findings import Verdict
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.stats.intervals import worth

LEAST = 10
"""From fewer sources no interval is given."""

_ENOUGH = 20  # of equal size
_UNEVEN = 0.8  # effective sources over their number, below which a report gives them
_GROUPS = re.compile(r"(?P<number>\d{1,9}) by (?P<field>.+) \S+")
_COVERED = "88 to 99%"  # of nominal 95% intervals from 10 to 19 sources, by studies/groups.py
_ENDS = ("low", "high", "se", "p", "p_corrected")


def sources_of(frame: pd.DataFrame) -> dict[str, tuple[int, str]]:
    """Count the sources of each dataset's documents, the fewest where runs differ, and name their field.

    Args:
        frame: `Runs.frame`, whose column groups says `15 by site 3fa9c1d2`.

    """
    sources: dict[str, tuple[int, str]] = {}
    for dataset, group in frame.loc[frame["groups"].notna(), ["dataset", "groups"]].itertuples(index=False):
        if not (match := _GROUPS.fullmatch(str(group))):
            continue  # a tag that somebody else wrote
        number = match["number"]
        field = match["field"]
        sources[str(dataset)] = min(sources.get(str(dataset), (int(number), field)), (int(number), field))
    return sources


def effective_sources(runs: Runs) -> dict[str, float]:
    """Return the effective number of equal sources of each dataset, by tokens; unreadable datasets are left out."""
    effective = {}
    for dataset in sources_of(runs.frame):
        of_dataset = runs.frame[runs.frame["groups"].notna() & (runs.frame["dataset"] == dataset)]
        try:
            counts = runs.document_counts(str(of_dataset["run_id"].iloc[0]), [])
        except Unreadable:
            continue
        if counts.grouped:
            effective[dataset] = worth(np.sqrt(counts.tokens))
    return effective


def resampled_in_words(frame: pd.DataFrame, effective: Mapping[str, float] | None = None) -> str:
    """Say in a sentence or two which units the intervals take as independent.

    Args:
        frame: `Runs.frame`.
        effective: as how many equal sources those of a dataset count; their number, if not given.

    """
    sources = sources_of(frame)
    datasets = sorted(set(map(str, frame["dataset"].dropna())))
    sentences = []
    for name in (name for name in datasets if name in sources):
        number, field = sources[name]
        counting = min((effective or {}).get(name, number), number)
        text = f"{name}: the {number} sources of its documents ({field}) are resampled"
        if counting < _UNEVEN * number:
            text += f", which count as {counting:.0f} of equal size"
        few = ", too few for an interval of all texts" if number < LEAST else ""
        near = f"; intervals are approximate (95% ones cover {_COVERED} in simulation)" if counting < _ENOUGH else ""
        sentences.append(f"{text}{few or near}.")
    if len(sentences) < len(datasets):
        others = " of the other datasets" if sentences else ""
        sentences.append(f"Documents{others} are taken as independent; dataset.group names the source they come from.")
    return " ".join(sentences)


def without_few(report: Report, frame: pd.DataFrame) -> None:
    """Take intervals and p over fewer than `LEAST` sources or documents out of tables, findings and figures.

    Verdicts that rest on them are undecided. Imports that do not say how many documents they have stay as they are, and
    so do results about one source (a column or case `source`): there its own documents were resampled.
    """
    few = _few(frame)
    if not few:
        return
    for name, table in report.tables.items():
        if "dataset" not in table.frame.columns or "source" in table.frame.columns:
            continue
        families = table.frame["family"] if "family" in table.frame.columns else [""] * len(table.frame)
        pairs = zip(families, table.frame["dataset"], strict=True)
        blank = np.array([_is_few(*pair, few) for pair in pairs], dtype=bool)
        ends = [c for c in map(str, table.frame.columns) if c in _ENDS or c.endswith(("_low", "_high", "_se"))]
        numbers = [c for c in ends if pd.api.types.is_numeric_dtype(table.frame[c])]
        words = {c: table.frame[c].mask(blank, "") for c in table.frame.columns if c == "interval"}
        kept = table.frame.assign(**words).assign(**{c: table.frame[c].astype(np.float64).mask(blank) for c in numbers})
        report.tables[name] = replace(table, frame=kept)
    few_names = {dataset for _, dataset, _ in few}
    every = set(map(str, frame["dataset"]))
    for ax in (ax for drawing in report.drawings.values() for ax in drawing.figure.axes):
        panel = {name for name in every if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", ax.get_title())} or every
        for drawn in (*ax.lines, *ax.collections) if panel & few_names else ():
            drawn.set_visible(drawn.get_visible() and drawn.get_label() != INTERVAL)
    nothing: Any = dict.fromkeys(("low", "high", "p", "p_corrected"), np.nan) | {"verdict": Verdict.UNTOLD}
    report.findings[:] = [
        replace(finding, **nothing)
        if "source" not in finding.case
        and _is_few(finding.case.get("family", ""), finding.case.get("dataset", ""), few)
        else finding
        for finding in report.findings
    ]


def _few(frame: pd.DataFrame) -> set[tuple[str, str, str]]:
    """Return (family, dataset, texts) of too few sources, or documents where none is named; texts as families name
    them.
    """
    sources = sources_of(frame)
    few = set()
    names = frame[["family", "dataset", "documents_hash", "num_documents"]].astype(object)
    for family, dataset, texts, documents in names.itertuples(index=False):
        units = sources[dataset][0] if dataset in sources else documents
        if pd.notna(units) and units < LEAST:
            few.add((str(family), str(dataset), "" if pd.isna(texts) else str(texts)[:8]))
    return few


def _is_few(family: object, dataset: object, few: set[tuple[str, str, str]]) -> bool:
    """Return whether a family on a dataset has too few; a part of a family names its texts: `nano texts 3fa9c1d2`."""
    named = str(family).partition(" texts ")[2][:8]
    return any(
        dataset == where and str(family).split(" ")[0] in ("", name.split(" ")[0]) and named in ("", texts)
        for name, where, texts in few
    )
