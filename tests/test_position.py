from __future__ import annotations

import numpy as np
import pytest

from plugins.position import Position
from rbptrack.analysis import COLUMNS, Runs
from rbptrack.errors import BadInput
from rbptrack.ranks import RankTable
from tests.synthetic import family_runs

SIZES = np.geomspace(1e4, 1e7, 6)


def improving(late_alpha: float, *, short: int = 0) -> Runs:
    """-ln RBP_1 is 2.5 S^-0.05 at positions below 64 and 2.5 S^-late_alpha after; 60 documents of 255 tokens."""
    rng = np.random.default_rng(0)
    base = family_runs(SIZES, alpha=0.1, a=3.0)
    tables = {}
    for i, s in enumerate(SIZES):
        position = np.tile(np.arange(1, 256), 60)
        document = np.repeat(np.arange(60), 255)
        alpha = np.where(position < 64, 0.05, late_alpha)
        hit = rng.random(len(position)) < np.exp(-2.5 * s**-alpha)
        kept = ~((document < short) & (position > 20))
        tables[f"toy-text-{i}"] = RankTable.from_arrays(
            vocab_size=64,
            document=document[kept],
            position=position[kept],
            field=np.zeros(kept.sum()),
            token=np.zeros(kept.sum()),
            greater=np.where(hit, 0, 20)[kept],
            ties=np.zeros(kept.sum()),
            logprob=np.full(kept.sum(), -1.0),
        )
    assert set(COLUMNS) <= set(base.frame.columns)
    return Runs(base.frame, histogram=lambda r: tables[r].histogram(), ranks=lambda r: tables[r])


def test_a_law_that_differs_late_is_found() -> None:
    report = Position(ks=[1], shown=1).analyze(improving(0.15))
    row = report.tables["early_and_late"].frame.set_index("metric").loc["RBP_1"]
    assert row["low"] < 0.1 < row["high"]
    assert row["low"] > 0.05
    assert row["late"] == "128 to 255"
    laws = report.tables["laws"].frame.query("metric == 'RBP_1'").set_index("first")["alpha"]
    assert laws[32] == pytest.approx(0.05, abs=0.02)
    assert laws[128] == pytest.approx(0.15, abs=0.02)
    assert report.metrics["alpha_late_minus_early/toy/text/rbp_1"] == row["difference"]
    assert (
        "at late ones is larger in 1 of 1 comparison (each a family on a dataset, tested alone at 5%)"
        in report.headline
    )


def test_one_law_at_every_position_is_not_told_apart() -> None:
    report = Position(ks=[1], shown=1).analyze(improving(0.05))
    assert "differs between early and late positions is undecided in the one comparison" in report.headline


def test_every_bin_reads_the_same_documents() -> None:
    report = Position(ks=[1], shown=1).analyze(improving(0.15, short=20))
    curves = report.tables["curves"].frame.query("metric == 'CE' and size == '10000'").set_index("first")
    width = curves["last"] - curves.index + 1
    assert (curves["tokens"] == 40 * width).all()
    assert curves["y"].tolist() == pytest.approx([1.0] * len(curves))
    assert "documents that reach position 128: 40 of 60 documents)" in report.notes[0]


def test_what_is_shown_must_be_asked_for() -> None:
    with pytest.raises(BadInput, match=r"analyzer.shown=3: expected one of analyzer.ks=\[1, 10, 100\]"):
        Position(shown=3).analyze(family_runs(SIZES, alpha=0.1, a=3.0))
