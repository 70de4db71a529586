"""The report that compares two measurements of the same tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis import (
    BY_DOCUMENT,
    CHANGES_GLOSSARY,
    Report,
    Runs,
    Term,
    add_changes,
    compare_runs,
    format_number,
    worst_documents,
    worst_tokens,
)
from rbptrack.analysis.pairs import named_units
from rbptrack.figures import facets
from rbptrack.ranks import CE, log_grid
from rbptrack.stats.changes import Changes

_NUM_WORST = 10  # tokens and documents in the tables of the report
_MAX_DRAWN = 1000  # documents in the figure

_GLOSSARY = CHANGES_GLOSSARY | {
    "changes": Term("", "CE of B minus CE of A in each document"),
    "curves": Term("", "RBP_k of both against k"),
}


def comparison_report(
    runs: Runs, first: pd.Series[Any], second: pd.Series[Any], ks: list[int]
) -> tuple[Report, Changes]:
    """Compare two measurements of the same tokens. Returns the report and the comparison that it shows.

    Args:
        runs: the measurements, which contain the two.
        first: the row of `Runs.frame` of the first measurement, which is the baseline.
        second: the row of the second measurement.
        ks: the k of RBP_k.

    Raises:
        BadInput: the two rows are one measurement.
        OtherTokens: the measurements did not score the same tokens.
        Unreadable: a rank table cannot be read.

    """
    changes = compare_runs(runs, first, second, ks=ks, worst=_NUM_WORST)
    report = Report(_GLOSSARY)
    add_changes(report, changes, family=str(second["family"]), dataset=str(second["dataset"]))
    unread = runs.unread_groups.get(str(first["run_id"]))
    if unread:
        report.notes.append(f"{unread}, {BY_DOCUMENT}.")
    if changes.worst_tokens:
        report.tables["worst"] = worst_tokens(runs, second, changes.worst_tokens)
    rises = worst_documents(runs, first, changes, _NUM_WORST)
    if len(rises):
        report.tables["worst_documents"] = rises
    report.figures["changes"] = _draw_changes(runs, first, changes)
    report.figures["curves"] = _draw_curves(runs, first, second)
    report.headline = _headline(report, first["name"], second["name"])
    return report, changes


def _draw_changes(runs: Runs, first: pd.Series[Any], changes: Changes) -> Any:
    """Draw the change of CE in each document, or in each group if groups are known, against CE in the first."""
    unit, names = named_units(runs, first, changes)
    x, y = "CE of A, nats per token", "CE of B minus A, nats"
    rises = changes.ce_rises
    drawn = np.unique(np.linspace(0, len(rises) - 1, min(len(rises), _MAX_DRAWN)).astype(int))
    frame = pd.DataFrame(
        {
            unit: names[drawn],
            x: (changes.a.nats / changes.a.tokens)[drawn],
            y: rises[drawn],
            "direction": np.select([rises[drawn] > 0, rises[drawn] < 0], ["B is worse", "B is better"], "no change"),
        }
    )
    return facets(frame, x=x, y=y, colour="direction", label=unit, log="", line=False, null=0.0)


def _draw_curves(runs: Runs, first: pd.Series[Any], second: pd.Series[Any]) -> Any:
    frames = []
    for row in (first, second):
        histogram = runs.histogram(row)
        ks = log_grid(histogram.vocab_size, per_decade=6)
        frames.append(pd.DataFrame({"measurement": row["name"], "k": ks, "RBP_k": histogram.rbp_curve(ks)}))
    return facets(pd.concat(frames, ignore_index=True), x="k", y="RBP_k", colour="measurement")


def _headline(report: Report, a: str, b: str) -> str:
    """State how much more or less cross-entropy B has than A, and whether the difference may be chance."""
    changes = report.frame("change")
    row = changes[changes["metric"] == CE].iloc[0]
    difference = format_number(abs(row["change"]), ".4f")
    if float(difference) == 0:  # the printed digits show no difference
        return f"{b} has the same cross-entropy as {a} to four decimals."
    doubt = {"undecided": "; the difference may be chance", "": "; there are too few documents to test it"}
    direction = "more" if row["change"] > 0 else "less"
    return f"{b} has {difference} nats {direction} cross-entropy than {a}{doubt.get(row['verdict'], '')}."
