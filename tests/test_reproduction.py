from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.reproduction import Reproduction

from rbptrack.analysis import Runs
from rbptrack.analysis.published import published_in_k, published_in_size
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import log_grid
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.power_law import fit_power_law, point_diagnostics
from tests.synthetic import Given, family_runs, together, unreadable

SIZES = np.geomspace(1e6, 1e10, 10)


def cells(alpha: float, **options: object) -> pd.DataFrame:
    runs = family_runs(SIZES, alpha=alpha, a=3.0, family="pythia", dataset="c4", tokens=2000, **options)
    return Reproduction().analyze(runs).tables["law_in_size"].frame.set_index("metric")


def test_the_published_tables_are_whole() -> None:
    in_size, in_k = published_in_size(), published_in_k()
    assert len(in_size) == 4 * 6 * 7  # families x datasets x metrics
    assert len(in_k) == 24 * 4  # models x datasets
    assert (in_k["beta"] > 0).all()
    assert in_size.query("family == 'pythia' and dataset == 'c4' and metric == 'ce'")["alpha"].item() == 0.066


def test_equal_exponents_agree_and_others_differ() -> None:
    same, other = cells(0.066), cells(0.1)
    assert same.loc["ce", "yours"] == pytest.approx(0.066, abs=1e-5)
    assert same.loc["ce", "verdict"] == "agrees"
    assert other.loc["ce", "verdict"] == "differs"
    assert other.loc["ce", "low"] > 0
    assert other.loc["ce", "difference"] == pytest.approx(0.034, abs=1e-4)
    assert set(same.index) == {"ce", "rbp_1", "rbp_10"}, "other k exceed |V| = 64"


def test_no_share_of_a_published_exponent_of_zero_is_taken() -> None:
    """Qwen2.5's RBP_10000 on humaneval is printed as 0.000."""
    report = Reproduction().analyze(imported(0.1, family="qwen2.5", dataset="humaneval"))
    assert "rbp_10000" in set(report.tables["law_in_size"].frame["metric"])
    largest = report.tables["verdicts"].frame.set_index("table").loc[2, "largest_difference"]
    assert re.fullmatch(r"[+-]\d+% \((ce|rbp_10*)\)", largest)
    assert "rbp_10000" not in largest


def test_the_published_uncertainty_is_what_r2_implies() -> None:
    """Published: R^2 0.991 from 10 sizes; the standard error of such an OLS slope, by its own formula."""
    row = cells(0.066).loc["ce"]
    expected = 0.066 * np.sqrt((1 - 0.9905) / 0.9905 / 8)
    assert row["published_se"] == pytest.approx(expected, rel=0.01)


def test_few_and_scattered_points_cannot_be_told() -> None:
    rng = np.random.default_rng(1)
    runs = together(
        *[
            family_runs([s], alpha=0.066, a=3.0 * float(np.exp(rng.normal(0, 0.1))), family="pythia", dataset=f"c4{i}")
            for i, s in enumerate(SIZES[::3])
        ]
    )
    runs.frame["dataset"] = "c4"
    report = Reproduction().analyze(runs)
    assert report.tables["law_in_size"].frame.set_index("metric").loc["ce", "verdict"] == "undecided"
    assert any("pythia 4 of 10" in note for note in report.notes)
    assert any("yours: slide at 256 tokens, rank=paper" in note for note in report.notes)


def test_the_law_in_k_is_least_squares() -> None:
    runs = family_runs([1e7], alpha=0.1, a=3.0, family="pythia", dataset="wiki", tokens=2000)
    runs.frame["size"] = "14m"
    (row,) = Reproduction().analyze(runs).tables["law_in_k"].frame.to_dict("records")
    k = np.arange(1, 64)
    y = -np.log(runs.histogram("pythia-wiki-0").rbp_curve(k))
    kept = y > 0
    assert kept.all()
    assert row["yours_every_k"] == pytest.approx(-np.polyfit(np.log(k), np.log(y), 1)[0], rel=1e-6)
    even = log_grid(63)
    assert row["yours"] == pytest.approx(-np.polyfit(np.log(even), np.log(y[even - 1]), 1)[0], rel=1e-6)
    assert row["published"] == 0.308
    assert row["verdict"] == "differs"


def test_nothing_published_is_said() -> None:
    with pytest.raises(RbptrackError, match="nothing published to compare with: the authors' tables hold gpt2, opt"):
        Reproduction().analyze(family_runs(SIZES, alpha=0.1, a=3.0))


def imported(alpha: float, *, family: str = "pythia", dataset: str = "c4", **columns: object) -> Runs:
    """The authors' figures of a family: CE and RBP of their k, no ranks and no standard errors."""
    frame = family_runs(SIZES, alpha=0.066, a=3.0, family=family, dataset=dataset).frame
    y = 3.0 * SIZES[:, None] ** -np.array([alpha, 0.1, 0.2, -0.05])
    for i, k in enumerate((1, 10, 100, 10000)):
        frame[f"rbp_{k}"], frame[f"rbp_{k}_se"] = np.exp(-y[:, i]), None
    frame = frame.assign(ce_se=None, vocab_size=None, documents_hash=None, imported="authors", **columns)
    return Runs(frame, Given(ranks=unreadable))


def test_imported_figures_are_compared_at_every_published_k() -> None:
    """CE alone was; and an error that is not known was taken for 0."""
    report = Reproduction().analyze(imported(0.1))
    rows = report.tables["law_in_size"].frame.set_index("metric")
    assert list(rows.index) == ["ce", "rbp_1", "rbp_10", "rbp_100", "rbp_10000"]
    assert rows.loc["rbp_10", "yours"] == pytest.approx(0.1)
    in_k = report.tables["law_in_k"].frame if "law_in_k" in report.tables else pd.DataFrame(columns=["se", "verdict"])
    assert in_k["se"].isna().all()
    assert in_k["verdict"].eq("undecided").all()
    points = point_diagnostics(fit_power_law(SIZES, SIZES**-0.1))
    assert np.isnan(points["se_ln_y"]).all()


def test_an_inverse_law_is_in_the_lead() -> None:
    headline = sentences_of(Reproduction().analyze(imported(0.1)).findings)[0]
    assert "the law of RBP_10000 of pythia on c4 is inverse: larger models are worse" in headline


def test_imported_success_of_sequences_is_read() -> None:
    runs = imported(0.1)
    success = runs.frame["rbp_1"].astype(float) ** 3  # of 8 tokens, as if 3 were independent
    report = Reproduction().analyze(imported(0.1, sequence_success_k1_n8=success))
    rows = report.tables["sequences"].frame
    assert (rows["N"] == 8).all()
    np.testing.assert_allclose(rows["worth"], 3.0)
    assert "N tokens in a row succeed as often as 0.38 N independent ones would" in " ".join(
        sentences_of(report.findings)
    )
