"""Several runs of one size: is each a point of the law, or are they one point together?

    OMP_NUM_THREADS=1 python -m studies.seeds    # a minute: the table of docs/explanation/validity.md

Models of one size share its deviation from the law (of the width, the depth and the recipe), and each run has a
deviation of its own (of the seed). Both ways to fit are applied to the same draws, by the library's own function.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats import fit

ALPHA = 0.1
TAU = 0.02  # sd of ln y of a run around its law
DRAWS = 2000


def draw(rng: np.random.Generator, runs: FloatArray, share: float) -> FloatArray:
    """Ln y of each run without the law, (sum of runs,).

    Args:
        rng: random numbers.
        runs: how many runs each size has, (m,).
        share: of the variance, what the runs of a size have in common.

    """
    of_size = np.repeat(rng.standard_normal(len(runs)), runs.astype(int))
    of_run = rng.standard_normal(len(of_size))
    return np.asarray(TAU * (np.sqrt(share) * of_size + np.sqrt(1 - share) * of_run))


def cell(sizes: int, runs: FloatArray, share: float) -> tuple[float, float, float, float]:
    """Percent of draws in which alpha is covered, and the median width: one point a size, then one point a run."""
    rng = np.random.default_rng(round(1000 * share) + 10 * sizes + int(runs.sum()))
    s = np.geomspace(1e6, 1e9, sizes)
    number = np.repeat(np.arange(sizes), runs.astype(int))
    of_draws = []
    for _ in range(DRAWS):
        y = s[number] ** -ALPHA * np.exp(draw(rng, runs, share))
        together = fit(s, np.bincount(number, weights=y) / runs).alpha
        apart = fit(s[number], y).alpha
        of_draws.append(
            [part for one in (together, apart) for part in (abs(one.value - ALPHA) <= one.half(), one.half())]
        )
    columns = np.array(of_draws, dtype=np.float64)
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
