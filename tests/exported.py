"""What the exporter of folders for the hub makes of a few measurements."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rbptrack.analysis.discovery import EXPORTERS, discover
from rbptrack.analysis.runs import COLUMNS, Runs
from rbptrack.base.files import unfinished_folder
from tests.synthetic import Given


def exported(frame: pd.DataFrame, out: Path) -> str:
    """Export measurements that have some of the columns of `Runs.frame`; returns the exporter's words."""
    runs = Runs(
        frame.reindex(columns=[*COLUMNS, *frame.columns.difference(list(COLUMNS))]),
        Given(ranks=lambda run_id: pytest.fail(run_id)),
    )
    with unfinished_folder(out) as folder:
        return discover(EXPORTERS).select("hub")().export(runs, folder)
