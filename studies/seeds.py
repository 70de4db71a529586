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

ALPHA = 0.1
TAU = 0.02  # standard deviation of ln y of a run around its law
DRAWS = 2000


def draw(rng: np.random.Generator, runs: FloatArray, share: float) -> FloatArray:
    """Draw the deviation of each run from the law in ln y, (sum of runs,).

    Args:
        rng: the generator of random numbers.
        runs: the number of runs of each size, (m,).
        share: the share of the variance that the runs of a size have in common.

    """
    shared = np.repeat(rng.standard_normal(len(runs)), runs.astype(int))
    separate = rng.standard_normal(len(shared))
    return np.asarray(TAU * (np.sqrt(share) * shared + np.sqrt(1 - share) * separate))


def cell(sizes: int, runs: FloatArray, share: float) -> tuple[float, float, float, float]:
    """Simulate one design.

    Returns:
        The percentage of draws in which the interval covers alpha and the median width, with one point for each size;
        then both numbers with one point for each run.

    """
    rng = np.random.default_rng(round(1000 * share) + 10 * sizes + int(runs.sum()))
    s = np.geomspace(1e6, 1e9, sizes)
    number = np.repeat(np.arange(sizes), runs.astype(int))
    rows = []
    for _ in range(DRAWS):
        y = s[number] ** -ALPHA * np.exp(draw(rng, runs, share))
        together = fit(s, np.bincount(number, weights=y) / runs).alpha
        apart = fit(s[number], y).alpha
        rows.append(
            [
                part
                for alpha in (together, apart)
                for part in (abs(alpha.value - ALPHA) <= alpha.half_width(), alpha.half_width())
            ]
        )
    columns = np.array(rows, dtype=np.float64)
    covered = 100 * columns[:, [0, 2]].mean(axis=0)
    widths = 2 * np.median(columns[:, [1, 3]], axis=0)
    return float(covered[0]), float(widths[0]), float(covered[1]), float(widths[1])


def main() -> None:
    """Print the table."""
    print(
        "| sizes, runs of each | shared by a size | one point a size: α is covered | width | one point a run | width |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    designs = [(m, np.full(m, float(runs))) for m, runs in product((4, 7), (1, 2, 4))]
    designs += [(m, np.array([4.0] + [1.0] * (m - 1))) for m in (4, 7)]
    for (m, runs), share in product(designs, (0.0, 0.2, 0.5, 0.8)):
        if runs.max() == 1 and share:
            continue
        together, width, apart, width_apart = cell(m, runs, share)
        each = f"{runs[0]:.0f}" if len(set(runs)) == 1 else "4 of the smallest, 1"
        print(f"| {m}, {each} | {share:.0%} | {together:.1f} | {width:.3f} | {apart:.1f} | {width_apart:.3f} |")


if __name__ == "__main__":
    main()
