"""Convert MLflow's runs to the table `frame` of `rbptrack.analysis.Runs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from rbptrack.facts import DTYPE_BY_COLUMN, FACTS, Place, convert_columns
from rbptrack.ranks import rbp_ks, rbp_name, se_name
from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import Run


def runs_frame(runs: Iterable[Run]) -> pd.DataFrame:
    """Return a frame with one row per run. Its columns are the facts, and each rbp_<k> with its standard error."""
    frame = pd.DataFrame([_row(run) for run in runs])
    rbp_columns = []
    for k in rbp_ks(set(frame.columns)):
        rbp_columns += [name for name in (rbp_name(k), se_name(rbp_name(k))) if name in frame.columns]
    frame = frame.reindex(columns=[*DTYPE_BY_COLUMN, *rbp_columns])
    frame["started"] = pd.to_datetime(frame["started"], unit="ms", utc=True)
    return convert_columns(frame)


def _row(run: Run) -> dict[str, Any]:
    """Return the facts and the metrics of a run."""
    row: dict[str, Any] = run.data.params | run.data.metrics
    row |= {"run_id": run.info.run_id, "started": run.info.start_time}
    for fact in FACTS:
        if fact.place is Place.TAG:
            row[fact.name] = run.data.tags.get(Tag.PREFIX + fact.name)
    return row
