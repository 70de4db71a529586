from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.tokens import Tokens

from rbptrack.analysis import Runs
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import ranked, runs_of_tables

SIZES = np.geomspace(1e4, 1e7, 6)


def improving(late_alpha: float, *, short: int = 0) -> Runs:
    """-ln RBP_1 is 2.5 S^-0.05 at positions below 64 and 2.5 S^-late_alpha after; 60 documents of 255 tokens."""
    rng = np.random.default_rng(0)
    tables = {}
    position, document = np.tile(np.arange(1, 256), 60), np.repeat(np.arange(60), 255)
    kept = ~((document < short) & (position > 20))
    for i, s in enumerate(SIZES):
        hit = rng.random(len(position)) < np.exp(-2.5 * s ** -np.where(position < 64, 0.05, late_alpha))
        rank = np.where(hit, 1, 21)[kept]
        tables[f"toy-text-{i}"] = ranked(rank, document=document[kept], position=position[kept])
    return runs_of_tables(SIZES, tables)


def test_a_law_that_differs_late_is_found() -> None:
    report = Tokens(ks=[1], shown=1).analyze(improving(0.15))
    row = report.tables["early_and_late"].frame.set_index("metric").loc["RBP_1"]
    assert row["low"] < 0.1 < row["high"]
    assert row["low"] > 0.05
    assert row["late"] == "128 to 255"
    laws = report.tables["position_laws"].frame.query("metric == 'RBP_1'").set_index("first")["alpha"]
    assert laws[32] == pytest.approx(0.05, abs=0.02)
    assert laws[128] == pytest.approx(0.15, abs=0.02)
    assert report.metrics["alpha_late_minus_early/toy/text/rbp_1"] == row["difference"]
    assert "the exponent is larger in 1 and smaller in 0 of 2 cases" in sentences_of(report.findings)[-2]


def test_one_law_at_every_position_is_not_told_apart() -> None:
    report = Tokens(ks=[1], shown=1).analyze(improving(0.05))
    assert sentences_of(report.findings)[-1].startswith(
        "No evidence that exponents differ between early and late positions"
    )


def test_every_bin_reads_the_same_documents() -> None:
    report = Tokens(ks=[1], shown=1).analyze(improving(0.15, short=20))
    curves = report.tables["position_curves"].frame.query("metric == 'CE' and size == '10000'").set_index("first")
    width = curves["last"] - curves.index + 1
    assert (curves["tokens"] == 40 * width).all()
    assert curves["y"].tolist() == pytest.approx([1.0] * len(curves))
    assert "in the 40 of 60 documents that reach the last bin" in sentences_of(report.findings)[-1]
