"""Compare two ways to fit a law if a size has several runs: each run as a point, or the runs of a size as one point.

    OMP_NUM_THREADS=1 python -m studies.seeds    # a minute: the table of docs/explanation/validity.md

Models of one size share a deviation from the law, because they share width, depth and recipe. Each run also has its own
deviation, because of its seed. Both ways are applied to the same draws, with the library's function.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats import fit
from studies.simulation import ALPHA

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
    """Print the table."""
    print(
        "| sizes, runs of each | shared by a size | one point a size: α is covered | width | one point a run | width |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    designs = [(m, np.full(m, float(runs))) for m, runs in product((4, 7), (1, 2, 4))]
    designs += [(m, np.array([4.0] + [1.0] * (m - 1))) for m in (4, 7)]
    for (m, runs), shared_variance in product(designs, (0.0, 0.2, 0.5, 0.8)):
        if runs.max() == 1 and shared_variance:
            continue
        covered, widths = simulate_design(m, runs, shared_variance)
        runs_of_sizes = f"{runs[0]:.0f}" if len(set(runs)) == 1 else "4 of the smallest, 1"
        cells = (f"{covered[0]:.1f}", f"{widths[0]:.3f}", f"{covered[1]:.1f}", f"{widths[1]:.3f}")
        print(f"| {m}, {runs_of_sizes} | {shared_variance:.0%} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
