"""Tests of the report that compares two measurements."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

from rbptrack.reporting.comparison import comparison_report
from tests.plugins.families_in_memory import family_runs
from tests.rank_tables import rank_table


def test_figure_of_changes_names_the_group_that_changed() -> None:
    """Groups are counted in the order of their first documents, not in the order of their names."""
    a = rank_table(np.ones(4), documents=4)
    b = rank_table(np.ones(4), documents=4, logprob=np.array([-1, -1, -3, -1]))
    runs = family_runs({1e6: a, 2e6: b}, groups=["z", "y", "x", "z"])
    report, _ = comparison_report(runs, runs.frame.iloc[0], runs.frame.iloc[1], [1])
    (csv,) = report.figures["changes"].to_dict()["datasets"].values()
    directions = pd.read_csv(io.StringIO(csv)).set_index("group")["direction"]
    assert directions.to_dict() == {"z": "no change", "y": "no change", "x": "B is worse"}
