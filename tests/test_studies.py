"""Tests that the studies run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from studies import freedom, seeds, validity


@pytest.mark.parametrize("name", list(validity.EXPERIMENTS))
def test_experiment_has_finite_outcomes(name: str) -> None:
    experiment = validity.EXPERIMENTS[name]
    rng = np.random.default_rng(0)
    draws = (experiment.draw(rng, experiment.cells[-1]) for _ in range(10))
    outcomes = next(filter(None, draws))  # some draws have no outcome, because the analyzer would refuse the data
    assert np.isfinite([float(outcome) for outcome in outcomes.values()]).all()


def test_summarise_rule_counts_intervals_without_0() -> None:
    """The intervals of 6 of 100 draws miss the true difference, which is 0."""
    rows = pd.DataFrame({"n": 100, "k_of_lengths": 50.0, "equal_k": [5.0] * 60 + [3.0] * 40})
    rows["equal_value"] = [9.0] * 6 + [0.0] * 94
    rows[["equal_sampling", "equal_scatter"]] = 1.0, 0.0
    for column in ("value", "sampling", "scatter", "k"):
        rows[f"apart_{column}"] = rows[f"equal_{column}"]
    summary = freedom.summarise_rule("min(n - 1, 3K - 1)", "even", [rows])
    assert summary["covered_min"] == summary["covered_max"] == 94
    assert summary["found_max"] == 6


def test_intervals_with_one_point_per_run_cover_alpha_of_independent_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "DRAWS", 100)
    covered, widths = seeds.simulate_design(4, np.full(4, 2.0), 0.0)
    assert covered[1] > 85
    assert widths[1] < widths[0]
