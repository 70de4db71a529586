"""Both parts of a measurement's cross-entropy, from its stored ranks: of runs that logged neither."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.ranks import histogram_parts, split_sums


def parts_of_ce(runs: Runs, run: str | pd.Series) -> tuple[float, float]:
    """Return the means of ln R and of -ln(p R) of one run, in nats; R counts ties, as in the paper.

    Source: its histogram; its rank table where the histogram counts strict ranks.

    Raises:
        Unreadable: nothing is stored, or strict ranks were imported, whose ties nobody knows.

    """
    row = runs[run] if isinstance(run, str) else run
    if pd.isna(row["rank"]) or row["rank"] != "strict":
        return histogram_parts(runs.histogram(row))
    if pd.notna(row["imported"]):
        raise Unreadable(f"run {row['run_id']}: strict ranks were imported, without ties")
    sums = np.sum([[*split_sums(piece)[:2], len(piece)] for piece in runs.rank_pieces(row)], axis=0)
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])
