"""What every built-in analyzer keeps to: declared columns, labelled figures, the same output for the same input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Analyzer, Runs
from rbptrack.analysis.testing import LONGEST_HEADLINE
from rbptrack.config.paths import builtin_folder
from rbptrack.reporting.broken import computed
from rbptrack.reporting.discovery import discover
from tests.synthetic import family_runs, in_pieces, together

SIZES = np.geomspace(1e4, 1e7, 6)
FOUND = discover()
ELSEWHERE = {
    "training",
    "proxies",
    "agreement",
    "domains",
    "draft",
}  # of checkpoints, scores of tasks, two precisions, sources, a reference: tests/test_<name>.py
BUILTIN = [
    cls
    for name, cls in FOUND.analyzers.items()
    if FOUND.origin[name].startswith(str(builtin_folder())) and name not in ELSEWHERE
]


@pytest.fixture(scope="module")
def runs() -> Runs:
    """Two families on two corpora; the names are those of published values, for `reproduction`."""
    return together(
        *[
            family_runs(SIZES, alpha=alpha, a=3.0, family=family, dataset=dataset, seed=seed)
            for seed, (family, alpha, dataset) in enumerate(
                [("pythia", 0.1, "wiki"), ("pythia", 0.12, "c4"), ("opt", 0.15, "wiki"), ("opt", 0.13, "c4")]
            )
        ]
    )


@pytest.mark.parametrize("cls", BUILTIN, ids=lambda cls: cls.name)
def test_declared_columns_labelled_axes_and_repeatable(cls: type[Analyzer], runs: Runs) -> None:
    """The second time rank tables come in pieces: the same numbers, and never a whole table in memory."""
    report, again = computed(cls(), runs), computed(cls(), in_pieces(runs))
    assert report.notes
    assert report.drawings
    assert 5 <= len(report.headline.split()) <= LONGEST_HEADLINE, report.headline
    assert not report.headline.endswith(".")
    assert all(drawing.caption.endswith(".") for drawing in report.drawings.values()), "captions are sentences"
    for name, table in report.tables.items():
        assert list(table.frame.columns) == list(table.columns), name
        pd.testing.assert_frame_equal(table.frame, again.tables[name].frame, rtol=1e-9, atol=1e-12)
    assert again.metrics == pytest.approx(report.metrics, rel=1e-9)
    assert all(np.isreal(v) for v in report.metrics.values())
    for figure in (drawing.figure for drawing in report.drawings.values()):
        assert figure.axes
        assert any(ax.get_xlabel() for ax in figure.axes) or figure.get_supxlabel()
        assert any(ax.get_ylabel() for ax in figure.axes) or figure.get_supylabel()
    assert report.summary in {"", *report.tables}
