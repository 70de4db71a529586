"""From MLflow's runs to the frame of `Runs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from rbptrack.analysis.source import COLUMNS
from rbptrack.ranks import rbp_ks, rbp_name, se_name
from rbptrack.tracking.names import Metric, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

_NO_COLUMNS = {Metric.RBP_CURVE, "kind", "seal"}


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """A row per run, with the columns of `COLUMNS`, rbp_<k>, and every other param in which the runs differ."""
    rows = []
    params: set[str] = set()
    for run in runs:
        rows.append(_row(run))
        params |= run.data.params.keys()
    frame = pd.DataFrame(rows)
    further = [name for name in sorted(params - set(COLUMNS)) if frame[name].nunique(dropna=False) > 1]
    present = set(frame.columns)
    shares = [name for k in rbp_ks(present) for name in (rbp_name(k), se_name(rbp_name(k))) if name in present]
    frame = frame.reindex(columns=[*COLUMNS, *shares, *further])
    for column, kind in COLUMNS.items():
        if kind in ("Int64", "Float64"):
            frame[column] = pd.to_numeric(frame[column], errors="coerce")
        elif kind == "boolean":
            frame[column] = frame[column].map({"true": True})
    for column in further:
        frame[column] = _numbers_or_texts(frame[column])
    frame["started"] = pd.to_datetime(frame["started"], unit="ms", utc=True)
    return frame.astype(dict(COLUMNS))


def _row(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": run.info.run_id, "started": run.info.start_time}
    for name, value in run.data.tags.items():
        if name.startswith(Tag.PREFIX):
            row[name.removeprefix(Tag.PREFIX)] = value
    row |= run.data.params | run.data.metrics
    return {name: value for name, value in row.items() if name not in _NO_COLUMNS}


def _numbers_or_texts(texts: pd.Series) -> pd.Series:
    """Numbers where every text is one."""
    numbers = pd.to_numeric(texts, errors="coerce")
    return numbers if numbers.notna().eq(texts.notna()).all() else texts.astype("string")
