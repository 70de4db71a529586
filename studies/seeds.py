"""Compare two ways to fit a law if a size has several runs: each run as a point, or the runs of a size as one point.

    OMP_NUM_THREADS=1 python -m studies.seeds    # a minute; writes studies/seeds.csv

`python -m studies.validity --table` writes the table of the CSV into docs/explanation/validity.md.

Models of one size share a deviation from the law, because they share width, depth and recipe. Each run also has its own
deviation, because of its seed. Both ways are applied to the same draws, with the library's function.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from rbptrack.ranks import FloatArray
from rbptrack.stats import fit
from studies.experiment import ROOT
from studies.simulation import ALPHA

CSV = ROOT / "studies/seeds.csv"
TAU = 0.02  # standard deviation of ln y of a run around its law
DRAWS = 2000


def simulate_design(sizes: int, runs: FloatArray, shared_variance: float) -> tuple[FloatArray, FloatArray]:
    """Fit laws with one point for each size, and with one point for each run, to the same draws.

    Args:
        sizes: the number of sizes, m.
        runs: the number of runs of each size, (m,).
        shared_variance: the share of the variance that the runs of a size have in common.

    Returns:
        The percentage of draws in which the interval covers alpha, (2,), and the median width of the interval, (2,).

    """
    rng = np.random.default_rng(round(1000 * shared_variance) + 10 * sizes + int(runs.sum()))
    s = np.geomspace(1e6, 1e9, sizes)
    size_of_run = np.repeat(np.arange(sizes), runs.astype(int))
    errors = np.empty((DRAWS, 2))
    half_widths = np.empty((DRAWS, 2))
    for i in range(DRAWS):
        shared = rng.standard_normal(sizes)[size_of_run]
        separate = rng.standard_normal(len(size_of_run))
        deviation = TAU * (np.sqrt(shared_variance) * shared + np.sqrt(1 - shared_variance) * separate)
        y = s[size_of_run] ** -ALPHA * np.exp(deviation)
        by_size = fit(s, np.bincount(size_of_run, weights=y) / runs).alpha
        by_run = fit(s[size_of_run], y).alpha
        errors[i] = by_size.value - ALPHA, by_run.value - ALPHA
        half_widths[i] = by_size.half_width(), by_run.half_width()
    return 100 * (np.abs(errors) <= half_widths).mean(axis=0), 2 * np.median(half_widths, axis=0)


def main() -> None:
    """Simulate all designs, and write the CSV."""
    designs = [(m, np.full(m, float(runs))) for m, runs in product((4, 7), (1, 2, 4))]
    designs += [(m, np.array([4.0] + [1.0] * (m - 1))) for m in (4, 7)]
    rows = []
    for (m, runs), shared_variance in product(designs, (0.0, 0.2, 0.5)):
        if runs.max() == 1 and shared_variance:
            continue
        covered, widths = simulate_design(m, runs, shared_variance)
        rows.append(
            {
                "sizes": m,
                "runs": f"{runs[0]:.0f}" if len(set(runs)) == 1 else "4 of the smallest, 1 of the others",
                "shared_variance": shared_variance,
                "covered_by_size": round(covered[0], 2),
                "width_by_size": float(f"{widths[0]:.4g}"),
                "covered_by_run": round(covered[1], 2),
                "width_by_run": float(f"{widths[1]:.4g}"),
            }
        )
    pd.DataFrame(rows).to_csv(CSV, index=False)


if __name__ == "__main__":
    main()
