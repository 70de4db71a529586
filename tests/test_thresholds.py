from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.emergence import Emergence
from rbptrack.plugins.emergence.thresholds import threshold, width_in_decades

from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.power_law import fit_power_law
from tests.synthetic import family_runs

S = np.geomspace(1e5, 1e9, 6)
NOISE = 0.01**2 * np.eye(6)


def law(alpha: float, middle: float, *, scatter: float = 0.01, seed: int = 0, flat: float = 0.0):
    """-ln p = ln 2 at size `middle`."""
    y = np.log(2) * (S / middle) ** -alpha + flat
    return fit_power_law(S, y * np.exp(scatter * np.random.default_rng(seed).standard_normal(6)), covariance=NOISE)


def test_a_size_within_the_sizes_is_found() -> None:
    size = threshold(law(0.2, 3e7), 0.5)
    assert size.size.low < 3e7 < size.size.high < 6e7
    assert size.read_off == pytest.approx(3e7, rel=0.2)
    assert (size.forecast, size.refused) == (False, "")
    exact = threshold(fit_power_law(S, (S / 3e7) ** -0.2), np.exp(-1))
    assert exact.size.value == pytest.approx(3e7)
    assert exact.read_off == pytest.approx(3e7)


def test_the_width_is_alpha_alone() -> None:
    exact = fit_power_law(S, 5 * S**-0.2)
    assert width_in_decades(exact).value == pytest.approx(np.log10(np.log(10) / -np.log(0.9)) / 0.2)
    assert 6.6 < width_in_decades(exact).value < 6.8
    assert np.isnan(width_in_decades(fit_power_law(S, S**0.1)).value)


def test_beyond_the_largest_it_is_a_forecast_or_refused() -> None:
    near = threshold(law(0.2, 3e9, scatter=0.003), 0.5)
    assert near.forecast
    assert near.refused == ""
    assert near.size.low <= 3e9 <= near.size.high
    far = threshold(law(0.2, 3e11, scatter=0.003), 0.5)
    assert "beyond 10 times" in far.refused
    assert np.isnan(far.size.value)


def test_no_rise_no_size() -> None:
    assert threshold(fit_power_law(S, S**0.01), 0.5).refused == "success does not rise significantly with size"
    assert "below a 10th" in threshold(law(0.2, 1e3), 0.5).refused


@pytest.mark.parametrize("scatter", [0.0, 0.03])
def test_intervals_of_the_size_cover(scatter: float) -> None:
    rng, hits, draws = np.random.default_rng(1), 0, 300
    for _ in range(draws):
        y = np.log(2) * (S / 3e7) ** -0.2 * np.exp(np.hypot(scatter, 0.01) * rng.standard_normal(6))
        size = threshold(fit_power_law(S, y, covariance=NOISE), 0.5).size
        hits += size.low <= 3e7 <= size.high
    assert 0.92 <= hits / draws <= 0.995


def test_the_report() -> None:
    """-ln RBP_1 = 12 S^-0.2: half of the tokens succeed at S = (12 / ln 2)^5 = 1.6M."""
    sizes = np.geomspace(1e5, 3e7, 6)
    report = Emergence(ks=[1], lengths=[1, 4]).analyze(family_runs(sizes, alpha=0.2, a=12.0, tokens=1000))
    rows = report.tables["thresholds"].frame.set_index("N")
    assert rows.loc["1", "s_50_low"] < (12 / np.log(2)) ** 5 < rows.loc["1", "s_50_high"]
    assert rows.loc["1", "what"] == "measured"
    assert rows.loc["4", "what"] != "measured", "four tokens succeed in half of the cases only at 4^5 times the size"
    assert rows.loc["1", "decades"] == pytest.approx(6.7, rel=0.1)
    assert "answers" in report.tables, "the documents end with an answer of three tokens"
    said = sentences_of(report.findings)
    assert any(sentence.startswith("S_50 (half of all windows right) can be estimated in") for sentence in said)
    assert {"success", "answers"} <= set(report.drawings)


def test_a_size_beyond_the_largest_is_interpolated_and_needs_documents() -> None:
    exact = fit_power_law(S, np.log(2) * (S / 4e9) ** -0.2, covariance=1e-8 * np.eye(6))
    assert threshold(exact, 0.5).size.value == pytest.approx(4e9, rel=0.01)
    refused = threshold(exact, 0.5, documents=99)
    assert (refused.forecast, refused.refused) == (True, "beyond the largest size it needs 100 documents")
    assert np.isnan(refused.size.value)
