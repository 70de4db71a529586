"""How often `domains` calls two sources different whose texts are alike: at a nominal 5%, each test alone.

python -m studies.domains          # 15 minutes of a shared core
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from rbptrack.plugins.domains import Domains

from rbptrack.analysis import Runs
from rbptrack.ranks import FloatArray, RankTable
from tests.synthetic import changed, runs_of_tables

DRAWS = 400
SETTINGS = (  # documents of the two sources, sizes, difficulty of documents, scatter between models, sd of ln length
    ((12, 12), 5, "t3", 0.01, 0.6),
    ((20, 20), 10, "t3", 0.01, 1.5),
    ((20, 20), 5, "t3", 0.01, 1.5),
    ((50, 50), 5, "t3", 0.01, 0.6),
    ((12, 100), 5, "t3", 0.01, 0.6),
    ((50, 50), 5, "skewed", 0.01, 0.6),
    ((50, 50), 4, "t3", 0.0, 0.6),
    ((50, 50), 5, "t3", 0.05, 0.6),
)


def difficulties(kind: str, n: int, rng: np.random.Generator) -> FloatArray:
    return 0.12 * rng.standard_t(3, n) if kind == "t3" else 0.15 * rng.lognormal(0, 0.6, n)


def drawn(seed: int, documents: tuple[int, int], sizes: int, kind: str, scatter: float, spread: float) -> Runs:
    """A family whose documents differ in difficulty and slope, whatever their source."""
    rng, s, n = np.random.default_rng(seed), np.geomspace(1e4, 1e7, sizes), sum(documents)
    lengths = np.maximum(20, rng.lognormal(5, spread, n)).astype(int)
    difficulty, slope = difficulties(kind, n, rng), rng.normal(0, 0.02, n)
    document, position = np.repeat(np.arange(n), lengths), np.concatenate([np.arange(length) for length in lengths])
    zeros, tables = np.zeros(len(document)), dict[str, RankTable]()
    for i, (size, model) in enumerate(zip(s, rng.normal(0, scatter, sizes), strict=True)):
        y = np.repeat(2 * np.exp(difficulty + model - (0.15 + slope) * np.log(size / 1e4)), lengths)
        greater = np.where(rng.random(len(y)) < np.exp(-y), 0, 30)
        tables[f"r{i}"] = RankTable.from_arrays(
            vocab_size=64, document=document, position=position, field=zeros, token=zeros, greater=greater, ties=zeros,
            logprob=-y * rng.uniform(0.5, 1.5, len(y)),
        )  # fmt: skip
    plain, sources = runs_of_tables(s, tables), np.repeat(["a", "b"], documents).tolist()
    frame = plain.frame.assign(groups="2 by site abc")
    return changed(plain, frame, groups=lambda _: sources)


def main() -> None:
    for setting in SETTINGS:
        wrong = Counter(
            one.case["quantity"].split()[0]
            for seed in range(DRAWS)
            for one in Domains(ks=[1], shown=1).analyze(drawn(seed, *setting)).findings
            if one.p < 0.05
        )
        print(*setting, {name: f"{wrong[name] / DRAWS:.1%}" for name in ("CE", "RBP_1", "α")}, flush=True)


if __name__ == "__main__":
    main()
