"""What the fits of laws and of rank distributions cost, in milliseconds of the processor for each.

    python -m tools.fits [ROUNDS]         # the least of so many rounds (5)

Of another commit: the same file with that commit's folder as PYTHONPATH. Laws have ten sizes and a bootstrap's covariance.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rbptrack.plugins.lognormal.rank_fit import fit_ranks

from rbptrack.ranks import RankHistogram
from rbptrack.stats.power_law import PowerLawFit, fit_power_law, held_out_error, huber_alpha, of_each, scatters

LAWS, TOKENS, VOCABULARY = 300, 500_000, 50_304


def made_laws() -> list[PowerLawFit]:
    """Laws whose models scatter by 2% and whose documents are the same."""
    rng, s = np.random.default_rng(0), 1e6 * 3.0 ** np.arange(10)
    laws = []
    for _ in range(LAWS):
        y = s**-0.1 * np.exp(0.02 * rng.standard_normal(len(s)))
        draws = 0.01 * rng.standard_normal((1, 400)) + 0.005 * rng.standard_normal((len(s), 400))
        laws.append(fit_power_law(s, y, covariance=np.cov(draws)))
    return laws


def made_histogram(seed: int) -> RankHistogram:
    """Ranks of a shifted power law with a cut-off, as real ones are."""
    k = np.arange(1, VOCABULARY + 1)
    p = (k - 0.4) ** -(1.1 + 0.1 * seed) * np.exp(-1e-4 * k)
    count = np.random.default_rng(seed).multinomial(TOKENS, p / p.sum())
    rank = np.flatnonzero(count) + 1
    return RankHistogram(rank, count[rank - 1], np.zeros(len(rank)), VOCABULARY)


def each(work: Callable[[Any], object], cases: Sequence[Any]) -> float:
    """Milliseconds of the processor for one of the cases."""
    began = time.process_time()
    for case in cases:
        work(case)
    return 1e3 * (time.process_time() - began) / len(cases)


def main(rounds: int = 5) -> None:
    """Print the least of some rounds of each fit."""
    made, histograms = made_laws(), [made_histogram(seed) for seed in range(4)]
    together = [made]
    fits: list[tuple[str, Callable[[Any], object], Sequence[Any]]] = [
        ("law with its interval", lambda law: fit_power_law(law.s, law.y, covariance=law.covariance), made),
        ("scatter between models, of all laws at once", scatters, together),
        ("Huber's check, likewise", lambda laws: of_each(laws, lambda s, y, _: huber_alpha(s, y)), together),
        (
            "error of the largest size held out, likewise",
            lambda laws: of_each(laws, lambda s, y, _: held_out_error(s, y)),
            together,
        ),
        ("nine rank distributions", fit_ranks, histograms),
    ]
    for name, work, cases in fits:
        least = min(each(work, cases) for _ in range(rounds)) / (LAWS if cases is together else 1)
        print(f"{least:8.3f} ms  {name}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
