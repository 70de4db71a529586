"""Tests that the studies run."""

from __future__ import annotations

import numpy as np
import pytest

from studies import gates, seeds, validity


@pytest.mark.parametrize("name", list(validity.EXPERIMENTS))
def test_experiment_has_finite_outcomes(name: str) -> None:
    experiment = validity.EXPERIMENTS[name]
    rng = np.random.default_rng(0)
    draws = (experiment.draw(rng, experiment.cells[-1]) for _ in range(10))
    outcomes = next(filter(None, draws))  # some draws have no outcome, because the analyzer would refuse the data
    assert np.isfinite([float(outcome) for outcome in outcomes.values()]).all()


def test_gates_make_a_row_for_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "DRAWS", 1)
    cells = gates.draw_cells("even")
    for tested_draws, df_rule in gates.RULES:
        row = gates.table_row(tested_draws, df_rule, "even", cells)
        assert row.startswith(f"| {tested_draws} | {df_rule} | as the others |")


def test_intervals_with_one_point_per_run_cover_alpha_of_independent_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "DRAWS", 100)
    covered, widths = seeds.simulate_design(4, np.full(4, 2.0), 0.0)
    assert covered[1] > 85
    assert widths[1] < widths[0]
